"""Ahead of time: a program as an object file that needs no Python, and the header of its call."""
