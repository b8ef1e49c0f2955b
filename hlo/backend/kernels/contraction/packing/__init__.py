"""Factors copied into panels, in the order in which tiles read them."""
