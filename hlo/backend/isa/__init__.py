"""Instruction sets: what a machine's instructions can do, and the text that asks them to."""
