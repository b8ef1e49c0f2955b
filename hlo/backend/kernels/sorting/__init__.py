"""Sorts and selections: by rows, by digits, by merging, the top k."""
