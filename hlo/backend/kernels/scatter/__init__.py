"""Scatters: updates of an array at indices that data names."""
