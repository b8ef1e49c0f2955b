"""Code generation: the writer of LLVM IR, loops, index maps, lanes, and the entry."""
