"""stats: what a module consists of, counted."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from hlo.ir.module import Module
from hlo.ir.shape import shape_text

Counts = tuple[tuple[str, int], ...]  # the most frequent first


class Stats(Struct, frozen=True):
    """Instructions by opcode, by element type and by shape of their results; bytes of parameters,
    of constants and of the result.
    """

    name: str
    computations: int
    instructions: int
    opcodes: Counts
    types: Counts
    shapes: Counts
    parameter_bytes: int
    constant_bytes: int
    result_bytes: int


def stats(module: Module) -> Stats:
    """Counts over all computations; a tuple's parts count for themselves. O(instructions).

    >>> hlo.stats(hlo.read("examples/axpy.hlo")).opcodes[0]
    ('parameter', 3)
    """
    opcodes: Counter[str] = Counter()
    types: Counter[str] = Counter()
    shapes: Counter[str] = Counter()
    constant_bytes = 0
    for computation in module.computations:
        for instruction in computation.instructions:
            opcodes[instruction.opcode] += 1
            for leaf in instruction.shape.leaves():
                types[leaf.dtype.name] += 1
                shapes[shape_text(leaf, layout=False)] += 1
            if instruction.opcode == "constant":
                constant_bytes += instruction.shape.size_bytes
    return Stats(
        module.name,
        len(module.computations),
        sum(opcodes.values()),
        _ranked(opcodes),
        _ranked(types),
        _ranked(shapes),
        sum(p.shape.size_bytes for p in module.entry.parameters),
        constant_bytes,
        module.entry.root.shape.size_bytes,
    )


def _ranked(counts: Counter[str]) -> Counts:
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
