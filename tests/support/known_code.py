"""LLVM makes the code of a module once in a process, for tests that leave out the cache.

They do (`cache=False`) so that they see what the passes and stages of today make. LLVM's part is a
function of its text: a program for other numbers of threads has the same kernels, and their code.
"""

from __future__ import annotations

from functools import lru_cache, wraps

from hlo.backend.linking import toolchain

MOST = 1024  # modules: a few tests' kernels


def install() -> None:
    """From here on this process asks LLVM for what it has not made lately."""
    made = toolchain.object_code
    toolchain.object_code = wraps(made)(lru_cache(maxsize=MOST)(made))
