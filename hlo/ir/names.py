"""Names of instructions and computations: which are legal, and how a module's are made unique.

Source: XLA's name_uniquer.cc, as measured in docs/text.md 8.6.
"""

from __future__ import annotations

import re

from hlo.ir.computation import Computation
from hlo.ir.dtype import DTYPES
from hlo.ir.graph import is_topological, post_order
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module

_ILLEGAL = r"[^A-Za-z0-9_.\-]"  # a text: few names have any
_NUMBERED = re.compile(r"(.+)\.(-?[0-9]+)", re.DOTALL)
_LEGAL = re.compile(r"(?!__(?!xla_))[A-Za-z_][A-Za-z0-9_.\-]*")


def sanitised(name: str) -> str:
    """The legal name nearest to a text; a legal name is its own."""
    if _LEGAL.fullmatch(name) and name not in DTYPES:
        return name
    clean = re.sub(_ILLEGAL, "_", name)
    if clean and not (clean[0].isalpha() or clean[0] == "_"):
        clean = "_" + clean[1:]
    if clean in DTYPES:
        clean += "_"
    if clean.startswith("__") and not clean.startswith("__xla_"):
        clean = "a" + clean[1:]
    return clean


class NameTable:
    """The names given so far in one space; `unique` gives a further one."""

    __slots__ = ("_next", "_used")

    def __init__(self) -> None:
        self._used: dict[str, set[int]] = {}
        self._next: dict[str, int] = {}

    def unique(self, name: str) -> str:
        """The name itself where it is free, else its root with the first free number."""
        name = sanitised(name) or "name"
        root, number = _split(name)
        has_suffix = root is not name
        used = self._used.get(root)
        if used is None:
            self._used[root] = {number}
        elif number not in used:
            used.add(number)
        else:
            number = self._free(root, used)
        return f"{root}.{number}" if number or has_suffix else root

    def _free(self, root: str, used: set[int]) -> int:
        number = self._next.get(root, 0)
        while number in used:
            number += 1
        self._next[root] = number + 1
        used.add(number)
        return number


def _split(name: str) -> tuple[str, int]:
    """Root and number of `root.number`; the name and 0 where it does not end so."""
    match = _NUMBERED.fullmatch(name)
    if match is None:
        return name, 0
    number = int(match[2]) if len(match[2]) < 40 else 1 << 63
    return (match[1], number) if -(1 << 63) <= number < 1 << 63 else (name, 0)


def fresh_names(module: Module) -> tuple[dict[Instruction, str], dict[Computation, str]]:
    """Unique names for all instructions, and for all computations; given in module order.

    Where edits left a computation in no topological order, in that of its copies: a module and its
    copy have the same text.
    """
    instructions, computations = NameTable(), NameTable()
    named: dict[Instruction, str] = {}
    called: dict[Computation, str] = {}
    for computation in module.computations:
        called[computation] = computations.unique(computation.name)
        order = computation.instructions
        for instruction in order if is_topological(order) else post_order(computation):
            named[instruction] = instructions.unique(instruction.name)
    return named, called


def unique_names(module: Module) -> None:
    """Rename what shares its name with something earlier, or has a name that is not legal."""
    named, called = fresh_names(module)
    for instruction, name in named.items():
        instruction.name = name
    for computation, name in called.items():
        computation.name = name


def has_unique_names(module: Module) -> bool:
    """Whether `unique_names` surely has nothing to do.

    A name with an odd number needs the long way: `a.01` is `a.1`, and `a.0` may follow an `a`.
    """
    named = [i.name for c in module.computations for i in c.instructions]
    called = [c.name for c in module.computations]
    legal = _LEGAL.fullmatch
    return (
        len(set(named)) == len(named)
        and len(set(called)) == len(called)
        and all(map(legal, called))
        and all(map(legal, named))
        and not any(n in DTYPES for n in called)
        and DTYPES.keys().isdisjoint(named)
        and not any(".0" in name or ".-" in name for name in (*called, *named))
    )
