"""Rewrite rules by family: each an equation; the right side is never worse than the left."""
