"""NumPy arithmetic that is exact where HLO is: one file per kind of number."""
