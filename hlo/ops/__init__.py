"""The op table: one row per opcode, filed by family; importing this package fills it."""
