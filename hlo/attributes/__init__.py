"""Attribute languages: one file per kind, a frozen value with its text in both directions."""
