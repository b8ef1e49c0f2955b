"""The emitters of structural ops: by opcode, what makes lanes at indices.

Ops that only move elements need none: their index maps say it all (hlo/indexing/maps.py). Those
that act element by element stand in emitters/table.py. Each file is imported for the first of its
ops.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo.backend.emitters.elemental import Elemental, Emitter
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.types import Lanes
from hlo.backend.loops.expression import Expression, Path
from hlo.indexing.affine import Index
from hlo.ir.instruction import Instruction


def _value(e: Elemental, instruction: Instruction, at: Sequence[Index], path: Path) -> list[Lanes]:
    from hlo.backend.emitters.values import VALUES

    return VALUES[instruction.opcode](e, instruction, at, path)


def _reduce(e: Elemental, instruction: Instruction, at: Sequence[Index], path: Path) -> list[Lanes]:
    from hlo.backend.emitters.reduction import reduce

    return reduce(e, instruction, at, path)


def _gather(e: Elemental, instruction: Instruction, at: Sequence[Index], _: Path) -> list[Lanes]:
    from hlo.backend.emitters.affine_gathers import looked_up
    from hlo.backend.emitters.neighbour_lookups import looked_up as beside_others

    found = [
        looked_up(e, instruction, index) or beside_others(e, instruction, index) for index in at
    ]
    left = [index for index, lanes in zip(at, found, strict=True) if lanes is None]
    rest = iter(e.moved(instruction, left) if left else ())
    return [next(rest) if lanes is None else lanes for lanes in found]


def _window(e: Elemental, instruction: Instruction, at: Sequence[Index], path: Path) -> list[Lanes]:
    from hlo.backend.emitters.windows import reduce_window

    return reduce_window(e, instruction, at, path)


def _random(e: Elemental, instruction: Instruction, at: Sequence[Index], path: Path) -> list[Lanes]:
    from hlo.backend.emitters.random import rng_bit_generator

    return rng_bit_generator(e, instruction, at, path)


def _while(e: Elemental, instruction: Instruction, at: Sequence[Index], path: Path) -> list[Lanes]:
    from hlo.backend.emitters.lane_loop import while_

    return while_(e, instruction, at, path)


STRUCTURAL: dict[str, Emitter] = {
    "bitcast-convert": _value,
    "constant": _value,
    "gather": _gather,
    "iota": _value,
    "map": _value,
    "reduce": _reduce,
    "reduce-window": _window,
    "rng-bit-generator": _random,
    "while": _while,
}


def elemental_of(nest: Nest, lanes: int, expression: Expression | None = None) -> Elemental:
    """The evaluation of an expression, or of what a kernel enters by itself."""
    return Elemental(nest, lanes, STRUCTURAL, expression)
