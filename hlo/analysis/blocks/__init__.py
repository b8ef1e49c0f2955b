"""Blocks: whether and how a computation runs block by block."""
