"""The writer of LLVM IR, and what is done with kernels as texts."""
