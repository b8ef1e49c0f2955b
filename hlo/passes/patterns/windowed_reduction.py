"""Windows over what is only moved, windows of all before, and windows over bases with holes.

Along a dimension whose base is dilated by d, as in the gradient of a mean over windows, the window
of output d * q + r meets every d-th position only. Phases whose windows hold the same elements have
the same results, which are reduced once and then repeated.
"""

from __future__ import annotations

from itertools import product
from math import prod

from msgspec.structs import replace

from hlo.attributes.padding import PaddingDim
from hlo.attributes.window import Window, WindowDim
from hlo.ir.instruction import Instruction
from hlo.ops.identities import identity
from hlo.ops.making import make
from hlo.passes.patterns.matching import (
    has_one_user,
    ints,
    is_plain,
    is_splat,
)
from hlo.passes.patterns.phases import Holes, Phases, interleaved
from hlo.passes.patterns.reduction import reducer_opcode
from hlo.passes.rewriting import rewrite

MOST_PARTS = 4  # The most reductions that stand for one window over a base with holes.
LEAST_RESULTS = 1 << 12  # Each kernel takes its time to be made.
PLAIN = WindowDim(1)


@rewrite("reduce-window", operand="reshape")
def window_of_added_dims(root: Instruction) -> Instruction | None:
    """window(reshape(x), z) => reshape(window(x, z))  where the reshape adds dimensions of size 1
    that the window leaves alone
    """
    window = root.get("window")
    if len(root.operands) != 2 or not isinstance(window, Window) or not is_plain(root.shape):
        return None
    reshaped, z = root.operands
    if reshaped.opcode != "reshape":
        return None
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
    if moved.opcode != "transpose":
        return None
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
    holes = tuple(h.joined(is_large=True) for h in _window_holes(root, x, dims))
    parts = prod(len(h.groups) for h in holes)
    if not holes or parts > MOST_PARTS or root.shape.size < LEAST_RESULTS:
        return None
    made = {
        phases: _repeated(root, holes, phases, _common(root, x, dims, holes, phases))
        for phases in product(*(h.groups for h in holes))
    }
    return interleaved(root, holes, made, [h.out + n + 1 for n, h in enumerate(holes)])


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
