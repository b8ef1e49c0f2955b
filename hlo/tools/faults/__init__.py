"""Faults: which pass, instruction or kernel is wrong, and the smallest program that shows it."""
