"""dynamic_padder: a program of bounded dynamic sizes as one of static shapes and size scalars.

    f32[<=8] value  =>  f32[8] whose elements beyond a size s32[] mean nothing, and that size

Ops along whole arrays mask what means nothing: sums with zeros, contractions too. A parameter's
sizes are parameters of their own, after the others; the result is a tuple of the result's leaves,
their sizes, and whether all sizes were as the program assumes. Where they were not, and for ops
that are not listed here, the reference is asked. No pass of a pipeline, for the interface differs.
Source: OP_SEMANTICS_CONTROL section 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from hlo.attributes.padding import PaddingDim
from hlo.attributes.slices import SliceDim
from hlo.ir import dtype as dt
from hlo.ir.computation import Computation
from hlo.ir.dtype import DType
from hlo.ir.graph import clone_module, is_topological
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.shape import UNBOUNDED, Shape
from hlo.ops.extents import free_dimension, reshape_groups
from hlo.ops.making import make, make_constant
from hlo.ops.table import OPS, Trait, attribute
from hlo.records import dataclass

SIZE = Shape.array(dt.S32, ())
FLAG = Shape.array(dt.PRED, ())
Sizes = dict[int, Instruction]  # dimension -> its size, for those that are less than the bound
Places = tuple[tuple[int, int], ...]  # (number of a parameter or of a leaf, dimension)


@dataclass(frozen=True, slots=True)
class Padded:
    """The static program; given: sizes that it takes after its parameters; found: sizes that it
    gives after the leaves of the result, before the flag."""

    module: Module
    given: Places
    found: Places
    leaves: int


class _UnsupportedError(Exception):
    """The program is left to the reference."""


def padded(module: Module) -> Padded | None:
    """The program with static shapes; None where an op has no such form."""
    copy = clone_module(module)
    try:
        return _Padder(copy).padded()
    except _UnsupportedError:
        return None


class _Padder:
    """values: the padded value of each touched instruction; sizes: of padded values."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.entry = module.entry
        self.values: dict[Instruction, Instruction] = {}
        self.sizes: dict[Instruction, Sizes] = {}
        self.checks: list[Instruction] = []
        self.given: list[tuple[int, int]] = []

    def padded(self) -> Padded:
        order = self.entry.instructions
        others = (c for c in self.module.computations if c is not self.entry)
        if any(i.shape.is_dynamic for c in others for i in c.instructions):
            raise _UnsupportedError
        if not is_topological(order) or any("control-predecessors" in i.attributes for i in order):
            raise _UnsupportedError
        self.next_parameter = len(self.entry.parameters)
        for instruction in order:
            operands = instruction.operands
            if instruction.shape.is_dynamic or any(o in self.values for o in operands):
                self._pad(instruction, is_root=instruction is self.entry.root)
        found, leaves = self._rooted()
        for instruction in reversed(order):
            if instruction in self.values and self.values[instruction] is not instruction:
                self.entry.remove(instruction)
        self.module.attributes = {}
        return Padded(self.module, tuple(self.given), found, leaves)

    def _pad(self, instruction: Instruction, *, is_root: bool) -> None:
        opcode = instruction.opcode
        if opcode == "tuple" and is_root and not instruction.users:
            return
        if opcode == "custom-call":
            step = CALLS.get(str(instruction.get("custom_call_target")))
        else:
            step = STEPS.get(opcode) or (_elementwise if _is_elementwise(opcode) else None)
        if step is None or any(not o.shape.is_array for o in instruction.operands):
            raise _UnsupportedError
        new, sizes = step(self, instruction)
        self.values[instruction] = new
        if sizes:
            self.sizes[new] = sizes
        elif not instruction.shape.is_dynamic and not is_root:
            self.entry.replace_uses(instruction, new)

    def _rooted(self) -> tuple[Places, int]:
        """The new root; which sizes it gives."""
        root = self.entry.root
        parts = root.operands if root.opcode == "tuple" else (root,)
        leaves = [self.value(p) for p in parts]
        if any(not leaf.shape.is_array for leaf in leaves):
            raise _UnsupportedError
        found = [(n, d) for n, leaf in enumerate(leaves) for d in sorted(self.sizes.get(leaf, {}))]
        sizes = [self.sizes[leaves[n]][d] for n, d in found]
        flag = self._constant(root, np.bool_(True), dt.PRED)
        for check in self.checks:
            flag = make(root, "and", flag, check)
        self.entry.root = make(root, "tuple", *leaves, *sizes, flag)
        if root.opcode == "tuple" and not root.users:
            self.entry.remove(root)
        return tuple(found), len(leaves)

    # -- what steps ask for ----------------------------------------------------------------------

    def value(self, operand: Instruction) -> Instruction:
        return self.values.get(operand, operand)

    def sizes_of(self, operand: Instruction) -> Sizes:
        """The sizes of an operand, old or new."""
        return self.sizes.get(self.value(operand), {})

    def again(self, old: Instruction, **changed: object) -> Instruction:
        """The instruction on padded operands."""
        operands = tuple(self.value(o) for o in old.operands)
        kept = {k: v for k, v in old.attributes.items() if k in OPS[old.opcode].attrs}
        attributes: dict[str, Any] = {**kept, **changed}
        return self.entry.new(old.opcode, _static(old.shape), operands, attributes, like=old)

    def agreed(self, a: Instruction, b: Instruction) -> None:
        """The program assumes that two sizes are one."""
        if a is not b:
            self.checks.append(make(b, "compare", a, b, direction="EQ"))

    def number(self, like: Instruction, value: int) -> Instruction:
        return self._constant(like, np.array(value, np.int32), dt.S32)

    def _constant(self, like: Instruction, value: Any, dtype: DType) -> Instruction:
        return make_constant(like, Literal.of(np.asarray(value), Shape.array(dtype, ())))

    def masked(
        self, x: Instruction, along: int, size: Instruction, fill: Instruction
    ) -> Instruction:
        """x with `fill` from the size on."""
        shape = Shape.array(dt.S32, x.shape.dims)
        places = make(size, "iota", shape=shape, iota_dimension=along)
        limit = make(size, "broadcast", size, shape=shape, dimensions=())
        inside = make(size, "compare", places, limit, direction="LT")
        spread = make(size, "broadcast", fill, shape=_static(x.shape), dimensions=())
        return make(size, "select", inside, x, spread)

    def zeroed(self, x: Instruction, along: int, size: Instruction) -> Instruction:
        """x with zeros from the size on."""
        dtype = x.shape.dtype
        assert dtype.numpy is not None, "an array"
        return self.masked(x, along, size, self._constant(size, np.zeros((), dtype.numpy), dtype))

    def identity(self, reduce: Instruction) -> Instruction:
        """e with f(e, x) = x to the bit, f the reducer."""
        body, dtype = reduce["to_apply"], reduce.operands[0].shape.dtype
        assert isinstance(body, Computation), "to_apply is a computation"
        value = _identity(body, dtype)
        if value is None or dtype.numpy is None:
            raise _UnsupportedError
        return self._constant(reduce, np.asarray(value).astype(dtype.numpy), dtype)


Made = tuple[Instruction, Sizes]
Step = Callable[[_Padder, Instruction], Made]


def _static(shape: Shape) -> Shape:
    return Shape.array(shape.dtype, shape.dims)


def _is_elementwise(opcode: str) -> bool:
    return opcode in OPS and bool(OPS[opcode].traits & Trait.ELEMENTWISE)


def _identity(body: Computation, dtype: DType) -> object:
    root = body.root
    if set(root.operands) != set(body.parameters) or len(root.operands) != 2:
        return None
    if dtype.is_pred:
        return {"or": False, "and": True}.get(root.opcode)
    if dtype.is_integral:
        least, greatest = dtype.int_range
        return {"add": 0, "multiply": 1, "maximum": least, "minimum": greatest}.get(root.opcode)
    known = {"add": -0.0, "multiply": 1.0}
    if dtype.name in ("f16", "bf16", "f32", "f64"):
        known |= {"maximum": -np.inf, "minimum": np.inf}
    return known.get(root.opcode) if dtype.is_float else None


# -- steps: an old instruction to its padded value and the sizes of it ---------------------------


def _parameter(p: _Padder, old: Instruction) -> Made:
    shape, number = old.shape, old.attributes["parameter_number"]
    if not shape.is_array or UNBOUNDED in shape.dims:
        raise _UnsupportedError
    assert isinstance(number, int), "parameter_number is an int"
    new = p.entry.new("parameter", _static(shape), (), {"parameter_number": number}, like=old)
    sizes: Sizes = {}
    for d, is_dynamic in enumerate(shape.dynamic):
        if is_dynamic:
            place = {"parameter_number": p.next_parameter}
            sizes[d] = p.entry.new("parameter", SIZE, (), place, like=old, name="size")
            p.given.append((number, d))
            p.next_parameter += 1
    return new, sizes


def _elementwise(p: _Padder, old: Instruction) -> Made:
    """Scalars meet any sizes; arrays have the same ones."""
    arrays = [o for o in old.operands if o.shape.rank == old.shape.rank]
    sizes = _common(p, old, arrays, range(old.shape.rank))
    return p.again(old), sizes


def _common(
    p: _Padder, old: Instruction, arrays: list[Instruction], dims: range | list[int]
) -> Sizes:
    """The sizes that arrays share; a check where they may differ."""
    found: Sizes = {}
    for d in dims:
        sized = [p.sizes_of(o)[d] for o in arrays if d in p.sizes_of(o)]
        for other in sized[1:]:
            p.agreed(sized[0], other)
        if sized:
            found[d] = sized[0]
            if len(sized) < len(arrays):
                p.agreed(p.number(sized[0], old.shape.dims[d]), sized[0])
    return found


def _broadcast(p: _Padder, old: Instruction) -> Made:
    dims = _ints(old, "dimensions")
    sizes = {dims[d]: size for d, size in p.sizes_of(old.operands[0]).items()}
    if any(f and d not in sizes for d, f in enumerate(old.shape.dynamic)):
        raise _UnsupportedError
    return p.again(old), sizes


def _transpose(p: _Padder, old: Instruction) -> Made:
    given = p.sizes_of(old.operands[0])
    order = _ints(old, "dimensions")
    return p.again(old), {k: given[d] for k, d in enumerate(order) if d in given}


def _same(p: _Padder, old: Instruction) -> Made:
    return p.value(old.operands[0]), p.sizes_of(old.operands[0])


def _reverse(p: _Padder, old: Instruction) -> Made:
    """What is valid comes last then, and is moved to the front."""
    given, made = p.sizes_of(old.operands[0]), p.again(old)
    for d in _ints(old, "dimensions"):
        if d in given:
            bound = old.shape.dims[d]
            first = make(old, "subtract", p.number(old, bound), given[d])
            twice = make(old, "concatenate", made, made, dimensions=(d,))
            starts = [first if k == d else p.number(old, 0) for k in range(old.shape.rank)]
            dims = old.shape.dims
            made = make(old, "dynamic-slice", twice, *starts, dynamic_slice_sizes=dims)
    return made, given


def _reshape(p: _Padder, old: Instruction) -> Made:
    """What is valid stays in front: a size may move where no larger dimension stands before."""
    (x,) = old.operands
    given, sizes = p.sizes_of(x), Sizes()
    inferred = old.attributes.get("inferred_dimension", -1)
    assert isinstance(inferred, int), "inferred_dimension is an int"
    bounds, dims = x.shape.dims, old.shape.dims
    for sources, targets in reshape_groups(bounds, dims):
        sized = [d for d in sources if d in given]
        if not sized:
            continue
        if not targets:  # beside sizes of 1: what the size must be is the reference's to judge
            raise _UnsupportedError
        free = free_dimension(targets, old.shape, inferred)
        before = [bounds[d] for d in sources if d < sized[0]] + [
            dims[d] for d in targets if d < free
        ]
        if len(sized) > 1 or any(n != 1 for n in before):
            raise _UnsupportedError
        more = math.prod(bounds[d] for d in sources if d != sized[0])
        less = math.prod(dims[d] for d in targets if d != free)
        sizes[free] = _scaled(p, given[sized[0]], more, less)
    return p.again(old), sizes


def _scaled(p: _Padder, size: Instruction, more: int, less: int) -> Instruction:
    """size more / less, which the program assumes to be whole."""
    if less in (more, 0):
        return size
    total = make(size, "multiply", size, p.number(size, more))
    rest = make(total, "remainder", total, p.number(size, less))
    p.agreed(rest, p.number(rest, 0))
    return make(total, "divide", total, p.number(size, less))


def _reduce(p: _Padder, old: Instruction) -> Made:
    x, given = old.operands[0], p.sizes_of(old.operands[0])
    reduced = _ints(old, "dimensions")
    if len(old.operands) != 2:
        raise _UnsupportedError
    value = p.value(x)
    for d in reduced:
        if d in given:
            value = p.masked(value, d, given[d], p.identity(old))
    made = p.again(old)
    p.entry.set_operand(made, 0, value)
    kept = [d for d in range(x.shape.rank) if d not in reduced]
    return made, {k: given[d] for k, d in enumerate(kept) if d in given}


def _dot(p: _Padder, old: Instruction) -> Made:
    sides = old.operands
    values = [p.value(o) for o in sides]
    names = [(f"{side}_batch_dims", f"{side}_contracting_dims") for side in ("lhs", "rhs")]
    batch, contracted = ([_ints(old, pair[k]) for pair in names] for k in (0, 1))
    for pair in zip(*contracted, strict=True):
        size = _paired(p, old, pair)
        if size is not None:
            values = [p.zeroed(v, d, size) for v, d in zip(values, pair, strict=True)]
    sizes: Sizes = {}
    for k, pair in enumerate(zip(*batch, strict=True)):
        size = _paired(p, old, pair)
        if size is not None:
            sizes[k] = size
    at = len(batch[0])
    for side, b, c in zip(sides, batch, contracted, strict=True):
        for d in (d for d in range(side.shape.rank) if d not in (*b, *c)):
            if d in p.sizes_of(side):
                sizes[at] = p.sizes_of(side)[d]
            at += 1
    made = p.again(old)
    p.entry.set_operands(made, values)
    return made, sizes


def _paired(p: _Padder, dot: Instruction, dims: tuple[int, ...]) -> Instruction | None:
    """The size of a pair of dimensions, which the program assumes to be one."""
    pairs = list(zip(dot.operands, dims, strict=True))
    sized = [p.sizes_of(o)[d] for o, d in pairs if d in p.sizes_of(o)]
    if not sized:
        return None
    whole = p.number(sized[0], dot.operands[0].shape.dims[dims[0]])
    p.agreed(sized[0], sized[1] if len(sized) > 1 else whole)
    return sized[0]


def _get_size(p: _Padder, old: Instruction) -> Made:
    (d,) = _ints(old, "dimensions")[:1]
    x = old.operands[0]
    found = p.sizes_of(x).get(d)
    return (p.number(old, x.shape.dims[d]) if found is None else _copied(found)), {}


def _copied(x: Instruction) -> Instruction:
    """x as a value of its own: a size may be a parameter, and a root is none."""
    return make(x, "copy", x)


def _set_size(p: _Padder, old: Instruction) -> Made:
    (d,) = _ints(old, "dimensions")[:1]
    x, size = p.value(old.operands[0]), p.value(old.operands[1])
    sizes = dict(p.sizes_of(old.operands[0]))
    before = sizes.pop(d, None)
    value = _copied(x) if before is None else p.zeroed(x, d, before)
    if old.shape.dynamic[d]:
        sizes[d] = size
        bounds = p.number(old, 0), p.number(old, old.shape.dims[d])
        p.agreed(make(old, "clamp", bounds[0], size, bounds[1]), size)
    return value, sizes


def _pad(p: _Padder, old: Instruction) -> Made:
    """The upper edge begins where the operand ends."""
    edges: tuple[PaddingDim, ...] = attribute(old, "padding")  # type: ignore[assignment]  # PADDING
    made, sizes = p.again(old), Sizes()
    for d, size in p.sizes_of(old.operands[0]).items():
        edge = edges[d]
        if edge.interior or edge.low < 0 or edge.high < 0:
            raise _UnsupportedError
        end = make(size, "add", size, p.number(size, edge.low))
        made = p.masked(made, d, end, p.value(old.operands[1]))
        sizes[d] = make(size, "add", end, p.number(size, edge.high))
    return made, sizes


def _slice(p: _Padder, old: Instruction) -> Made:
    parts: tuple[SliceDim, ...] = attribute(old, "slice")  # type: ignore[assignment]  # SLICE
    x = old.operands[0]
    given = p.sizes_of(x)
    sizes: Sizes = {}
    for d, size in given.items():
        if parts[d] == SliceDim(0, x.shape.dims[d]):
            sizes[d] = size
        else:  # within the valid part, as the program assumes
            limit = p.number(size, parts[d].limit)
            p.agreed(make(size, "minimum", size, limit), limit)
    return p.again(old), sizes


def _concatenate(p: _Padder, old: Instruction) -> Made:
    """Each operand is written where the one before it ends."""
    (along,) = _ints(old, "dimensions")
    rest = [d for d in range(old.shape.rank) if d != along]
    sizes = _common(p, old, list(old.operands), rest)
    if not any(along in p.sizes_of(o) for o in old.operands):
        return p.again(old), sizes
    made, at = p.again(old), p.number(old, 0)
    for operand in old.operands:
        starts = [at if d == along else p.number(old, 0) for d in range(old.shape.rank)]
        made = make(old, "dynamic-update-slice", made, p.value(operand), *starts)
        whole = p.number(old, operand.shape.dims[along])
        at = make(old, "add", at, p.sizes_of(operand).get(along, whole))
    return made, {**sizes, along: at}


def _sort(p: _Padder, old: Instruction) -> Made:
    given = p.sizes_of(old.operands[0])
    if len(old.operands) > 1 or any(d in given for d in _ints(old, "dimensions")):
        raise _UnsupportedError
    return p.again(old), given


def _pad_to_static(p: _Padder, old: Instruction) -> Made:
    (x,) = old.operands
    value, sizes = p.value(x), p.sizes_of(x)
    for d, size in sizes.items():
        value = p.zeroed(value, d, size)
    rank = x.shape.rank
    numbers = [sizes[d] if d in sizes else p.number(old, x.shape.dims[d]) for d in range(rank)]
    return make(old, "tuple", value, *numbers), {}


def _slice_to_dynamic(p: _Padder, old: Instruction) -> Made:
    x, *sizes = old.operands
    if x in p.values or len(sizes) != x.shape.rank:
        raise _UnsupportedError
    found: Sizes = {}
    for d, size in enumerate(sizes):
        limits = p.number(old, 0), p.number(old, x.shape.dims[d])
        found[d] = make(old, "clamp", limits[0], p.value(size), limits[1])
    return _copied(x), found


def _ints(instruction: Instruction, name: str) -> tuple[int, ...]:
    found = attribute(instruction, name)
    assert isinstance(found, tuple), f"{name} is a tuple of ints"
    return found


STEPS: dict[str, Step] = {
    "parameter": _parameter,
    "broadcast": _broadcast,
    "transpose": _transpose,
    "copy": _same,
    "reverse": _reverse,
    "reshape": _reshape,
    "reduce": _reduce,
    "dot": _dot,
    "get-dimension-size": _get_size,
    "set-dimension-size": _set_size,
    "pad": _pad,
    "slice": _slice,
    "concatenate": _concatenate,
    "sort": _sort,
}
CALLS: dict[str, Step] = {"PadToStatic": _pad_to_static, "SliceToDynamic": _slice_to_dynamic}
