"""Reductions of what is empty, trivial, or only moved, and windows over bases with holes.

Along a dimension whose base is dilated by d, as in the gradient of a mean over windows, the window
of output d * q + r meets every d-th position only. Phases whose windows hold the same elements have
the same results, which are reduced once and then repeated.
"""

from __future__ import annotations

from itertools import product
from math import prod

from msgspec.structs import replace

from hlo.attributes.padding import PaddingDim
from hlo.attributes.slices import SliceDim
from hlo.attributes.window import Window, WindowDim
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Ints
from hlo.ops.identities import identity
from hlo.ops.making import make
from hlo.ops.table import Trait, opcodes
from hlo.passes.patterns.convolution import Holes, Phases
from hlo.passes.patterns.matching import (
    has_one_user,
    ints,
    is_discrete,
    is_plain,
    is_splat,
    splat,
    splat_literal,
)
from hlo.passes.rewriting import rewrite

MOST_PARTS = 4  # The most reductions that stand for one window over a base with holes.
LEAST_RESULTS = 1 << 12  # Each kernel takes its time to be made.
PLAIN = WindowDim(1)


def reducer_opcode(root: Instruction) -> str | None:
    """The opcode of a reducer that is one binary op on its two parameters in order."""
    reducer = root["to_apply"]
    assert isinstance(reducer, Computation), "to_apply is a computation"
    body = reducer.root
    if len(reducer) != 3 or len(body.operands) != 2:
        return None
    return body.opcode if tuple(body.operands) == reducer.parameters else None


@rewrite("reduce")
def reduce_of_nothing(root: Instruction) -> Instruction | None:
    """reduce(x, z) => broadcast(z)  where x has no elements"""
    if len(root.operands) != 2 or root.operands[0].shape.size or not is_plain(root.shape):
        return None
    return make(root, "broadcast", root.operands[1], shape=root.shape, dimensions=())


_IDEMPOTENT = opcodes(Trait.IDEMPOTENT)


@rewrite("reduce", operand="broadcast")
def reduce_of_splat(root: Instruction) -> Instruction | None:
    """reduce(broadcast(s), z) => broadcast(f(z, s))  for f in maximum, minimum, and, or"""
    if len(root.operands) != 2 or not root.operands[0].shape.size or not is_plain(root.shape):
        return None
    x, z = root.operands
    opcode = reducer_opcode(root)
    if x.opcode != "broadcast" or x.operands[0].shape.dims or opcode is None:
        return None
    if opcode not in _IDEMPOTENT or x.shape.dtype is not z.shape.dtype or x.shape.is_dynamic:
        return None
    value = make(root, opcode, z, x.operands[0], shape=z.shape)
    return make(root, "broadcast", value, shape=root.shape, dimensions=())


@rewrite("reduce")
def reduce_unit_dims(root: Instruction) -> Instruction | None:
    """reduce(x, z) => reshape(x)  over dimensions of size 1 only, z the identity of the reducer"""
    if len(root.operands) != 2:
        return None
    x, z = root.operands
    if any(x.shape.dims[d] != 1 for d in ints(root, "dimensions")):
        return None
    if not is_plain(x.shape) or not is_plain(root.shape) or not _is_identity(root, z):
        return None
    return make(root, "reshape", x, shape=root.shape)


def _is_identity(root: Instruction, z: Instruction) -> bool:
    """Whether f(z, x) has the bits of x for every x; +0 is no identity of float sums, as +0 + -0 is
    +0.
    """
    opcode, dtype = reducer_opcode(root) or "", root.shape.dtype
    found = identity(opcode, dtype)
    if found is None or dtype.is_complex or (opcode == "add" and not is_discrete(dtype)):
        return False
    return is_splat(z, found)


@rewrite("reduce", operand="compare")
def reduce_of_least(root: Instruction) -> Instruction | None:
    """reduce(x == z, true, d) by and => reduce(x, z, d) == z  where the latter is there anyway, and
    its op is idempotent with z as identity, as maximum and -inf: it gives z for nothing but z.
    PyTorch asks so whether a row of scores is masked as a whole. A NaN is no z, and stays a NaN.
    """
    if len(root.operands) != 2 or not is_plain(root.shape):
        return None
    compare, start = root.operands
    if compare.get("direction") != "EQ" or compare.get("type") == "TOTALORDER":
        return None
    if reducer_opcode(root) != "and" or not is_splat(start, True):
        return None
    x, z = compare.operands
    for extreme in x.users:
        if extreme.opcode != "reduce" or extreme.operands[0] is not x or extreme.is_root:
            continue
        is_same = extreme.get("dimensions") == root["dimensions"] and is_plain(extreme.shape)
        if not is_same or reducer_opcode(extreme) not in _IDEMPOTENT:
            continue
        if _is_identity(extreme, extreme.operands[1]) and _is_identity(extreme, z):
            spread = splat(root, splat_literal(z), extreme.shape)
            return make(root, "compare", extreme, spread, shape=root.shape, direction="EQ")
    return None


@rewrite("reduce", operand="transpose")
def reduce_of_transpose(root: Instruction) -> Instruction | None:
    """reduce(transpose(x, p), z, d) => reduce(x, z, p[d])  where the kept dimensions keep their
    order
    """
    if len(root.operands) != 2 or root.operands[0].opcode != "transpose":
        return None
    moved, z = root.operands
    (x,) = moved.operands
    order, dimensions = ints(moved, "dimensions"), ints(root, "dimensions")
    kept = [order[d] for d in range(len(order)) if d not in dimensions]
    if kept != sorted(kept) or reducer_opcode(root) is None:
        return None
    return make(
        root,
        "reduce",
        x,
        z,
        shape=root.shape,
        dimensions=tuple(sorted(order[d] for d in dimensions)),
        to_apply=root["to_apply"],
    )


@rewrite("reduce", operand="reshape")
def reduce_of_reshape(root: Instruction) -> Instruction | None:
    """reduce(reshape(x), z, d) => reduce(x, z, d')  where the reshape only splits or joins
    reduced dims
    """
    if len(root.operands) != 2 or root.operands[0].opcode != "reshape":
        return None
    reshaped, z = root.operands
    (x,) = reshaped.operands
    if reducer_opcode(root) is None or not has_one_user(reshaped) or not is_plain(x.shape):
        return None
    dimensions = _merged_dimensions(x.shape.dims, reshaped.shape.dims, ints(root, "dimensions"))
    if dimensions is None:
        return None
    to_apply = root["to_apply"]
    return make(root, "reduce", x, z, shape=root.shape, dimensions=dimensions, to_apply=to_apply)


def _merged_dimensions(source: Ints, target: Ints, reduced: Ints) -> Ints | None:
    """Dimensions of source that hold exactly target's reduced ones; the kept ones have to be equal.
    None where there are none such.
    """
    found: list[int] = []
    i = j = 0
    while i < len(source) or j < len(target):
        if j < len(target) and j not in reduced:
            if i >= len(source) or source[i] != target[j]:
                return None
            i, j = i + 1, j + 1
            continue
        group = 1
        while j < len(target) and j in reduced:
            group *= target[j]
            j += 1
        held = 1
        while i < len(source) and held < group:
            held *= source[i]
            found.append(i)
            i += 1
        if held != group or group <= 1:
            return None
    return tuple(found)


@rewrite("reduce", operand="negate")
def reduce_of_negated(root: Instruction) -> Instruction | None:
    """reduce(-x, 0, add) => -reduce(x, 0, add)  for integers"""
    if len(root.operands) != 2 or reducer_opcode(root) != "add":
        return None
    negated, z = root.operands
    if negated.opcode != "negate" or not root.shape.dtype.is_integral or not is_splat(z, 0):
        return None
    total = make(
        root,
        "reduce",
        negated.operands[0],
        z,
        shape=root.shape,
        dimensions=root["dimensions"],
        to_apply=root["to_apply"],
    )
    return make(root, "negate", total, shape=root.shape)


@rewrite("reduce-window", operand="reshape")
def window_of_added_dims(root: Instruction) -> Instruction | None:
    """window(reshape(x), z) => reshape(window(x, z))  where the reshape adds dimensions of size 1
    that the window leaves alone
    """
    window = root.get("window")
    if len(root.operands) != 2 or not isinstance(window, Window) or not is_plain(root.shape):
        return None
    reshaped, z = root.operands
    (x,) = reshaped.operands
    added = [d for d, n in enumerate(reshaped.shape.dims) if n == 1 and window.dims[d] == PLAIN]
    # Of equal neighbours of size 1 it does not matter which are the new ones.
    added = added[: reshaped.shape.rank - x.shape.rank]
    kept = [d for d in range(reshaped.shape.rank) if d not in added]
    if not added or not is_plain(x.shape.without_layout()) or not has_one_user(reshaped):
        return None
    if x.shape.dims != tuple(reshaped.shape.dims[d] for d in kept):
        return None
    shape = root.shape.with_dims(tuple(root.shape.dims[d] for d in kept))
    inner = Window(tuple(window.dims[d] for d in kept))
    made = make(root, "reduce-window", x, z, shape=shape, **{**root.attributes, "window": inner})
    return make(root, "reshape", made, shape=root.shape)


@rewrite("reduce-window", operand="transpose")
def window_of_transpose(root: Instruction) -> Instruction | None:
    """window(transpose(x, p), z) => transpose(window(x, z), p)  where all that is read of it are
    transposes
    """
    window = root.get("window")
    if len(root.operands) != 2 or not isinstance(window, Window) or not is_plain(root.shape):
        return None
    moved, z = root.operands
    (x,) = moved.operands
    if x.shape.is_dynamic or not has_one_user(moved) or root.is_root or not root.users:
        return None
    if any(user.opcode != "transpose" for user in root.users):
        return None
    if identity(reducer_opcode(root) or "", root.shape.dtype) is None:
        return None  # what else than associative ops may depend on the order within a window
    order = ints(moved, "dimensions")
    back = [order.index(d) for d in range(len(order))]
    shape = root.shape.with_dims(tuple(root.shape.dims[d] for d in back))
    turned = Window(tuple(window.dims[d] for d in back))
    made = make(root, "reduce-window", x, z, shape=shape, **{**root.attributes, "window": turned})
    return make(root, "transpose", made, shape=root.shape, dimensions=order)


@rewrite("reduce-window")
def window_of_all_before(root: Instruction) -> Instruction | None:
    """window(x, z, n of padding before x) => pad(window(x, z, n - 1 before), z, one before)  where
    the window is n long, x no longer, and z the reducer's identity; the same behind x

    TensorFlow's exclusive cumulative sums: the first result is that of nothing, the others are a
    scan, which meets each element once.
    """
    window = root.get("window")
    if len(root.operands) != 2 or not isinstance(window, Window) or not is_plain(root.shape):
        return None
    (x, z), dims = root.operands, window.dims
    long = [k for k, w in enumerate(dims) if w != PLAIN]
    nothing = identity(reducer_opcode(root) or "", root.shape.dtype)
    if len(long) != 1 or nothing is None or not is_splat(z, nothing):
        return None
    (k,), w = long, dims[long[0]]
    if w.size < max(2, x.shape.dims[k]) or 0 in x.shape.dims:
        return None
    before, behind = w == WindowDim(w.size, pad_low=w.size), w == WindowDim(w.size, pad_high=w.size)
    if not before and not behind:
        return None
    own = replace(w, pad_low=w.pad_low - before, pad_high=w.pad_high - behind)
    inner = Window((*dims[:k], own, *dims[k + 1 :]))
    made = make(root, "reduce-window", x, z, shape=x.shape, **{**root.attributes, "window": inner})
    padding = [PaddingDim(0, 0)] * x.shape.rank
    padding[k] = PaddingDim(int(before), int(behind))
    return make(root, "pad", made, z, shape=root.shape, padding=tuple(padding))


@rewrite("reduce-window")
def window_of_holes(root: Instruction) -> Instruction | None:
    """window(x dilated by d, size k) at d * q + r => window(x, size k / d, from some element on)
    at q, for all r that see the same; pad(x, z) counts as holes where z is the reducer's identity
    """
    window = root.get("window")
    if len(root.operands) != 2 or not isinstance(window, Window) or not is_plain(root.shape):
        return None
    x, z = root.operands
    dims = window.dims
    if x.opcode == "pad":
        merged = _with_pad(root, dims)
        if merged is not None:
            dims, x = merged, x.operands[0]
    if not is_plain(x.shape) or x.shape.dtype is not z.shape.dtype or not x.shape.size:
        return None
    holes = tuple(h.joined for h in _window_holes(root, x, dims))
    parts = prod(len(h.groups) for h in holes)
    if not holes or parts > MOST_PARTS or root.shape.size < LEAST_RESULTS:
        return None
    made = {
        phases: _repeated(root, holes, phases, _common(root, x, dims, holes, phases))
        for phases in product(*(h.groups for h in holes))
    }
    return _joined(root, holes, made)


def _with_pad(root: Instruction, dims: tuple[WindowDim, ...]) -> tuple[WindowDim, ...] | None:
    """The window over what the operand pads, if padding is nothing to the reducer."""
    padded, z = root.operands
    _, value = padded.operands
    nothing = identity(reducer_opcode(root) or "", root.shape.dtype)
    if nothing is None or root.shape.dtype.is_complex or not is_splat(z, nothing):
        return None
    if not is_splat(value, nothing):
        return None
    padding = padded["padding"]
    assert isinstance(padding, tuple)
    return tuple(map(_over_pad, dims, padding))


def _over_pad(w: WindowDim, pad: PaddingDim) -> WindowDim:
    low, high = w.pad_low + pad.low, w.pad_high + pad.high
    return replace(w, pad_low=low, pad_high=high, base_dilation=1 + pad.interior)


def _window_holes(
    root: Instruction, x: Instruction, dims: tuple[WindowDim, ...]
) -> tuple[Holes, ...]:
    """The dimensions with holes; none where some of them is of another form. A single element is
    as far as wanted from the next."""
    found = []
    for d, (w, base, outputs) in enumerate(zip(dims, x.shape.dims, root.shape.dims, strict=True)):
        is_one = base == 1 and w.size > 1
        if not is_one and w.base_dilation == 1:
            continue
        if w.stride != 1 or w.window_dilation != 1 or (outputs < w.base_dilation and not is_one):
            return ()
        wide = replace(w, base_dilation=w.size) if is_one else w
        found.append(Holes(wide, d, d, d, base, outputs))
    return tuple(found)


def _common(
    root: Instruction,
    x: Instruction,
    dims: tuple[WindowDim, ...],
    holes: tuple[Holes, ...],
    phases: tuple[Phases, ...],
) -> Instruction:
    """What a group of phases in each dimension has in common."""
    sizes, window = list(root.shape.dims), list(dims)
    for h, p in zip(holes, phases, strict=True):
        sizes[h.out] = h.outputs_each
        window[h.out] = h.part(p) if p.taps else PLAIN
    shape = root.shape.with_dims(tuple(sizes))
    _, z = root.operands
    if not all(p.taps for p in phases):
        return make(root, "broadcast", z, shape=shape, dimensions=())
    opcode = reducer_opcode(root)
    if all(w == PLAIN for w in window) and opcode is not None:
        start = make(root, "broadcast", z, shape=shape, dimensions=())
        return make(root, opcode, start, x)
    attributes = {**root.attributes, "window": Window(tuple(window))}
    return make(root, "reduce-window", x, z, shape=shape, **attributes)


def _repeated(
    root: Instruction, holes: tuple[Holes, ...], phases: tuple[Phases, ...], part: Instruction
) -> Instruction:
    """A part's results for each of its phases, which have a dimension of their own."""
    sizes: list[int] = []
    kept: list[int] = []
    counts = {h.out: p.count for h, p in zip(holes, phases, strict=True)}
    for d, n in enumerate(part.shape.dims):
        kept.append(len(sizes))
        sizes += [n, counts[d]] if d in counts else [n]
    shape = root.shape.with_dims(sizes)
    return make(root, "broadcast", part, shape=shape, dimensions=tuple(kept))


def _joined(
    root: Instruction, holes: tuple[Holes, ...], parts: dict[tuple[Phases, ...], Instruction]
) -> Instruction:
    """The outputs of all phases, each where it belongs: from the last dimension on."""
    sizes = list(root.shape.dims)
    for n in range(len(holes) - 1, -1, -1):
        h = holes[n]
        sizes[h.out] = h.outputs_each * h.phases
        at = h.out + n + 1
        joined: dict[tuple[Phases, ...], Instruction] = {}
        for outer in dict.fromkeys(phases[:n] for phases in parts):
            each = [parts[*outer, p] for p in h.groups]
            is_one = len(each) == 1
            both = each[0] if is_one else make(root, "concatenate", *each, dimensions=(at,))
            joined[outer] = both
        parts = joined
    (whole,) = parts.values()
    whole = make(root, "reshape", whole, shape=root.shape.with_dims(sizes))
    if whole.shape.dims == root.shape.dims:
        return whole
    ends = [SliceDim(0, n) for n in root.shape.dims]
    for h in holes:
        ends[h.out] = SliceDim(h.before, h.before + h.outputs)
    return make(root, "slice", whole, slice=tuple(ends))
