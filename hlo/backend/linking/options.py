"""Options: how LLVM generates code for us."""

from __future__ import annotations

from hlo.backend.linking import elf

# Level 1 gives the same code, level 0 code that is 1.4 times slower (docs/measurements.md 3).
CODEGEN_LEVEL = 2
GLUE_LEVEL = 0  # Takes a quarter of the time, for code without a loop that LLVM should make fast.
# Loop strength reduction takes up to 40 % of the time and gains nothing: our loops step pointers
# themselves or by indices that the addressing modes hold.
OPTIONS = ("--disable-lsr",)

# Our loader keeps a program together, so that the small code model holds: constants are reached by
# distances, and LLVM's fast selector knows the calls. Elsewhere MCJIT may spread sections over the
# address space.
MODEL = (
    {"reloc": "pic", "codemodel": "small"} if elf.is_supported() else {"codemodel": "jitdefault"}
)
# The model of objects for the system's linker, on every system.
AHEAD_MODEL = {"reloc": "pic", "codemodel": "small"}
# WebAssembly has one code for all places; position-independent code there is for libraries that are
# loaded by others.
STATIC_MODEL = {"reloc": "static", "codemodel": "small"}
# RISC-V's small model holds for programs within 2 GiB of address 0, its medium one for such
# programs anywhere. Floats are passed in registers.
RISCV_MODEL = {"reloc": "pic", "codemodel": "medium", "abiname": "lp64d"}
