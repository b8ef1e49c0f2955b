"""while-loop-interchange: a while over arrays whose elements go through it alone is one kernel.

    while(x), body: f element by element   =>   fusion(x), calls={ while(x) }

The kernel takes a few elements through the whole loop, then the next ones, so that the loop over
elements is outside and the state is in registers. As a loop of kernels it passes through memory
with every trip. Slices whose rows trips of a loop that writes rows read (`xs[1:]` of a scan) come
along: the slice is no copy then, its rows are found by its index map.
"""

from __future__ import annotations

from math import prod

from hlo.analysis.fusibility import is_scalar_constant
from hlo.analysis.while_loops.lane_loops import LaneLoop, lane_loop, row_loop
from hlo.analysis.while_loops.loop_state import element_index, is_extensible
from hlo.ir.computation import Computation
from hlo.ir.graph import callers, clone_instruction
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.making import make
from hlo.passes.liveness import awaited, fused_computations

LEAST_ELEMENTS = 16  # Loops of smaller arrays are short steps, which LLVM sees as a whole.


def while_loop_interchange(module: Module) -> bool:
    """Let loops that each element goes through by itself be kernels of their own. O(edges)."""
    changed = False
    calls, fused = callers(module), fused_computations(module)
    for computation in tuple(module.computations):
        kept = awaited(computation)
        for loop in tuple(computation.instructions):
            if loop.opcode != "while" or loop in kept or computation in fused:
                continue
            found = _lanes_of(loop) if is_extensible(loop, calls) else None
            if found is not None:
                _wrap(module, computation, loop, found)
                changed = True
    return changed


def _lanes_of(loop: Instruction) -> LaneLoop | None:
    """What is known of the loop if elements go through it alone, and nobody asks for a scalar of
    its end."""
    found = lane_loop(loop) or row_loop(loop)
    if found is None or loop.is_root or loop.operands[0].opcode != "tuple" or not loop.users:
        return None
    read = found.changed | found.written.keys()
    is_read = all(
        user.opcode == "get-tuple-element" and element_index(user) in read for user in loop.users
    )
    is_long = prod(found.dims) >= LEAST_ELEMENTS
    return found if is_read and is_long and all(u.shape.dims for u in loop.users) else None


def _wrap(module: Module, computation: Computation, loop: Instruction, found: LaneLoop) -> None:
    """A fusion of the loop, with the constants that it begins with, in the loop's place. What lies
    where all rows are written is nowhere seen: zeros.
    """
    made = Computation("fused_computation", execution_thread=computation.execution_thread)
    twins: dict[Instruction, Instruction] = {}
    slices: dict[Instruction, Instruction] = {}
    (start,) = loop.operands
    begins = {
        k: _read(made, o, twins, slices)
        if found.written and k in found.tables and o.opcode == "slice"
        else _taken(made, o, twins)
        for k, o in enumerate(start.operands)
        if k not in found.written
    }
    begins |= {k: _zeros(made, start.operands[k].shape) for k in sorted(found.written)}
    state = made.new("tuple", start.shape, [begins[k] for k in range(len(begins))])
    operands = [o for o, twin in twins.items() if twin.opcode == "parameter"]
    inner = made.add(clone_instruction(loop, (state,)))
    read = sorted({element_index(user) for user in loop.users})
    results = [make(inner, "get-tuple-element", inner, index=k) for k in read]
    made.root = results[0]
    if len(results) > 1:
        made.root = made.new("tuple", Shape.tuple(r.shape for r in results), results)
    module.adopt(made, before=computation)
    attributes = {"kind": "kLoop", "calls": made}
    fusion = computation.new(
        "fusion", made.root.shape, operands, attributes, like=loop, name="while_fusion"
    )
    for user in tuple(loop.users):
        place = read.index(element_index(user))
        result = make(user, "get-tuple-element", fusion, index=place) if len(read) > 1 else fusion
        computation.replace_uses(user, result)
        computation.remove(user)
    computation.remove(loop)


def _zeros(made: Computation, shape: Shape) -> Instruction:
    """An array of zeros, of the zero that is there, if there is one."""
    zero = Literal.of(0, Shape.array(shape.dtype, ()))
    for known in made.instructions:
        is_alike = known.opcode == "broadcast" and known.shape == shape
        if is_alike and _is_number(known.operands[0], zero):
            return known
    scalar = next((i for i in made.instructions if _is_number(i, zero)), None)
    if scalar is None:
        scalar = made.new("constant", zero.shape, (), {"literal": zero}, name="constant")
    return made.new("broadcast", shape, (scalar,), {"dimensions": ()})


def _is_number(value: Instruction, number: Literal) -> bool:
    """Whether a value is a constant of these bits."""
    literal = value.get("literal")
    return (
        isinstance(literal, Literal)
        and literal.shape == number.shape
        and (not literal.is_elided and literal.same_bits(number))
    )


def _read(
    made: Computation,
    slice: Instruction,
    twins: dict[Instruction, Instruction],
    slices: dict[Instruction, Instruction],
) -> Instruction:
    """A slice of which trips read rows, inside; apart from the array that others begin with."""
    if slice not in slices:
        whole = _taken(made, slice.operands[0], twins)
        slices[slice] = made.add(clone_instruction(slice, (whole,)))
    return slices[slice]


def _taken(
    made: Computation, start: Instruction, twins: dict[Instruction, Instruction]
) -> Instruction:
    """What an element begins with, inside: a constant, or a parameter for what is outside.

    twins: what is inside already, by what it is outside.
    """
    repeated = start.operands if start.opcode == "broadcast" else ()
    is_inside = all(map(is_scalar_constant, repeated or (start,)))
    for value in (*repeated, start) if is_inside else ():
        if value not in twins:
            twins[value] = made.add(
                clone_instruction(value, tuple(twins[o] for o in value.operands))
            )
    if start not in twins:
        given = {"parameter_number": len(made.parameters)}
        name = f"param_{len(made.parameters)}"
        twins[start] = made.new("parameter", start.shape, (), given, name=name)
    return twins[start]
