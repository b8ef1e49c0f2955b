"""Text to module: the grammar, its two readers, and what XLA checks while it reads."""
