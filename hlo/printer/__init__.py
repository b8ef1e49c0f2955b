"""Module -> text."""
