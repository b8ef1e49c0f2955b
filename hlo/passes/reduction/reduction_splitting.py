"""Long reductions with few results are cut in two, so that their parts run in parallel.

reduce(x, z) over n elements  =>  reduce(reduce(reshape(x, [b, n/b]), e), z)     e f's identity
    z itself is e where f picks one of two (value, index) pairs, as arg-max does;
    sums of narrow floats are f32 until the last one is rounded.
Where n has no such divisor, b parts of m elements are its head, and what is left are parts more:
    reduce(concatenate(reduce(reshape(slice(x, 0, bm), [b, m]), e), slice(x, bm, n)), z)
Rows of few columns are taken side by side, [b, n/b/k, k, columns], so that vectors are full.
Reductions over columns are cut where they read much, so that each part's rows are read end to end.

How it is cut depends on shapes only, so the result is the same for every number of threads.
Exact up to the association that HLO leaves open. Source: XLA's tree_reduction_rewriter.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from math import prod

import numpy as np
from msgspec import Struct

from hlo.analysis.fusibility import is_elementwise
from hlo.attributes.slices import SliceDim
from hlo.indexing.reductions import reduction_dims
from hlo.ir import dtype as dt
from hlo.ir.computation import Computation
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.identities import identity
from hlo.ops.making import make, make_constant
from hlo.ops.table import attribute
from hlo.passes.liveness import awaited
from hlo.passes.loop_making import new_computation, parameter
from hlo.passes.patterns.matching import literal_of
from hlo.passes.reduction.reduction_parts import MOST_SEARCHED, narrow_parts, wanted_parts

_FEW_COLUMNS = 32
_ABREAST = 512  # The most elements of rows side by side.
_FEWEST_ABREAST = 8  # The fewest rows side by side.
_VECTOR = 32  # Elements of a round of vectors.
_WHOLE = 64  # Elements of a line at least, whatever their type.
Made = dict[Hashable, Instruction]  # what the parts of several reductions read


class _Cut(Struct, frozen=True):
    """Dimension d in so many parts of a length; what they leave over is a part of its own."""

    d: int
    parts: int
    length: int


def split_reductions(module: Module, computation: Computation) -> bool:
    """Cut the computation's long reductions; whether there were any."""
    changed = False
    kept = awaited(computation)
    made: Made = {}
    for instruction in computation.instructions:
        if instruction.opcode == "reduce":
            changed |= instruction not in kept and _split(module, instruction, made)
    return changed


def _split(module: Module, reduce: Instruction, made: Made) -> bool:
    x = reduce.operands[0]
    if x.shape.is_dynamic or "control-predecessors" in reduce.attributes:
        return False
    if _made_by(x).get("to_apply") is reduce["to_apply"]:
        return False  # of parts that were cut before
    wanted = wanted_parts(reduce)
    cut = _even(reduce, wanted) if wanted > 1 else None
    is_flat = False
    if cut is None and wanted > 1:
        is_flat = _flatten(reduce, made)
        cut = _uneven(reduce, wanted) or _even(reduce, wanted, odd=True)
    if cut is None:
        return is_flat
    starts = _starts(reduce, made)
    if starts is None:
        return _widened(module, reduce, cut, made)
    _rewrite(reduce, cut, starts, made)
    return True


def _made_by(x: Instruction) -> Instruction:
    """What makes an array, in a kernel where one does."""
    return x.called_computations()[0].root if x.opcode == "fusion" else x


def _shared(made: Made, key: Hashable, new: Callable[[], Instruction]) -> Instruction:
    """One value for all reductions of the computation: a kernel that joins two has it once."""
    if key not in made:
        made[key] = new()
    return made[key]


def _number(like: Instruction, literal: Literal, made: Made) -> Instruction:
    """A constant of the computation: the one that is there, so that a kernel has it once."""
    code = literal.array.tobytes()

    def found() -> Instruction:
        assert like.computation is not None, f"{like.name} stands in no computation"
        for instruction in like.computation.instructions:
            if instruction.shape == literal.shape:
                other = literal_of(instruction)
                if other is not None and other.array.tobytes() == code:
                    return instruction
        return make_constant(like, literal)

    return _shared(made, (literal.shape, code), found)


def _starts(reduce: Instruction, made: Made) -> list[Instruction] | None:
    """What parts start from, where reducing them one by one gives what the whole gives."""
    inits = reduce.operands[len(reduce.operands) // 2 :]
    if len(inits) == 1:
        (z,) = inits
        neutral = _identity(reduce, z.shape.dtype)
        if neutral is None:
            return None
        return [_number(reduce, neutral, made)]
    from hlo.analysis.selections import is_symmetric_selection, ordering_index  # of several arrays

    body: Computation = reduce["to_apply"]  # type: ignore[assignment]  # a COMPUTATION
    is_selection = is_symmetric_selection(body) or ordering_index(reduce) is not None
    return list(inits) if is_selection else None


def _even(reduce: Instruction, wanted: int, *, odd: bool = False) -> _Cut | None:
    """The first dimension that has a divisor for its number of parts; odd: parts of a row need not
    begin at whole vectors."""
    dims = reduce.operands[0].shape.dims
    for d in reduction_dims(reduce).reduced:
        parts = _divisor(dims, d, wanted)
        length = dims[d] // parts
        if parts > 1 and (odd or length % _vector_of(dims, d) == 0):
            return _Cut(d, parts, length)
    return None


def _divisor(dims: tuple[int, ...], d: int, wanted: int) -> int:
    """The divisor of a dimension's size nearest below twice what is wanted, at least a quarter of
    it; of few columns one whose rows can be taken side by side, if there is any."""
    size = dims[d]
    counts = range(min(2 * wanted, size), max(wanted // 4, 1), -1)
    found = [parts for parts in counts if size % parts == 0]
    abreast = (parts for parts in found if _abreast(dims, d, parts))
    return next(abreast, next(iter(found), 1))


def _uneven(reduce: Instruction, wanted: int) -> _Cut | None:
    """The first dimension long enough for parts that leave something over, in the number that
    leaves least. Few columns are left whole, which lie side by side as it is."""
    dims = reduce.operands[0].shape.dims
    for d in reduction_dims(reduce).reduced:
        step, least = _vector_of(dims, d), max(wanted // 2, 1)
        most = min(2 * wanted, dims[d] // (2 * step))
        if most > least and not _are_few(prod(dims[d + 1 :])):
            cuts = [_Cut(d, n, dims[d] // n // step * step) for n in range(most, least, -1)]
            return min(cuts, key=lambda cut: dims[d] - cut.parts * cut.length)
    return None


def _vector_of(dims: tuple[int, ...], d: int) -> int:
    """What a part's length is a multiple of, where neighbours are not to begin within a vector:
    such sums took 1.7 times as long, out of a cache."""
    return _WHOLE if prod(dims[d + 1 :]) == 1 else 1


def _flatten(reduce: Instruction, made: Made) -> bool:
    """Dimensions that are reduced together and follow each other become one, where elements are
    computed from those at the same place of arrays: rows of an odd length can be parted so. Whether
    there were any."""
    x, (first, *rest) = reduce.operands[0], sorted(reduction_dims(reduce).reduced)
    count = len(reduce.operands) // 2
    arrays, others = reduce.operands[:count], reduce.operands[count:]
    if not rest or rest != list(range(first + 1, x.shape.rank)) or not all(map(_is_flat, arrays)):
        return False
    dims = (*x.shape.dims[:first], prod(x.shape.dims[first:]))
    flat = [
        _shared(made, (x, dims), partial(make, reduce, "reshape", x, shape=x.shape.with_dims(dims)))
        for x in arrays
    ]
    assert reduce.computation is not None, "a reduce in a computation"
    reduce.computation.set_operands(reduce, (*flat, *others))
    reduce.computation.set_attributes(reduce, {**reduce.attributes, "dimensions": (first,)})
    return True


def _is_flat(x: Instruction) -> bool:
    """Whether all that a kernel computes of it is elementwise, or numbers everywhere."""
    stack, seen = [x], {x}
    while stack:
        top = stack.pop()
        if len(seen) > MOST_SEARCHED:
            return False
        if is_elementwise(top):
            stack += [o for o in top.operands if o not in seen]
            seen.update(top.operands)
        elif top.opcode != "parameter" and not (
            top.opcode == "broadcast" and not top.operands[0].shape.dims
        ):
            return False
    return True


def _are_few(columns: int) -> bool:
    return 1 < columns <= _FEW_COLUMNS


def _rewrite(reduce: Instruction, cut: _Cut, starts: list[Instruction], made: Made) -> None:
    computation, d = reduce.computation, cut.d
    assert computation is not None, "a reduce in a computation"
    arrays, inits = reduce.operands[: len(starts)], reduce.operands[len(starts) :]
    size, head = arrays[0].shape.dims[d], cut.parts * cut.length
    dims = (*arrays[0].shape.dims[:d], head, *arrays[0].shape.dims[d + 1 :])
    listed = attribute(reduce, "dimensions")
    abreast = _abreast(dims, d, cut.parts) if len(starts) == 1 and d == max(listed) else ()  # type: ignore[call-overload]  # INTS
    split = (*dims[:d], cut.parts, cut.length // prod(abreast), *abreast, *dims[d + 1 :])
    heads = [_range(reduce, x, d, (0, head), made) if head < size else x for x in arrays]
    reshaped = [
        _shared(
            made, (x, split), partial(make, reduce, "reshape", x, shape=x.shape.with_dims(split))
        )
        for x in heads
    ]
    inner = tuple(k + (k >= d) for k in listed)  # type: ignore[attr-defined]  # INTS
    results = _reduced(reduce, reshaped, starts, inner)
    kept = [k for k in range(len(split)) if k not in inner]
    if head < size:
        rest = [_range(reduce, x, d, (head, size), made) for x in arrays]
        others = tuple(k for k in listed if k != d)  # type: ignore[attr-defined]  # INTS
        if others:
            rest = _reduced(reduce, rest, starts, others)
        at = kept.index(d)
        pairs = zip(results, rest, strict=True)
        results = [make(reduce, "concatenate", *pair, dimensions=(at,)) for pair in pairs]
    computation.set_operands(reduce, (*results, *inits))
    again = tuple(kept.index(k) for k in (d, d + 2)[: 1 + len(abreast)])
    computation.set_attributes(reduce, {**reduce.attributes, "dimensions": again})


def _range(
    like: Instruction, x: Instruction, d: int, bounds: tuple[int, int], made: Made
) -> Instruction:
    """A range of a dimension."""
    ranges = [SliceDim(0, n) for n in x.shape.dims]
    ranges[d] = SliceDim(*bounds)
    key = (x, "slice", d, bounds)
    return _shared(made, key, partial(make, like, "slice", x, slice=tuple(ranges)))


def _reduced(
    like: Instruction, arrays: list[Instruction], starts: list[Instruction], inner: tuple[int, ...]
) -> list[Instruction]:
    """The same reduction of other arrays, over these dimensions; a result for each array."""
    computation = like.computation
    assert computation is not None, "a reduce in a computation"
    dims = arrays[0].shape.dims
    kept = [n for k, n in enumerate(dims) if k not in inner]
    shapes = [Shape.array(z.shape.dtype, kept) for z in starts]
    reduced = computation.new(
        "reduce",
        Shape.tuple(shapes) if like.shape.is_tuple else shapes[0],
        (*arrays, *starts),
        {"dimensions": inner, "to_apply": like["to_apply"]},
        like=like,
    )
    if not like.shape.is_tuple:
        return [reduced]
    return [
        computation.new("get-tuple-element", shape, (reduced,), {"index": k}, like=like)
        for k, shape in enumerate(shapes)
    ]


def _abreast(dims: tuple[int, ...], d: int, parts: int) -> tuple[int, ...]:
    """How many rows of a part lie side by side, where columns are few."""
    columns = prod(dims[d + 1 :])
    rows = dims[d] // parts
    if not _are_few(columns):
        return ()
    for count in range(min(_ABREAST // columns, rows // _FEWEST_ABREAST), _FEWEST_ABREAST - 1, -1):
        if rows % count == 0:
            return (count,)
    return ()


def rows_abreast(rows: int, columns: int) -> int:
    """How many rows of few columns lie side by side: as many as where they are reduced, or else as
    many as leave least of the last vector empty; 1 where their number has no such divisor."""
    parts = _divisor((rows, columns), 0, narrow_parts(rows * columns))
    found = _abreast((rows, columns), 0, parts)
    if found:
        return found[0]
    counts = [n for n in range(_ABREAST // columns, _FEWEST_ABREAST - 1, -1) if rows % n == 0]
    return min(counts, key=lambda n: -n * columns % _VECTOR, default=1)


def _widened(module: Module, reduce: Instruction, cut: _Cut, made: Made) -> bool:
    """The same in f32 where narrow floats are summed."""
    dtype, opcode = reduce.shape.dtype, _opcode(reduce)
    if len(reduce.operands) != 2 or not dtype.is_float or dtype.bits >= 32:
        return False
    if opcode not in ("add", "multiply") or any(
        o.shape.dtype is not dtype for o in reduce.operands
    ):
        return False
    wide = [make(reduce, "convert", o, shape=o.shape.with_dtype(dt.F32)) for o in reduce.operands]
    scalar = Shape.array(dt.F32)
    body = _reducer(module, reduce, opcode, scalar)
    whole = make(
        reduce, "reduce", *wide, shape=reduce.shape.with_dtype(dt.F32),
        dimensions=reduce["dimensions"], to_apply=body,
    )  # fmt: skip
    start = Literal.of(np.array(identity(opcode, dt.F32), np.float32), scalar)
    _rewrite(whole, cut, [_number(reduce, start, made)], made)
    narrow = make(reduce, "convert", whole, shape=reduce.shape)
    assert reduce.computation is not None, "a reduce in a computation"
    reduce.computation.replace_uses(reduce, narrow)
    reduce.computation.remove(reduce)
    return True


def _reducer(module: Module, like: Instruction, opcode: str, scalar: Shape) -> Computation:
    """One op on two scalars, the module's last computation: callers follow."""
    made = new_computation(like, f"wide_{opcode}")
    made.root = made.new(opcode, scalar, [parameter(made, n, scalar) for n in range(2)])
    return module.adopt(made)


def _opcode(reduce: Instruction) -> str:
    """Of a reducer that is one op on its two parameters; else empty."""

    body: Computation = reduce["to_apply"]  # type: ignore[assignment]  # a COMPUTATION
    root = body.root
    is_plain = set(root.operands) == set(body.parameters) and len(root.operands) == 2
    return root.opcode if is_plain else ""


def _identity(reduce: Instruction, dtype: DType) -> Literal | None:
    """e with f(e, x) = x, where f is one op known to be associative."""
    opcode = _opcode(reduce)
    found = identity(opcode, dtype)
    if found is None or (dtype.is_complex and opcode == "multiply"):
        return None
    is_exact = opcode in ("maximum", "minimum") and dtype.name in ("bf16", "f16")
    if dtype.is_float and not is_exact and dtype.name not in ("f32", "f64"):
        return None  # narrow floats would round their parts' results
    return Literal.of(np.array(found).astype(dtype.numpy), Shape.array(dtype))
