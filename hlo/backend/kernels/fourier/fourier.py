"""fft: one kernel for each transformed axis, two where lines are long and few, three of real ones.

    x[b j + i]  ->  columns of length a, twisted  ->  rows of length b  ->  X[k + a l],  n = a b

The real axis is the first of an RFFT and the last of an IRFFT; every other kernel may work in
place. Source: Cooley and Tukey 1965; for long lines Bailey's four steps, 1990.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod

from msgspec.structs import replace

from hlo.backend.ir.kernel import Kernel, KernelCall, KernelSequence
from hlo.backend.isa.target import Target
from hlo.backend.kernels.fourier.halves import halves_kernel
from hlo.backend.kernels.fourier.lines import lines_kernel
from hlo.backend.kernels.fourier.plan import (
    MOST_TWIST_BYTES,
    Lines,
    Side,
    convolution_length,
    is_smooth,
)
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.machine import COMMON
from hlo.ops.linear_algebra import FftAttributes

# The most elements of a line whose scratch memory stays in the second-level cache.
LONGEST = COMMON.second_cache.bytes // 512
LONGEST_CONVOLUTION = 8192
LEAST_SPLIT = 128
_LEAST_HALVED_OF_HALF = 1024  # Shorter ones that fill half of a vector stay lanes.
_LEAST_LANES = 4
_SHARED = 1 << 14  # The least numbers of one vector of lines that two threads share.

OPERAND, RESULT, BETWEEN, COLUMNS, HALVES = range(5)  # The buffers of the sequence.


def fourier_kernels(instruction: Instruction, target: Target) -> KernelSequence | None:
    """The kernels of an fft; None where a length is too long: left to the reference's library."""
    x, shape = instruction.operands[0].shape, instruction.shape
    if not (x.size and shape.size):
        return None
    attrs = FftAttributes.of(instruction.attributes)
    kind, axes = attrs.fft_type, _axes(x, shape, attrs.fft_type, attrs.fft_length)
    calls: list[KernelCall] = []
    at = OPERAND
    for number, lines in enumerate(axes):
        waits = kind == "IRFFT" and number < len(axes) - 1
        to = BETWEEN if waits else RESULT
        steps = _steps(lines, target)
        if steps is None:
            return None
        between = (COLUMNS,) if len(steps) == 2 else _around_halves(lines) if steps[1:] else ()
        places = (at, *between, to)
        for step, (source, aim) in zip(steps, pairwise(places), strict=True):
            is_halves = len(steps) == 3 and step is lines
            kernel = halves_kernel(step, target) if is_halves else _lines(step, target)
            calls.append(KernelCall(kernel, (source, aim)))
        at = to
    used = {place for call in calls for place in call.buffers}
    most = max(x.size_bytes, shape.size_bytes)
    sizes = {BETWEEN: x.size_bytes, COLUMNS: most, HALVES: most}
    return KernelSequence(tuple(calls), tuple(n * (at in used) for at, n in sizes.items()))


def _around_halves(lines: Lines) -> tuple[int, int]:
    """The buffers between the three kernels of a long real transform, in their order."""
    return (HALVES, COLUMNS) if lines.is_inverse else (COLUMNS, HALVES)


def _lines(lines: Lines, target: Target) -> Kernel:
    return lines_kernel(lines, _narrowed(lines, target))


def _narrowed(lines: Lines, target: Target) -> Target:
    """Vectors no longer than the lines need, whose buffers are shorter then; and half as long where
    two threads have one vector of lines, which they share so. A lane's numbers are what they were.
    """
    lanes = target.lanes(lines.complex)
    while lanes > _LEAST_LANES and 2 * lines.lanes <= lanes:
        lanes //= 2
    is_one = lines.outer == 1 and not lines.is_far and lanes // 2 < lines.lanes <= lanes
    is_long = lines.lanes * lines.size >= _SHARED and lanes > _LEAST_LANES
    if is_one and is_long and not target.is_alone:
        lanes //= 2
    machine = target.machine
    vector_bytes = machine.vector_bytes * lanes // target.lanes(lines.complex)
    return replace(target, machine=replace(machine, vector_bytes=vector_bytes))


def _axes(x: Shape, shape: Shape, kind: str, lengths: tuple[int, ...]) -> list[Lines]:
    """The lines of each axis, in the order in which they are transformed."""
    complex = _complex_type(x.dtype)
    rank, count = x.rank, len(lengths)
    # dimensions of the complex array that the other axes work on
    dims = shape.dims if kind == "RFFT" else x.dims
    others = list(range(rank - count, rank))
    lines: list[Lines] = []
    if kind in ("RFFT", "IRFFT"):
        others.pop()
        lines.append(_real_axis(x.dims, kind, lengths[-1], complex))
    plain = "IFFT" if kind in ("IFFT", "IRFFT") else "FFT"
    lines = [*lines, *(_axis(dims, d, plain, complex) for d in reversed(others))]
    if kind == "IRFFT":
        lines = [*lines[1:], lines[0]]
    if kind in ("IFFT", "IRFFT"):
        lines[-1] = replace(lines[-1], scale=1 / prod(lengths))
    return lines


def _complex_type(dtype: DType) -> DType:
    return dt.C128 if dtype.component is dt.F64 else dt.C64


def _axis(dims: tuple[int, ...], axis: int, kind: str, complex: DType) -> Lines:
    """The lines along an axis of a row-major complex array: neighbours, unless it is the last."""
    size, inner, outer = dims[axis], prod(dims[axis + 1 :]), prod(dims[:axis])
    if inner == 1:
        side = Side(0, 2 * size, 2)
        return Lines(complex, kind, size, 1, outer, side, side)
    side = Side(2 * size * inner, 2, 2 * inner)
    return Lines(complex, kind, size, outer, inner, side, side)


def _real_axis(dims: tuple[int, ...], kind: str, size: int, complex: DType) -> Lines:
    """The lines of the last axis, real on one side."""
    count = prod(dims[:-1])
    real, half = Side(0, size, 1, parts=1), Side(0, 2 * (size // 2 + 1), 2)
    source, target = (real, half) if kind == "RFFT" else (half, real)
    return Lines(complex, kind, size, 1, count, source, target)


def _steps(lines: Lines, target: Target) -> tuple[Lines, ...] | None:
    """The lines themselves, or the columns and the rows of which they are made; of real lines with
    these lines before or behind."""
    lanes = target.lanes(lines.complex)
    halved = _halved(lines, lanes)
    if halved is not None:
        return halved
    splits = lines.kind in ("FFT", "IFFT") and lines.outer == 1 and lines.source.step == 2
    is_sparse = lines.size >= LEAST_SPLIT and 2 * lines.lanes <= lanes
    if splits and (is_sparse or lines.size > LONGEST):
        found = _split(lines, lanes)
        if found is not None:
            return found
    inner = lines.inner
    if inner > LONGEST:
        return None
    if not is_smooth(inner) and convolution_length(inner) > LONGEST_CONVOLUTION:
        return None
    return (lines,)


def _halved(lines: Lines, lanes: int) -> tuple[Lines, Lines, Lines] | None:
    """Columns and rows of half as many complex numbers as a long real transform has, or one of
    which a vector would have few lines, and the kernel between those and the numbers themselves."""
    most = lanes // 4 if lines.inner < _LEAST_HALVED_OF_HALF else lanes // 2
    is_sparse = lines.inner >= LEAST_SPLIT and lines.lanes <= most
    if not lines.folds or not (is_sparse or lines.inner > LONGEST):
        return None
    side = Side(0, 2 * lines.inner, 2)
    kind = "IFFT" if lines.is_inverse else "FFT"
    inner = Lines(lines.complex, kind, lines.inner, 1, lines.lanes, side, side, lines.scale)
    found = _split(inner, lanes)
    if found is None:
        return None
    return (lines, *found) if lines.is_inverse else (*found, lines)


def _split(lines: Lines, lanes: int) -> tuple[Lines, Lines] | None:
    """Columns and rows of lines that follow each other; None where the length has no factors."""
    n = lines.size
    if not is_smooth(n) or n * lines.complex.item_bytes > lanes * MOST_TWIST_BYTES:
        return None

    def cost(a: int) -> tuple[int, int]:
        b = n // a
        whole = -(-b // lanes) * lanes * a + -(-a // lanes) * lanes * b
        return whole, abs(a - b)

    pairs = [a for a in range(2, n // 2 + 1) if n % a == 0 and max(a, n // a) <= LONGEST]
    if not pairs:
        return None
    a = min(pairs, key=cost)
    b = n // a
    source, target = lines.source, lines.target
    columns = Lines(
        lines.complex, lines.kind, a, lines.lanes, b,
        Side(source.lane, 2, 2 * b), Side(2 * n, 2, 2 * b), total=n,
    )  # fmt: skip
    rows = Lines(
        lines.complex, lines.kind, b, lines.lanes, a,
        Side(2 * n, 2 * b, 2), Side(target.lane, 2, 2 * a), lines.scale,
    )  # fmt: skip
    return columns, rows
