"""Computed factors: products of what arithmetic makes of arrays, each element where it is read.

    ComputedReader: a position in the factor --read--> its elements, by the emitters of loop kernels
    materialised: the factor as an array, by a loop kernel of its own

An element is what a kernel of its own would have stored, bit for bit: rounded to the factor's type
after each op, as its ops say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from hlo.analysis.fusibility import is_elementwise
from hlo.backend.emitters import random, reduction, values, windows  # noqa: F401  # as in staged
from hlo.backend.emitters.elemental import TAKEN, Elemental
from hlo.backend.emitters.structural import elemental_of
from hlo.backend.ir.kernel import KernelCall
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.problem.addressing import Followed, Place, Position
from hlo.backend.kernels.contraction.problem.axes import Computed
from hlo.backend.kernels.contraction.problem.ring import Ring, as_numbers
from hlo.backend.kernels.fused_loops import fused_kernel
from hlo.backend.lanes import types
from hlo.backend.lanes.access import Memory
from hlo.backend.lanes.nest import Level, Nest
from hlo.backend.lanes.types import storage_scalar
from hlo.indexing import affine
from hlo.indexing.affine import Atom, Expr, Variable
from hlo.ir.computation import Computation
from hlo.ir.dtype import DType
from hlo.ir.graph import clone_instruction, computed_from
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.ops.table import Trait, has_trait


class ComputedReader:
    """A computed factor in the kernel being written. bases: where its arrays lie."""

    def __init__(self, w: Writer, computed: Computed, bases: Sequence[Value]) -> None:
        self.w = w
        self.prologue = computed
        self.bases = tuple(bases)
        self._counters: dict[tuple[str, int], Variable] = {}
        self._lanes: dict[tuple[str, int, int, Value | None], Variable] = {}
        self._defined: dict[str, Expr] = {}
        self._outer: list[Level] = []
        self._elemental: Elemental | None = None

    def index(self, value: Value, size: int) -> Expr:
        """A counter below `size` as an index; the same for the same value."""
        if value.integer is not None:
            return affine.number(value.integer)
        if value.text in self._defined:
            return self._defined[value.text]
        key = value.text, size
        if key not in self._counters:
            depth = len(self._outer)
            self._counters[key] = Variable(value.text, 0, size - 1, depth, value=value)
        return affine.of(self._counters[key])

    def lanes_from(self, first: Value, last: int, lanes: int, mask: Value | None = None) -> Expr:
        """An index and those that follow it, up to the last, one a lane; the same until code begins
        again.
        """
        key = first.text, last, lanes, mask
        if key not in self._lanes:
            self._lanes[key] = Variable("lane", 0, last, len(self._outer), lanes, first, mask)
        return Expr({self._lanes[key]: 1}, 0)

    def define(self, value: Value, index: Expr) -> None:
        """What a counter is of others."""
        if value.integer is None:
            self._defined[value.text] = index

    @contextmanager
    def outside(self) -> Iterator[None]:
        """What is written inside are loops: what does not depend on their counters comes before."""
        w, known, before = self.w, dict(self._counters), len(self.w.records)
        level = Level(len(self._outer), [], w.scope())
        self._outer.append(level)
        yield
        self._outer.pop()
        self._counters = known
        w.restore(w.scope(), [outer.known for outer in self._outer])
        w.records[before:before] = level.records

    def handed(self, place: Position, inner: Writer) -> tuple[Place, list[tuple[Value, Value]]]:
        """The position in a function that is being written: its parameters are the arrays and the
        counters that the position rests on.
        """
        bases = [Value(f"%array{n}", base.type) for n, base in enumerate(self.bases)]
        reader = ComputedReader(inner, self.prologue, bases)
        counters = sorted(affine.loop_variables([place.at]), key=lambda v: v.name)
        given = list(zip(bases, self.bases, strict=True))
        known: dict[Atom, Expr] = {}
        for n, counter in enumerate(counters):
            assert isinstance(counter.value, Value), "a counter has a value"
            parameter = Value(f"%counter{n}", counter.value.type)
            known[counter] = reader.index(parameter, counter.high + 1)
            given.append((parameter, counter.value))
        return Position(reader, place.at.substituted(known)), given

    def begin(self, ring: Ring) -> None:
        """What is known before holds no more: code without branches begins here."""
        self._lanes = {}
        nest = Nest(self.w, ring.target, self._outer)
        self._elemental = elemental_of(nest, ring.lanes)
        for array, base in zip(self.prologue.arrays, self.bases, strict=True):
            shape = array.shape
            self._elemental.enter((array, ()), Memory(base, shape.dtype, shape.size))

    def read(self, ring: Ring, position: Expr, lanes: int) -> Value:
        """The elements at a position, as the ring's numbers."""
        value = self._lanes_at(position, lanes)
        return as_numbers(self.w, ring, self.prologue.root.shape.dtype, value)

    def codes(self, ring: Ring, position: Expr, lanes: int) -> Value:
        """The same as memory would hold them."""
        value = self._lanes_at(position, lanes)
        return types.encoded(self.w, ring.target, value, self.prologue.root.shape.dtype)

    def followed(self, position: Expr, counter: Value) -> Followed | None:
        """What elements from a position on are computed of, one by one."""
        source: Instruction | None = self.prologue.root
        while source is not None and is_elementwise(source):
            source = _own_source(source)
        if source is None or self._elemental is None:
            return None
        index = affine.delinearized(position, source.shape.dims)
        place = self._elemental.place_in_memory(source, index, TAKEN)
        if place is None or place[0].dtype.bits % 8:
            return None
        memory, at = place
        steps = [k for a, k in at.terms.items() if _counts(a, counter)]
        others = [a for a in at.terms if not isinstance(a, Variable)]
        moving = affine.loop_variables([Expr({a: 1}, 0) for a in others])
        if len(steps) != 1 or any(_counts(v, counter) for v in moving):
            return None
        address = self._elemental.nest.pointer(memory.base, at, storage_scalar(memory.dtype))
        return Followed(address, steps[0] * memory.dtype.item_bytes, memory.dtype.item_bytes)

    def _lanes_at(self, position: Expr, lanes: int) -> Value:
        """The elements, as loop kernels compute with them."""
        assert self._elemental is not None, "code has begun"
        root = self.prologue.root
        index = affine.delinearized(position, root.shape.dims)
        (found,) = self._elemental.lanes_at(root, [index])
        (value,) = types.parts(self._elemental.splat(found, lanes))
        return value


def _counts(atom: Atom, counter: Value) -> bool:
    """Whether it is the index of a loop's counter."""
    value = atom.value if isinstance(atom, Variable) else None
    return isinstance(value, Value) and value.text == counter.text


def _own_source(member: Instruction) -> Instruction | None:
    """The operand of an elementwise op that differs from element to element; None: several do."""
    own = [o for o in member.operands if not has_trait(o, Trait.REPEATS) and o.opcode != "constant"]
    return own[0] if len(own) == 1 else None


def in_order(shape: Shape, order: Sequence[int], buffer: int) -> Computed:
    """An array in a buffer with its dimensions in another order, row-major."""
    body = Computation("in_order")
    array = body.new("parameter", shape, (), {"parameter_number": 0}, name="array")
    turned = Shape.array(shape.dtype, tuple(shape.dims[d] for d in order))
    root = body.new("transpose", turned, (array,), {"dimensions": tuple(order)})
    return Computed(root, (array,), (buffer,))


def converted(shape: Shape, dtype: DType, buffer: int) -> Computed:
    """An array in a buffer with its elements as another type."""
    body = Computation("converted")
    array = body.new("parameter", shape, (), {"parameter_number": 0}, name="array")
    root = body.new("convert", Shape.array(dtype, shape.dims), (array,))
    return Computed(root, (array,), (buffer,))


def materialised(computed: Computed, target: Target, place: int) -> KernelCall:
    """The kernel that stores the factor, called with the sequence's buffer for it."""
    body = Computation("fused_computation")
    twins: dict[Instruction, Instruction] = {}
    for number, array in enumerate(computed.arrays):
        parameter = {"parameter_number": number}
        twins[array] = body.new("parameter", array.shape, (), parameter, name=array.name)
    for member in computed_from(computed.root):
        if member not in twins:
            operands = tuple(twins[o] for o in member.operands)
            twins[member] = body.add(clone_instruction(member, operands))
    body.root = twins[computed.root]
    attributes = {"kind": "kLoop", "calls": body}
    shape = computed.root.shape
    fusion = Instruction(computed.root.name, "fusion", shape, computed.arrays, attributes)
    return KernelCall(fused_kernel(fusion, target), (*computed.buffers, place))
