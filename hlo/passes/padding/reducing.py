"""Steps for reductions, contractions and windows: what lies beyond a size adds nothing."""

from __future__ import annotations

import numpy as np

from hlo.attributes.window import Window, WindowDim
from hlo.indexing.queries import OperandDims, operand_dims, result_dims
from hlo.indexing.reductions import reduction_dims
from hlo.ir import dtype as dt
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.ops.convolution import ConvolutionAttributes
from hlo.ops.identities import identity
from hlo.ops.making import make
from hlo.ops.table import attribute
from hlo.ops.windows import dilated
from hlo.passes.padding.moving import spread_over
from hlo.passes.padding.scope import FLAG, Made, Scope, Sizes, UnsupportedError, static


def reduce(p: Scope, old: Instruction) -> Made:
    """What lies beyond a size is the identity of the reducer, or is marked as nothing."""
    count = len(old.operands) // 2
    xs, inits = old.operands[:count], [p.value(o) for o in old.operands[count:]]
    own = reduction_dims(old)
    given = p.common(xs, range(len(own.dims)), own.dims)
    gone = {d: size for d, size in given.items() if d in own.reduced}
    sizes = p.moved(old, 0, given)
    values, unit = [p.value(x) for x in xs], _identity(old) if count == 1 else None
    if gone and unit is None:
        made = _reduced_if_valid(p, old, values, inits, p.valid(values[0], gone))
        parts = p.sized_parts(made, sizes, count)
        assert isinstance(parts, tuple), "a tuple's parts"
        return (parts, {}) if old.shape.is_tuple else (parts[0], sizes)
    for d, size in gone.items():
        values = [p.masked(v, d, size, _identity_of(p, old, unit)) for v in values]
    made = p.like(old, (*values, *inits), static(old.shape))
    return (p.sized_parts(made, sizes), {}) if old.shape.is_tuple else (made, sizes)


def _identity(old: Instruction) -> object:
    """e with f(e, x) = x to the bit, f the reducer; None if it is not known."""
    body, dtype = old["to_apply"], old.operands[0].shape.dtype
    assert isinstance(body, Computation), "to_apply is a computation"
    root = body.root
    if set(root.operands) != set(body.parameters) or len(root.operands) != 2:
        return None
    is_odd = dtype.bits < 16 and root.opcode in ("maximum", "minimum")  # without infinities
    if dtype.is_complex or (dtype.is_float and is_odd):
        return None
    return identity(root.opcode, dtype)


def _identity_of(p: Scope, old: Instruction, unit: object) -> Instruction:
    dtype = old.operands[0].shape.dtype
    if unit is None or dtype.numpy is None:
        raise UnsupportedError
    return p.constant(old, np.asarray(unit).astype(dtype.numpy), dtype)


def _reduced_if_valid(
    p: Scope, old: Instruction, xs: list[Instruction], inits: list[Instruction], valid: Instruction
) -> Instruction:
    """The reduction of pairs of elements and whether they are valid: f meets valid ones only."""
    f = old["to_apply"]
    assert isinstance(f, Computation), "to_apply is a computation"
    body = p.module.adopt(_of_valid(f))
    true = p.constant(old, np.bool_(True), dt.PRED)
    types = [x.shape.dtype for x in (*inits, valid)]
    shape = Shape.tuple(tuple(Shape.array(t, result_dims(old)) for t in types))
    return p.like(old, (*xs, valid, *inits, true), shape, to_apply=body)


def _of_valid(f: Computation) -> Computation:
    """(a, is a valid, b, is b valid) -> f(a, b) if both are, else the one that is."""
    body = Computation(f"{f.name}_of_valid")
    shapes, count = [q.shape for q in f.parameters], len(f.parameters) // 2
    numbered = [*shapes[:count], FLAG, *shapes[count:], FLAG]
    given = [
        body.new("parameter", s, (), {"parameter_number": n}, name=f"p{n}")
        for n, s in enumerate(numbered)
    ]
    left, (has_left,) = given[:count], given[count : count + 1]
    right, has_right = given[count + 1 : -1], given[-1]
    found = body.new("call", f.root.shape, (*left, *right), {"to_apply": f})
    parts = [found]
    if f.root.shape.is_tuple:
        parts = [make(found, "get-tuple-element", found, index=k) for k in range(count)]
    both = make(found, "and", has_left, has_right)
    chosen = [
        make(found, "select", both, part, make(found, "select", has_left, a, b))
        for part, a, b in zip(parts, left, right, strict=True)
    ]
    body.root = make(found, "tuple", *chosen, make(found, "or", has_left, has_right))
    return body


def dot(p: Scope, old: Instruction) -> Made:
    """Zeros beyond contracted sizes, on both sides: zero times what means nothing may be NaN."""
    values = [p.value(o) for o in old.operands]
    own, contracted = operand_dims(old)
    for pair in contracted:
        size = _paired(p, old, pair)
        if size is not None:
            sides = zip(values, pair, strict=True)
            values = [v if d is None else p.zeroed(v, d, size) for v, d in sides]
    for pair in own:
        if None not in pair:
            _paired(p, old, pair)
    left, right = (p.moved(old, k, p.sizes_of(side)) for k, side in enumerate(old.operands))
    return p.like(old, values, static(old.shape)), dict(sorted({**right, **left}.items()))


def _paired(p: Scope, old: Instruction, dims: OperandDims) -> Instruction | None:
    """The size of a pair of dimensions, which the program assumes to be one."""
    pairs = [(o, d) for o, d in zip(old.operands, dims, strict=True) if d is not None]
    sized = [p.sizes_of(o)[d] for o, d in pairs if d in p.sizes_of(o)]
    if not sized:
        return None
    (first, d), *_ = pairs
    whole = p.number(sized[0], first.shape.dims[d])
    p.agreed(sized[0], sized[1] if len(sized) > 1 else whole)
    return sized[0]


def convolution(p: Scope, old: Instruction) -> Made:
    """Beyond a size come zeros, as in the padding; a kernel has its whole size."""
    attrs = ConvolutionAttributes.of(old.attributes)
    labels, window = attrs.dim_labels, attrs.window
    lhs, rhs = old.operands
    left, right = p.sizes_of(lhs), p.sizes_of(rhs)
    whole = _whole_in_groups(attrs)
    if any(d in right for d in (*labels.rhs_spatial, *whole[1])) or any(
        d in left for d in whole[0]
    ):
        raise UnsupportedError
    values = [p.value(lhs), p.value(rhs)]
    features = labels.lhs_feature, labels.rhs_input_feature
    size = _paired(p, old, features)
    if size is not None:
        values = [p.zeroed(v, d, size) for v, d in zip(values, features, strict=True)]
    slid: Sizes = {}
    for d, place in zip(labels.lhs_spatial, labels.out_spatial, strict=True):
        if d in left:
            values[0] = p.zeroed(values[0], d, left[d])
            slid[place] = _slid(p, left[d], window.dims[labels.lhs_spatial.index(d)])
    if slid:
        p.checks.append(_is_finite(p, values[1]))  # zero times infinity is no padding
    sizes = {**p.moved(old, 0, left), **p.moved(old, 1, right), **slid}
    return p.like(old, values, static(old.shape)), sizes


def _whole_in_groups(attrs: ConvolutionAttributes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The dimensions of both sides that groups divide."""
    labels = attrs.dim_labels
    left: tuple[int, ...] = ()
    right: tuple[int, ...] = ()
    if attrs.feature_group_count != 1:
        left = (labels.lhs_feature,)
        right = (labels.rhs_input_feature, labels.rhs_output_feature)
    if attrs.batch_group_count != 1:
        left = (*left, labels.lhs_batch)
        right = (*right, labels.rhs_output_feature)
    return left, right


def _is_finite(p: Scope, x: Instruction) -> Instruction:
    """Whether all elements are finite, pred[]."""
    true = p.constant(x, np.bool_(True), dt.PRED)
    if not x.shape.dtype.is_float:
        if x.shape.dtype.is_complex:
            raise UnsupportedError
        return true
    body = Computation("both")
    a, b = (body.new("parameter", FLAG, (), {"parameter_number": n}) for n in range(2))
    body.root = body.new("and", FLAG, (a, b))
    flags = make(x, "is-finite", x)
    every = tuple(range(x.shape.rank))
    return make(x, "reduce", flags, true, dimensions=every, to_apply=p.module.adopt(body))


def reduce_window(p: Scope, old: Instruction) -> Made:
    """Beyond a size comes what adds nothing, as in the padding."""
    count = len(old.operands) // 2
    xs, inits = old.operands[:count], [p.value(o) for o in old.operands[count:]]
    given, windows = p.common(xs, range(xs[0].shape.rank), xs[0].shape.dims), _windows(old)
    values, sizes = [p.value(x) for x in xs], dict(given)
    for d, size in given.items():
        if windows[d] != WindowDim(1):
            unit = _identity(old) if count == 1 else None
            values = [p.masked(v, d, size, _identity_of(p, old, unit)) for v in values]
            sizes[d] = _slid(p, size, windows[d])
    made = p.like(old, (*values, *inits), static(old.shape))
    return (p.sized_parts(made, sizes), {}) if old.shape.is_tuple else (made, sizes)


def select_and_scatter(p: Scope, old: Instruction) -> Made:
    """Windows that lie beside one another along a size."""
    x, source, init = old.operands
    windows, dims = _windows(old), range(x.shape.rank)
    sizes = p.common((x, source), dims, x.shape.dims)
    if any(windows[d] != WindowDim(1) for d in sizes):
        raise UnsupportedError
    operands = p.value(x), p.value(source), p.value(init)
    return p.like(old, operands, static(old.shape)), sizes


def _windows(old: Instruction) -> tuple[WindowDim, ...]:
    window = attribute(old, "window")
    assert isinstance(window, Window), "WINDOW"
    return window.dims or (WindowDim(1),) * old.operands[0].shape.rank


def _slid(p: Scope, size: Instruction, w: WindowDim) -> Instruction:
    """How many windows fit along a dimension of that size."""
    reach = dilated(w.size, w.window_dilation)
    more = p.number(size, w.pad_low + w.pad_high - reach + w.stride)
    room = make(size, "add", spread_over(p, size, w.base_dilation), more)
    room = make(size, "maximum", room, p.number(size, 0))
    return make(size, "divide", room, p.number(size, w.stride)) if w.stride > 1 else room
