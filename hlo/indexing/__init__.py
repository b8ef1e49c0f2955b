"""Index maps: which element of an operand stands at an index of a result. No LLVM."""
