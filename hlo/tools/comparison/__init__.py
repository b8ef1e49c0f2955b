"""Comparison of results and of modules: what differs, how much, and whether it counts."""
