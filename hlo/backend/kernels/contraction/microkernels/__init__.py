"""Tiles of sums in registers: their shape, and the code that runs over depth."""
