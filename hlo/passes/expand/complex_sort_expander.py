"""complex-sort-expander: complex numbers are sorted as their parts, two arrays of floats.

    sort(x, y), comparing real(x) and imag(x)
    =>  complex(r, i), y  where  r, i, y = sort(real(x), imag(x), y)

A comparator that reads nothing of a complex element but its parts compares floats, and sorts by
several keys of floats need no comparator (analysis/sort_orders.py): so are complex numbers ordered
in JAX, by their real parts, then by the imaginary ones.
"""

from __future__ import annotations

from hlo.ir.computation import Computation
from hlo.ir.graph import clone_instruction, post_order
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.making import make
from hlo.passes.liveness import replace, replaceable
from hlo.passes.loop_making import adopted, element, new_computation, parameter
from hlo.passes.patterns.matching import is_plain


def complex_sort_expander(module: Module) -> bool:
    """Sort complex numbers as two arrays of floats each. O(instructions)."""
    found = [sort for sort in replaceable(module, "sort") if any(_split(sort))]
    for sort in found:
        replace(sort, _by_parts(sort, module))
    return bool(found)


def _split(sort: Instruction) -> list[bool]:
    """Which operands are complex keys of which the comparator reads nothing but the parts."""
    parameters = _comparator(sort).parameters
    return [
        x.shape.dtype.is_complex
        and is_plain(x.shape)
        and all(map(_is_read_in_parts, parameters[2 * n : 2 * n + 2]))
        for n, x in enumerate(sort.operands)
    ]


def _is_read_in_parts(key: Instruction) -> bool:
    return bool(key.users) and all(u.opcode in ("real", "imag") for u in key.users)


def _comparator(sort: Instruction) -> Computation:
    found = sort["to_apply"]
    assert isinstance(found, Computation), "a sort has a comparator"
    return found


def _by_parts(sort: Instruction, module: Module) -> Instruction:
    split = _split(sort)
    arrays = [
        [make(sort, "real", x), make(sort, "imag", x)] if is_split else [x]
        for x, is_split in zip(sort.operands, split, strict=True)
    ]
    operands = [part for parts in arrays for part in parts]
    comparator = adopted(module, sort, _of_parts(sort, split))
    shape = Shape.tuple(tuple(x.shape for x in operands))
    attributes = {**sort.attributes, "to_apply": comparator}
    inner = make(sort, "sort", *operands, shape=shape, **attributes)
    numbers = iter(range(len(operands)))
    results = []
    for parts in arrays:
        made = [element(inner, next(numbers)) for _ in parts]
        results.append(make(sort, "complex", *made) if len(made) > 1 else made[0])
    return results[0] if sort.shape.is_array else make(sort, "tuple", *results)


def _of_parts(sort: Instruction, split: list[bool]) -> Computation:
    """The comparator, given the parts of what is split."""
    old = _comparator(sort)
    made = new_computation(sort, old.name)
    twins: dict[Instruction, Instruction] = {}
    number = 0
    for k, is_split in enumerate(split):
        pair = old.parameters[2 * k : 2 * k + 2]
        if not is_split:
            for key in pair:
                twins[key] = parameter(made, number, key.shape)
                number += 1
            continue
        scalar = next(iter(pair[0].users)).shape
        for is_real in (True, False):
            for key in pair:
                read = parameter(made, number, scalar)
                twins |= {u: read for u in key.users if (u.opcode == "real") == is_real}
                number += 1
    for instruction in post_order(old):
        if instruction not in twins and instruction.opcode != "parameter":
            operands = tuple(twins[o] for o in instruction.operands)
            twins[instruction] = made.add(clone_instruction(instruction, operands))
    made.root = twins[old.root]
    return made
