"""The backend: optimised HLO -> plan, LLVM text, machine code."""
