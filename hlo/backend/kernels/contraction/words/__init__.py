"""Factors as words of two or four elements, for instructions that add up such products."""
