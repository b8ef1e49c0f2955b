"""Kernels: how a fusion, a contraction or a copy becomes one native function."""
