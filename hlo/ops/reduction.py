"""Ops that fold elements with a computation, or apply one to each: reduce, map, scan.

Source: shared/OP_SEMANTICS.md section 9.
"""

from __future__ import annotations

from hlo.attributes.ints import INTS
from hlo.attributes.names import COMPUTATION
from hlo.attributes.scalars import BOOL, INT64
from hlo.ops.table import Attr, Op, Trait


class Reduce(Op):
    """acc = init; for the reduced elements x in row-major order: acc = f(acc, x).

    n arrays, then n initial values; the result is a tuple if f returns one.
    C1: an even number of operands, at least 2. C2: all arrays have equal dimensions.
    C3: dimensions are distinct dimensions of them. The reducer, for n inputs:
    R1: f has 2n parameters. R2: f returns n scalars. R3: result k has parameter k's shape.
    R4: result k agrees with init k and with parameter n + k. R5: parameter n + k has the element
    type of input k. R6: without mixed precision these types are equal. R7: inits are scalars.
    Narrow floats are accumulated in f32 and rounded once.
    Source: XLA OP_SEMANTICS "Reduce".
    """

    opcode = "reduce"
    attrs = {"dimensions": Attr(INTS), "to_apply": Attr(COMPUTATION)}


class Map(Op):
    """result[i] = f(operand_0[i], operand_1[i], ...).

    C1: at least one operand; all of equal dimensions. C2: dimensions, if given, are 0..rank-1.
    C3: f has one scalar parameter per operand, of its element type, and returns a scalar.
    Source: XLA OP_SEMANTICS "Map".
    """

    opcode = "map"
    attrs = {"dimensions": Attr(INTS, None, "given"), "to_apply": Attr(COMPUTATION)}


class Scan(Op):
    """carry = inits; for t along dimensions[0]: (y, carry) = f(inputs[t], carry); outputs[t] = y.

    m inputs, then num_carries initial carries; the result is outputs, then final carries, bare when
    there is one. is_reverse runs t downwards. is_associative is a hint.
    C1: one dimension; as many operands as f has parameters. C2: at least num_carries operands and
    results; inputs and outputs are not both empty. C3: inputs have equal sizes along the dimension;
    f's parameters are the inputs without it, then the carries' shapes, which f returns unchanged.
    """

    opcode = "scan"
    attrs = {
        "dimensions": Attr(INTS),
        "num_carries": Attr(INT64),
        "is_reverse": Attr(BOOL, False),
        "is_associative": Attr(BOOL, False, "always"),
        "to_apply": Attr(COMPUTATION),
    }
