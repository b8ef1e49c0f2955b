"""Options: how LLVM generates code for us."""

from __future__ import annotations

from hlo.backend.linking import elf

CODEGEN_LEVEL = 2  # level 1 gives the same code, 0 is 1.4x slower code (docs/measurements.md 3)
GLUE_LEVEL = 0  # a quarter of the time, where no loop is LLVM's to make fast
# Loop strength reduction takes up to 40 % of the time and gains nothing: our loops step pointers
# themselves or by indices that the addressing modes hold.
OPTIONS = ("--disable-lsr",)

# Our loader keeps a program together, so that the small code model holds: constants by distances,
# calls that LLVM's fast selector knows. Elsewhere MCJIT may spread sections over the address space.
MODEL = (
    {"reloc": "pic", "codemodel": "small"} if elf.is_supported() else {"codemodel": "jitdefault"}
)
# Of objects for the system's linker, on every system.
AHEAD_MODEL = {"reloc": "pic", "codemodel": "small"}
# WebAssembly has one code for all places; position-independent code there is for libraries that are
# loaded by others.
# RISC-V's small model is of programs within 2 GiB of address 0, its medium one of such anywhere;
# floats are passed in registers.
STATIC_MODEL = {"reloc": "static", "codemodel": "small"}
RISCV_MODEL = {"reloc": "pic", "codemodel": "medium", "abiname": "lp64d"}
