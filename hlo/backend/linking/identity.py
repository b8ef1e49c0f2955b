"""Identity: what object code depends on besides its IR, known without loading LLVM.

    llvmlite's version and library, the processor's features and which of them this process may use,
    our options --identity--> a text

It names objects on disk, and a program that is found there shall not wait for LLVM's library.
"""

from __future__ import annotations

import os
import sys

import llvmlite  # type: ignore[import-untyped]  # it has no types

from hlo.backend.linking.options import CODEGEN_LEVEL, GLUE_LEVEL, MODEL, OPTIONS
from hlo.process.once import once

# Linux's list of the processor's family, model and every feature, as module loading reads it.
FEATURES = "/sys/devices/system/cpu/modalias"
# Tile registers among them: X86_FEATURE_AMX_TILE, 18 * 32 + 24, or LLVM's word.
TILES = (",0258,", "+amx-tile")


@once
def identity() -> str:
    """What object code depends on besides its IR: LLVM, the processor, options."""
    options = (str(CODEGEN_LEVEL), str(GLUE_LEVEL), *OPTIONS, *MODEL.values())
    processor = _processor()
    facts = llvmlite.__version__, _library(), sys.platform, processor, _refused(processor)
    return "\n".join((*facts, *options))


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
            # The kernel's release decides which features are listed.
            return f"{os.uname().release} {text}"
    except (OSError, ValueError):
        pass
    from hlo.backend.linking import llvm, toolchain

    return f"{llvm.process_triple()} {toolchain.feature_text()}"


def _refused(processor: str) -> str:
    """What of the processor the system does not let this process use: code that was made in another
    process for tiles would end this one.
    """
    if not any(word in processor for word in TILES):
        return ""
    from hlo.process.tile_permission import may_use_tiles  # few processors have tiles

    return "" if may_use_tiles() else "tiles"
