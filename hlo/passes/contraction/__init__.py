"""Contraction: products put into the form that takes least."""
