"""Products of few rows: the other factor is read once, in its own order."""
