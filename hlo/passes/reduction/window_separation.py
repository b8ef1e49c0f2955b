"""window-separation: a large window is a window of windows.

    window(x, a x b)  =>  window(window(x, a x 1), 1 x b)
    window(x, a * b)  =>  window(window(x, a), b elements a apart)

Terms of a result are a + b instead of a * b, for one more array that is written and read. Where
terms may be taken twice (maxima), b parts of length a may overlap. Sums are reassociated, into
shorter chains than they had; those of narrow floats stay, for the array between would round them,
and products of floats, which overflow in one order and not in another.
Scans, whose windows are as long as their dimension, have a kernel of their own.
"""

from __future__ import annotations

from math import prod

from msgspec.structs import replace

from hlo.analysis.reducers import Reducer, reducer_of
from hlo.attributes.window import Window, WindowDim
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ops.identities import identity
from hlo.ops.making import make
from hlo.passes.liveness import replace as put_in_place
from hlo.passes.liveness import replaceable
from hlo.passes.patterns.matching import is_plain, is_splat

# What an element of the array between takes, in terms of a sum; and a term of others: maxima of
# floats ask for NaN, and lanes that are apart are read one by one.
BETWEEN = 8
SELECTED = 3
APART = 3
LEAST_TERMS = 1 << 16  # In all: each kernel takes its time to be made.
Parted = tuple[list[WindowDim], list[WindowDim]]  # The first windows, and the last ones.
WIDE_BITS = 32  # Sums of narrower floats are kept wider than the array between would be.


def window_separation(module: Module) -> bool:
    """Reduce windows along one dimension after the other, and long ones in parts.

    window(x, a x b) => window(window(x, a x 1), 1 x b), and a * b likewise. O(instructions).
    """
    waiting = [i for i in replaceable(module, "reduce-window") if _is_separable(i)]
    changed = False
    while waiting:
        window = waiting.pop()
        parted = _by_dimensions(window) or _in_parts(window)
        if parted is None:
            continue
        first = _windowed(window, window.operands[0], parted[0])
        last = _windowed(window, first, parted[1])
        if _pays(window, first, last):
            put_in_place(window, last)
            waiting += [last, first]
            changed = True
        else:
            _take_out(last)
    return changed


def _is_separable(root: Instruction) -> bool:
    """Whether one array is reduced by an op in any order, from its identity on."""
    if len(root.operands) != 2 or not is_plain(root.shape) or not is_plain(root.operands[0].shape):
        return False
    x, z = root.operands
    reducer, dtype = reducer_of(root), root.shape.dtype
    if x.shape.dtype is not dtype or dtype.is_complex or len(reducer.opcodes) != 1:
        return False
    nothing = identity(reducer.opcodes[0], dtype)
    if not reducer.reassociates or nothing is None or not is_splat(z, nothing):
        return False
    is_scan = any(w.size >= max(2, n) for w, n in zip(_dims(root), x.shape.dims, strict=True))
    is_free = reducer.selects or reducer.opcodes == ("add",) or not dtype.is_float
    is_rounded = dtype.is_float and dtype.bits < WIDE_BITS and not reducer.selects
    has_holes = any(w.base_dilation != 1 for w in _dims(root))
    return is_free and not (is_scan or is_rounded or has_holes) and root.shape.size > 0


def _dims(root: Instruction) -> tuple[WindowDim, ...]:
    window = root["window"]
    assert isinstance(window, Window)
    return window.dims


def _cost(window: Instruction) -> int:
    """What the terms of all results take."""
    dims = _dims(window)
    term = SELECTED if window.shape.dtype.is_float and reducer_of(window).selects else 1
    term += APART if dims[-1].stride > 1 else 0
    return term * prod(w.size for w in dims) * window.shape.size


def _pays(root: Instruction, first: Instruction, last: Instruction) -> bool:
    """Whether two windows take less than one."""
    terms = prod(w.size for w in _dims(root)) * root.shape.size
    after = _cost(first) + _cost(last) + BETWEEN * first.shape.size
    return _cost(root) > after and terms >= LEAST_TERMS


def _by_dimensions(root: Instruction) -> Parted | None:
    """The first dimension with a window apart from the others: the outermost one, as what is left
    is read along the innermost ones.
    """
    dims = _dims(root)
    long = [d for d, w in enumerate(dims) if w.size > 1]
    if len(long) < 2:
        return None
    first = long[0]
    others = [*dims[:first], WindowDim(1), *dims[first + 1 :]]
    return [dims[first] if d == first else WindowDim(1) for d in range(len(dims))], others


def _in_parts(root: Instruction) -> Parted | None:
    """A long window as parts of one length."""
    dims = _dims(root)
    long = [d for d, w in enumerate(dims) if w.size > 1]
    if len(long) != 1:
        return None
    (d,) = long
    w, outputs = dims[d], root.shape.dims[d]
    found = _lengths(w.size, reducer_of(root))
    if found is None:
        return None
    length, parts, apart = found
    starts = (outputs - 1) * w.stride + (parts - 1) * apart * w.window_dilation + 1
    reach = starts + (length - 1) * w.window_dilation
    base = root.operands[0].shape.dims[d]
    part = replace(w, size=length, stride=1, pad_high=reach - base - w.pad_low)
    whole = WindowDim(parts, w.stride, window_dilation=apart * w.window_dilation)
    first, last = ([x if k == d else WindowDim(1) for k in range(len(dims))] for x in (part, whole))
    return first, last


def _lengths(size: int, reducer: Reducer) -> tuple[int, int, int] | None:
    """A part's length, how many parts there are, and how far each is from the one before: those
    with the fewest terms.
    """
    best: tuple[int, int, int] | None = None
    for length in range(2, size):
        parts = -(-size // length)
        apart, rest = divmod(size - length, parts - 1)
        fits = not rest and (apart == length or reducer.idempotent)
        if fits and (best is None or length + parts < sum(best[:2])):
            best = length, parts, apart
    return best


def _windowed(root: Instruction, x: Instruction, dims: list[WindowDim]) -> Instruction:
    window, to_apply = Window(tuple(dims)), root["to_apply"]
    return make(root, "reduce-window", x, root.operands[1], window=window, to_apply=to_apply)


def _take_out(last: Instruction) -> None:
    """Two windows that are not worth it."""
    computation, (first, _) = last.computation, last.operands
    assert computation is not None
    for window in (last, first):
        computation.remove(window)
