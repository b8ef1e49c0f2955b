"""Loops that passes write, and those whose state they change.

Computations, parameters, counters, rows of arrays.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hlo.analysis.while_loops.loop_state import is_extensible
from hlo.ir import dtype as dt
from hlo.ir.computation import Computation
from hlo.ir.graph import callees_first, callers
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.making import make, make_constant
from hlo.passes.liveness import awaited

INDEX = Shape.array(dt.S32, ())


def extensible_loops(module: Module) -> Iterator[Instruction]:
    """Loops whose state a pass may change, inner ones first; each may be replaced meanwhile."""
    calls = callers(module)
    for computation in callees_first(module):
        kept = awaited(computation)
        for loop in tuple(computation.instructions):
            if loop.opcode == "while" and loop not in kept and is_extensible(loop, calls):
                yield loop


def home(instruction: Instruction) -> Computation:
    """The computation that an instruction stands in."""
    assert instruction.computation is not None, f"{instruction.name} stands in a computation"
    return instruction.computation


def number(like: Instruction, value: int) -> Instruction:
    """An index as a constant."""
    return make_constant(like, Literal.of(np.array(value, np.int32), INDEX))


def blank(like: Instruction, shape: Shape) -> Instruction:
    """An array of zeros."""
    zero = Literal.of(np.zeros((), shape.dtype.numpy), Shape.array(shape.dtype, ()))
    return make(like, "broadcast", make_constant(like, zero), shape=shape, dimensions=())


def element(whole: Instruction, index: int) -> Instruction:
    """An element of a tuple."""
    return make(whole, "get-tuple-element", whole, index=index)


def new_computation(like: Instruction, name: str) -> Computation:
    """An empty computation on the thread of `like`'s."""
    assert like.computation is not None, "an instruction in a computation"
    return Computation(name, execution_thread=like.computation.execution_thread)


def parameter(made: Computation, number: int, shape: Shape) -> Instruction:
    """A parameter of a computation under construction."""
    return made.new("parameter", shape, (), {"parameter_number": number}, name=f"p{number}")


def adopted(module: Module, like: Instruction, made: Computation) -> Computation:
    """The computation in the module, before the one that calls it."""
    caller = like.computation
    assert caller is not None, "an instruction in a computation"
    module.adopt(made, before=caller)
    return made


def reducer(module: Module, like: Instruction, opcode: str, scalar: Shape) -> Computation:
    """A computation of one op on two scalars."""
    made = new_computation(like, f"{like.opcode}_{opcode}")
    parameters = [parameter(made, n, scalar) for n in range(2)]
    made.root = made.new(opcode, scalar, parameters)
    return adopted(module, like, made)


def part(
    x: Instruction, along: int, first: Instruction, size: int, *, like: Instruction | None = None
) -> Instruction:
    """`size` neighbours of a dimension."""
    like = like or x
    zero = number(like, 0)
    starts = [first if d == along else zero for d in range(x.shape.rank)]
    sizes = tuple(size if d == along else n for d, n in enumerate(x.shape.dims))
    return make(like, "dynamic-slice", x, *starts, dynamic_slice_sizes=sizes)


def row(x: Instruction, along: int, at: Instruction) -> Instruction:
    """One row of x, without the dimension that it is taken from."""
    one = part(x, along, at, 1, like=at)
    dims = [n for d, n in enumerate(x.shape.dims) if d != along]
    return make(at, "reshape", one, shape=x.shape.with_dims(dims))
