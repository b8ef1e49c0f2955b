"""The emitters of structural ops: by opcode, what makes lanes at indices.

Ops that only move elements need none: their index maps say it all (hlo/indexing/maps.py). Those
that act element by element stand in emitters/table.py.
"""

from __future__ import annotations

from hlo.backend.emitters.elemental import Elemental, Emitter
from hlo.backend.emitters.lane_loop import while_
from hlo.backend.emitters.random import rng_bit_generator
from hlo.backend.emitters.reduction import reduce
from hlo.backend.emitters.values import bitcast_convert, constant, iota, map_
from hlo.backend.emitters.windows import reduce_window
from hlo.backend.lanes.nest import Nest
from hlo.backend.loops.expression import Expression

STRUCTURAL: dict[str, Emitter] = {
    "bitcast-convert": bitcast_convert,
    "constant": constant,
    "iota": iota,
    "map": map_,
    "reduce": reduce,
    "reduce-window": reduce_window,
    "rng-bit-generator": rng_bit_generator,
    "while": while_,
}


def elemental_of(nest: Nest, lanes: int, expression: Expression | None = None) -> Elemental:
    """The evaluation of an expression, or of what a kernel enters by itself."""
    return Elemental(nest, lanes, STRUCTURAL, expression)
