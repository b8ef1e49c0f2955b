"""Scope: one computation while its dynamic sizes become scalars.

    old instruction --step of its opcode--> padded value, sizes of it

A padded value is an array of the bounds; of a tuple, the values of its parts. What a program
assumes of its sizes is checked at run time: `checks` are scalars that are true if it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from hlo.indexing.queries import kept_dims
from hlo.ir import dtype as dt
from hlo.ir.computation import Computation
from hlo.ir.dtype import DType
from hlo.ir.graph import (
    clone_computation,
    control_predecessors,
    is_topological,
    post_order,
)
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.effects import has_effect
from hlo.ops.making import make, make_constant
from hlo.ops.table import OPS, attribute

SIZE = Shape.array(dt.S32, ())
FLAG = Shape.array(dt.PRED, ())
Sizes = dict[int, Instruction]  # dimension -> its size, for those that are less than the bound
Value = Instruction | tuple["Value", ...]
Made = tuple[Value, Sizes]
Step = Callable[["Scope", Instruction], Made]
Steps = Callable[[Instruction], Step | None]


class UnsupportedError(Exception):
    """The program is left to the reference."""


class Scope:
    """A computation whose dynamic sizes become scalars beside its arrays.

    values: of each touched instruction; sizes: of padded values; kept: what stays beside its
    value.
    """

    def __init__(self, module: Module, computation: Computation, steps: Steps) -> None:
        self.module = module
        self.computation = computation
        self.steps = steps
        self.values: dict[Instruction, Value] = {}
        self.sizes: dict[Instruction, Sizes] = {}
        self.checks: list[Instruction] = []
        self.kept: set[Instruction] = set()
        self.root = computation.root

    def inside(self, computation: Computation) -> Scope:
        """A scope of its own for a copy of a callee."""
        return Scope(self.module, self.module.adopt(clone_computation(computation)), self.steps)

    def walk(self) -> None:
        """Take one step for each instruction that dynamic sizes touch."""
        order = self.computation.instructions
        if not is_topological(order) or any("control-predecessors" in i.attributes for i in order):
            order = post_order(self.computation)
        for instruction in order:
            if instruction not in self.values and self._is_touched(instruction):
                self._take(instruction)

    def _is_touched(self, instruction: Instruction) -> bool:
        if instruction.shape.is_dynamic or any(o in self.values for o in instruction.operands):
            return True
        return any(c.fact(is_dynamic) for c in instruction.called_computations())

    def _take(self, instruction: Instruction) -> None:
        step = self.steps(instruction)
        is_awaiting = "control-predecessors" in instruction.attributes
        if step is None or (is_awaiting and has_effect(instruction)):
            raise UnsupportedError
        new, sizes = step(self, instruction)
        self.values[instruction] = new
        if not isinstance(new, Instruction):
            return
        if sizes:
            self.sizes[new] = sizes
        elif not instruction.shape.is_dynamic and instruction is not self.root:
            self.computation.replace_uses(instruction, new)

    def finish(self, root: Instruction) -> None:
        """Make `root` the root, and take out what has been replaced."""
        self.computation.root = root
        if self.root.opcode == "tuple" and self.root not in self.values and not self.root.users:
            self.computation.remove(self.root)
        gone = {i for i in self.values if self.values[i] is not i} - self.kept
        for instruction in reversed(list(self.values)):
            if instruction in gone:
                self.computation.remove(instruction)
        for instruction in self.computation.instructions:
            if not gone.isdisjoint(control_predecessors(instruction)):
                self._forget(instruction, gone)

    def _forget(self, instruction: Instruction, gone: set[Instruction]) -> None:
        """Nothing waits for values: what has effects is not padded."""
        rest = tuple(i for i in control_predecessors(instruction) if i not in gone)
        kept = {k: v for k, v in instruction.attributes.items() if k != "control-predecessors"}
        more = {"control-predecessors": rest} if rest else {}
        self.computation.set_attributes(instruction, {**kept, **more})

    # -- what steps ask for ----------------------------------------------------------------------

    def value(self, operand: Instruction) -> Instruction:
        """The padded array."""
        found = self.values.get(operand, operand)
        if not isinstance(found, Instruction) or found.shape.is_tuple:
            raise UnsupportedError
        return found

    def tree(self, operand: Instruction) -> Value:
        """The padded value, tuples as their parts."""
        found = self.values.get(operand)
        if found is not None:
            return found
        if not operand.shape.is_tuple:
            return operand
        if operand.opcode == "tuple":
            return tuple(self.tree(o) for o in operand.operands)
        return self.parts(operand)

    def parts(self, whole: Instruction) -> Value:
        """A tuple's leaves, taken out of it."""
        if not whole.shape.is_tuple:
            return whole
        count = len(whole.shape.elements)
        taken = (make(whole, "get-tuple-element", whole, index=k) for k in range(count))
        return tuple(map(self.parts, taken))

    def sized_parts(self, whole: Instruction, sizes: Sizes, count: int | None = None) -> Value:
        """The first `count` arrays of a tuple, of the same sizes."""
        elements = whole.shape.elements[:count]
        taken = [make(whole, "get-tuple-element", whole, index=k) for k in range(len(elements))]
        for part in taken:
            self.sizes[part] = sizes
        return tuple(taken)

    def sizes_of(self, operand: Instruction) -> Sizes:
        """The sizes of an operand, old or new."""
        return self.sizes.get(self.value(operand), {})

    def moved(self, old: Instruction, number: int, given: Sizes) -> Sizes:
        """The sizes of an operand's dimensions that the result has as a whole, as the result's."""
        kept = enumerate(kept_dims(old, number))
        found = {place: given[d] for d, place in kept if place is not None and d in given}
        return {place: found[place] for place in sorted(found)}

    def again(self, old: Instruction, **changed: object) -> Instruction:
        """The instruction on padded operands."""
        operands = tuple(self.value(o) for o in old.operands)
        return self.like(old, operands, static(old.shape), **changed)

    def like(
        self, old: Instruction, operands: Iterable[Instruction], shape: Shape, **changed: object
    ) -> Instruction:
        """The instruction on other operands."""
        kept = {k: v for k, v in old.attributes.items() if k in OPS[old.opcode].attrs}
        attributes: dict[str, Any] = {**kept, **changed}
        return self.computation.new(old.opcode, shape, tuple(operands), attributes, like=old)

    def agreed(self, a: Instruction, b: Instruction) -> None:
        """The program assumes that two sizes are one."""
        if a is not b:
            self.checks.append(make(b, "compare", a, b, direction="EQ"))

    def holds(self, flag: Instruction) -> Instruction:
        """The flag, and all checks."""
        for check in self.checks:
            flag = make(flag, "and", flag, check)
        return flag

    def number(self, like: Instruction, value: int) -> Instruction:
        return self.constant(like, np.array(value, np.int32), dt.S32)

    def constant(self, like: Instruction, value: Any, dtype: DType) -> Instruction:
        return make_constant(like, Literal.of(np.asarray(value), Shape.array(dtype, ())))

    def size(self, operand: Instruction, d: int) -> Instruction:
        """The size of a dimension, whole ones too."""
        found = self.sizes_of(operand).get(d)
        return self.number(operand, operand.shape.dims[d]) if found is None else found

    def inside_of(self, x: Instruction, along: int, size: Instruction) -> Instruction:
        """pred of x's sizes: whether an element lies before the size."""
        shape = Shape.array(dt.S32, x.shape.dims)
        indices = make(size, "iota", shape=shape, iota_dimension=along)
        limit = make(size, "broadcast", size, shape=shape, dimensions=())
        return make(size, "compare", indices, limit, direction="LT")

    def valid(self, x: Instruction, sizes: Mapping[int, Instruction]) -> Instruction:
        """pred of x's sizes: whether an element lies before all of some sizes."""
        inside = [self.inside_of(x, d, size) for d, size in sizes.items()]
        every = inside[0]
        for more in inside[1:]:
            every = make(every, "and", every, more)
        return every

    def masked(
        self, x: Instruction, along: int, size: Instruction, fill: Instruction
    ) -> Instruction:
        """x with `fill` from the size on."""
        spread = make(size, "broadcast", fill, shape=static(x.shape), dimensions=())
        return make(size, "select", self.inside_of(x, along, size), x, spread)

    def zeroed(self, x: Instruction, along: int, size: Instruction) -> Instruction:
        """x with zeros from the size on."""
        dtype = x.shape.dtype
        assert dtype.numpy is not None, "an array"
        return self.masked(x, along, size, self.constant(size, np.zeros((), dtype.numpy), dtype))

    def common(
        self, arrays: Iterable[Instruction], dims: Iterable[int], bounds: tuple[int, ...]
    ) -> Sizes:
        """The sizes that arrays share in some dimensions; a check where they may differ."""
        found: Sizes = {}
        sizes = [self.sizes_of(o) for o in arrays]
        for d in dims:
            sized = [given[d] for given in sizes if d in given]
            for other in sized[1:]:
                self.agreed(sized[0], other)
            if sized:
                found[d] = sized[0]
                if len(sized) < len(sizes):
                    self.agreed(self.number(sized[0], bounds[d]), sized[0])
        return found


def is_dynamic(computation: Computation) -> bool:
    """Whether anything in a computation, or in what it calls, has a dynamic size."""
    return any(
        i.shape.is_dynamic or any(c.fact(is_dynamic) for c in i.called_computations())
        for i in computation.instructions
    )


def flattened(value: Value) -> Iterator[Instruction]:
    """The leaves of a value."""
    if isinstance(value, Instruction):
        yield value
        return
    for part in value:
        yield from flattened(part)


def built(leaves: Iterator[Instruction], shape: Shape) -> Value:
    """The next leaves in the structure of a shape."""
    if not shape.is_tuple:
        return next(leaves)
    return tuple(built(leaves, e) for e in shape.elements)


def static(shape: Shape) -> Shape:
    """The shape of the bounds."""
    if shape.is_tuple:
        return Shape.tuple(tuple(map(static, shape.elements)))
    return Shape.array(shape.dtype, shape.dims) if shape.is_array else shape


def copied(x: Instruction) -> Instruction:
    """x as a value of its own: a size may be a parameter, and a root is none."""
    return make(x, "copy", x)


def ints(instruction: Instruction, name: str) -> tuple[int, ...]:
    """An attribute of dimensions."""
    found = attribute(instruction, name)
    assert isinstance(found, tuple), f"{name} is a tuple of ints"
    return found
