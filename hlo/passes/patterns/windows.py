"""reduce-window: a base with holes is reduced once for each group of phases of the outputs.

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
from hlo.ir.instruction import Instruction
from hlo.ops.identities import identity
from hlo.ops.making import make
from hlo.passes.patterns.holes import Holes, Phases
from hlo.passes.patterns.matching import is_plain, is_splat
from hlo.passes.patterns.reduction import reducer_opcode
from hlo.passes.rewriting import rewrite

MOST_PARTS = 4  # The most reductions that stand for one.
LEAST_RESULTS = 1 << 12  # Each kernel takes its time to be made.
PLAIN = WindowDim(1)


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
    holes = tuple(h.joined for h in _holes(root, x, dims))
    parts = prod(len(h.groups) for h in holes)
    if not holes or parts > MOST_PARTS or root.shape.size < LEAST_RESULTS:
        return None
    made = {
        phases: _repeated(root, holes, phases, _part(root, x, dims, holes, phases))
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


def _holes(root: Instruction, x: Instruction, dims: tuple[WindowDim, ...]) -> tuple[Holes, ...]:
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


def _part(
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
