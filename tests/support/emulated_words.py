"""Instructions on words of x86 that this processor may lack, as functions in LLVM's language.

AVX-VNNI-INT8 and -INT16 by what their operations say in Intel's manual: the elements of a word are
extended by their kinds, multiplied, and added to the lane, modulo 2^32.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from hlo.backend.ir.kernel import Kernel, KernelSequence

_NAME = re.compile(r"llvm\.x86\.avx2\.vpdp([bw])([su])([su])d\.256")
_EXTENSIONS = {"s": "sext", "u": "zext"}


def emulated(sequence: KernelSequence) -> KernelSequence:
    """The sequence with calls of the functions for those of the instructions."""
    calls = tuple(replace(call, kernel=_emulated(call.kernel)) for call in sequence.calls)
    return replace(sequence, calls=calls)


def _emulated(kernel: Kernel) -> Kernel:
    names = {symbol: _own(symbol) for symbol in kernel.function.symbols}
    declared = [
        _definition(found) if (found := _NAME.search(line)) else line
        for line in kernel.declarations
    ]
    function = kernel.function.renamed(names)
    return replace(kernel, function=function, declarations=tuple(declared))


def _own(symbol: str) -> str:
    found = _NAME.fullmatch(symbol)
    return "emulated_" + "".join(found.groups()) if found else symbol


def _definition(found: re.Match[str]) -> str:
    size, *kinds = found.groups()
    group, bits = (4, 8) if size == "b" else (2, 16)
    count = 8 * group
    narrow, wide, lane = f"<{count} x i{bits}>", f"<{count} x i32>", "<8 x i32>"
    lines = [f"define internal {lane} @{_own(found[0])}({lane} %t0, {narrow} %a, {narrow} %b) {{"]
    for name, kind in zip("ab", kinds, strict=True):
        lines.append(f"%w{name} = {_EXTENSIONS[kind]} {narrow} %{name} to {wide}")
    lines.append(f"%p = mul {wide} %wa, %wb")
    for k in range(group):
        order = ", ".join(f"i32 {group * lane + k}" for lane in range(8))
        lines.append(f"%e{k} = shufflevector {wide} %p, {wide} poison, {lane} <{order}>")
        lines.append(f"%t{k + 1} = add {lane} %t{k}, %e{k}")
    return "\n".join([*lines, f"ret {lane} %t{group}", "}"])
