"""From IR to code that runs: LLVM, object files, caches, and the link to this process."""
