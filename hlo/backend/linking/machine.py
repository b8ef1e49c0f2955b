"""Machine: what object code depends on besides its IR, known without loading LLVM.

    llvmlite's version and library, the processor's features, our options --identity--> a text

It names objects on disk, and a program that is found there shall not wait for LLVM's library.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

import llvmlite  # type: ignore[import-untyped]  # it has no types

from hlo.backend.linking import elf
from hlo.once import once

CODEGEN_LEVEL = 2  # level 1 gives the same code, 0 is 1.4x slower code (BACKEND_FACTS.md 3)
GLUE_LEVEL = 0  # a quarter of the time, where no loop is LLVM's to make fast
# Loop strength reduction takes up to 40 % of the time and gains nothing: our loops step pointers
# themselves or by indices that the addressing modes hold.
OPTIONS = ("--disable-lsr",)

# Our loader keeps a program together, so that the small code model holds: constants by distances,
# calls that LLVM's fast selector knows. Elsewhere MCJIT may spread sections over the address space.
MODEL = (
    {"reloc": "pic", "codemodel": "small"} if elf.is_supported() else {"codemodel": "jitdefault"}
)
# Linux's list of the processor's family, model and every feature, as module loading reads it.
FEATURES = "/sys/devices/system/cpu/modalias"


@once
def identity() -> str:
    """What object code depends on besides its IR: LLVM, the processor, options."""
    options = (str(CODEGEN_LEVEL), str(GLUE_LEVEL), *OPTIONS, *MODEL.values())
    return "\n".join((llvmlite.__version__, _library(), sys.platform, _processor(), *options))


def _library() -> str:
    """Size and time of LLVM's library: versions of llvmlite may be built with several LLVMs."""
    folder = os.path.join(os.path.dirname(llvmlite.__file__), "binding")
    with os.scandir(folder) as entries:
        rows = [f"{e.name} {e.stat().st_size} {e.stat().st_mtime_ns}" for e in entries
                if "llvmlite." in e.name]  # fmt: skip
    return "\n".join(sorted(rows))


def _processor() -> str:
    """The processor's features: the system's words for them, or else LLVM's."""
    try:
        with open(FEATURES, encoding="utf-8") as file:
            text = file.read()
        if ":feature:" in text:
            return f"{os.uname().release} {text}"  # which features are listed, the kernel decides
    except (OSError, ValueError):
        pass
    toolchain = import_module("hlo.backend.linking.toolchain")
    return f"{toolchain.llvm.get_process_triple()} {toolchain.feature_text()}"
