"""Emitters: the third reading of an op, as lane code."""
