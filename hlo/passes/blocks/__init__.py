"""Blocks: kernels that run one block of rows after the other, what lies between them in a cache."""
