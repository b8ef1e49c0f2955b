"""What the loops of a kernel are, as data: no code is written here."""
