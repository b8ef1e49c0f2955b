"""Arm features: what LLVM does not ask the system for on 64-bit Arm, in LLVM's names.

LLVM 22 tells of neon, fp-armv8, crc, lse, sve and cryptography on Linux (llvm/lib/TargetParser/
Host.cpp, getHostCPUFeatures) and of nothing on macOS: by these alone no processor would be more
than the least. Sources: Linux, Documentation/arch/arm64/elf_hwcaps.rst (the names are those of
/proc/cpuinfo); Apple, "Determining instruction set characteristics".
"""

from __future__ import annotations

import ctypes
import re
import sys

# Floats and vectors are there wherever 64-bit Linux, macOS or Windows runs (their procedure call
# standard passes arguments in them).
ALWAYS = frozenset({"fp-armv8", "neon"})
_LINUX = {
    "bf16": {"bf16"},
    "dotprod": {"asimddp"},
    "fullfp16": {"fphp", "asimdhp"},
    "i8mm": {"i8mm"},
    "rdm": {"asimdrdm"},
}
_MACOS = {
    "bf16": "BF16",
    "dotprod": "DotProd",
    "fullfp16": "FP16",
    "i8mm": "I8MM",
    "lse": "LSE",
    "rdm": "RDM",
}


def arm_features() -> frozenset[str]:
    """Those of this processor, a 64-bit Arm."""
    if sys.platform == "darwin":
        return ALWAYS | {name for name, known in _MACOS.items() if _is_there(known)}
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            return ALWAYS | listed(file.read())
    except OSError:
        return ALWAYS


def listed(text: str) -> frozenset[str]:
    """Those of every processor that /proc/cpuinfo lists."""
    rows = re.findall(r"^Features\s*:(.*)$", text, re.MULTILINE)
    common = set.intersection(*(set(row.split()) for row in rows)) if rows else set()
    return frozenset(name for name, words in _LINUX.items() if words <= common)


def _is_there(feature: str) -> bool:
    """What macOS says of a feature in Arm's names; False where it knows none."""
    value, size = ctypes.c_int(0), ctypes.c_size_t(ctypes.sizeof(ctypes.c_int))
    name = f"hw.optional.arm.FEAT_{feature}".encode()
    ask = ctypes.CDLL(None).sysctlbyname
    found = ask(name, ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0))
    return found == 0 and value.value == 1
