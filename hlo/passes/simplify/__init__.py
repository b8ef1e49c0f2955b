"""Simplify: fewer and plainer ops of the same kinds."""
