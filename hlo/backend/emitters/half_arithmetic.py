"""f16 arithmetic in f16 registers, where the machine has it.

The result in f32 rounded to f16 is the same number, since 24 bits are enough for that, and an op
and its rounding are five instructions there, one here. Lanes stay f32: their codes are noted
beside them, and an f32 that only another such op asks for is never made.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlo.backend.emitters.table import EMITTERS, ByKind
from hlo.backend.ir.writer import Value, vector_of
from hlo.backend.lanes import types
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.types import Lanes
from hlo.ir import dtype as dt


def emit(nest: Nest, opcode: str, operands: Sequence[Lanes]) -> Value:
    """The op on lanes that hold f16 numbers, rounded."""
    w, target = nest.w, nest.target
    lanes = max(types.width(o) for o in operands)
    a, b = (w.splat(_code(nest, o), lanes) for o in operands)
    half = vector_of("half", lanes)
    emitter = EMITTERS[opcode]
    assert isinstance(emitter, ByKind), "of its kind of number"
    result = w.binary(emitter.half, w.cast("bitcast", a, half), w.cast("bitcast", b, half))
    code = w.cast("bitcast", result, vector_of("i16", lanes))
    return types.decoded(w, target, code, dt.F16)


def _code(nest: Nest, lanes: Lanes) -> Value:
    """The codes of lanes; a scalar's where it is known, a constant's at once."""
    assert isinstance(lanes, Value), "f16 is not complex"
    w = nest.w
    if lanes.lanes > 1:
        return types.encoded(w, nest.target, lanes, dt.F16)
    if lanes.number is not None:
        return w.int(int(np.float64(lanes.number).astype(np.float16).view(np.int16)), "i16")
    with nest.at(nest.depth_of(lanes)):
        return types.encoded(w, nest.target, lanes, dt.F16)
