"""Fourier transforms: lines of any length, a vector of lines at once."""
