"""Products on units that multiply whole tiles: AMX."""
