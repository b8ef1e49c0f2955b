"""Scatters: updates of an array at places that data names."""
