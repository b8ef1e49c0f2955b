"""Transposed loads: elements that are neighbours in memory, read by rows and turned in registers.

positions p, p+1, .. p+n-1, lanes a constant stride apart, or each where a run-time value says  =>
one row load per lane, log2(n) rounds of exchanges between rows, n vectors with the lanes that were
asked for.
Rows shorter than a vector lie in one several at a time, and are turned a few columns at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.isa.target import Target
from hlo.backend.lanes import masked, types
from hlo.backend.lanes.access import Memory, lane_offsets, lane_zero, mask_of
from hlo.backend.lanes.alternating import part_lanes
from hlo.backend.lanes.masked import constant_mask
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.strided import stretch
from hlo.backend.lanes.types import Lanes
from hlo.backend.loops.vectors import MOST_LANES
from hlo.indexing.affine import Expr, stride
from hlo.ir.dtype import DType

_RUN_BYTES = 16  # Bytes of a row that are loaded at a time.
_FEWEST_COLUMNS = 4  # Fewer columns are not worth turning and are gathered.
_FEWEST_LANES = 4
# Of a stretch of narrow elements, and of a row: the limits between the two ways.
_FEW_CHUNKS, _LONG_RUN = 2, 8
_FOUND_BYTES = 32  # Of rows that lie anywhere: longer ones are read along the lanes.
_ROW_OPERATIONS = 3  # For each lane: its address is taken out, its row loaded and joined.
_LOOKED_UP = 16  # Lanes that `Cycles.lookup` is about.
_WORD_BYTES = 4  # Narrower elements are turned so many bytes at a time.


def is_square(positions: Sequence[Expr]) -> bool:
    """Whether the positions are one square: as many as lanes, neighbours in memory."""
    first = positions[0]
    lanes = first.lanes
    if lanes < 4 or len(positions) != lanes:
        return False
    step = stride(first)
    is_strided = step is None or abs(step) > 1
    if not is_strided or not _is_known(mask_of(first)):
        return False
    return all(
        p.terms == first.terms and p.constant == first.constant + k for k, p in enumerate(positions)
    )


def _is_known(mask: object) -> bool:
    return mask is None or (isinstance(mask, Value) and mask.mask is not None)


def load_square(nest: Nest, memory: Memory, positions: Sequence[Expr]) -> list[Lanes]:
    """The lanes at each position."""
    w = nest.w
    first = positions[0]
    lanes = first.lanes
    element = types.storage_scalar(memory.dtype)
    type = vector_of(element, lanes)
    mask = mask_of(first)
    live = lanes if mask is None else sum(mask.mask or ())
    rows = [w.load(at, type, 1) for at in _row_addresses(nest, memory, first, live)]
    rows += [w.zero(type)] * (lanes - live)
    turned = transposed(nest, rows)
    return [types.decoded(w, nest.target, raw, memory.dtype) for raw in turned]


def _row_addresses(nest: Nest, memory: Memory, first: Expr, live: int) -> list[Value]:
    """Where the lanes' rows begin, of the lanes that are in the loop's range."""
    w, element, step = nest.w, types.storage_scalar(memory.dtype), stride(first)
    if step is None:
        base, offsets = lane_offsets(nest, memory, first, element)
        return [w.address(base, w.extract(offsets, lane), element) for lane in range(live)]
    # Lane 0 of the loop variable is its scalar value; lane l lies l steps further.
    start = Expr({lane_zero(a): k for a, k in first.terms.items()}, first.constant)
    pointer = nest.pointer(memory.base, start, element)
    return [w.address(pointer, w.int(k * step), element) if k else pointer for k in range(live)]


def are_rows(target: Target, dtype: DType, positions: Sequence[Expr]) -> bool:
    """Whether lanes are rows of which the positions are neighbouring elements, row after row of
    the batch, and reading them one by one would gather them."""
    first = positions[0]
    lanes, step = first.lanes, stride(first)
    if step is None:
        return lanes >= _FEWEST_LANES and _are_found_rows(target, dtype, positions)
    if lanes < _FEWEST_LANES or step < 2:
        return False
    if any(p.lanes != lanes or stride(p) != step or mask_of(p) is not None for p in positions):
        return False  # a batch's last vectors may be short ones
    widths = [_width(dtype, lanes, len(run)) for run in _runs(positions)]
    if not all(widths):
        return False
    shuffles = target.isa.permutes_bytes
    read = stretch(step, lanes, dtype.item_bytes, target.vector_bytes, shuffles=shuffles)
    if read is None or _packed(dtype) == 1:
        return read is None
    return len(read.starts) > _FEW_CHUNKS and min(widths) >= _LONG_RUN


def _are_found_rows(target: Target, dtype: DType, positions: Sequence[Expr]) -> bool:
    """The same of rows that each lie where a run-time value says: whether to load a row for each
    lane and turn them takes less than to gather column by column."""
    lanes = positions[0].lanes
    if any(p.lanes != lanes or stride(p) is not None or mask_of(p) is not None for p in positions):
        return False
    for run in _runs(positions):
        words = _row_width(len(run)) // _packed(dtype)
        if _is_a_word(dtype, run):
            continue
        if not 2 <= words <= lanes or words * max(_WORD_BYTES, dtype.item_bytes) > _FOUND_BYTES:
            return False
        if len(run) < _row_width(len(run)) and not target.isa.masks_loads_of(dtype.bits):
            return False
        # An address and a load a lane, which are put together, and as many exchanges as columns.
        turned = _ROW_OPERATIONS * lanes + words * (words.bit_length() - 1)
        if len(run) * target.machine.cycles.lookup * lanes <= turned * _LOOKED_UP:
            return False
    return True


def _is_a_word(dtype: DType, run: Sequence[Expr]) -> bool:
    return len(run) == _packed(dtype) > 1


def _row_width(count: int) -> int:
    """The power of two that holds so many columns."""
    return 1 << (count - 1).bit_length()


def load_rows(nest: Nest, memory: Memory, positions: Sequence[Expr]) -> list[Lanes]:
    """The lanes at each position."""
    w = nest.w
    found: dict[Expr, Lanes] = {}
    for run in _runs(positions):
        if stride(run[0]) is None:
            turned = _found_columns(nest, memory, run)
            found |= {
                p: types.decoded(w, nest.target, raw, memory.dtype)
                for p, raw in zip(run, turned, strict=False)
            }
            continue
        width = _width(memory.dtype, run[0].lanes, len(run))
        for k in range(0, len(run), width):
            # The last columns may have been there already.
            part = run[min(k, len(run) - width) :][:width]
            turned = _columns(nest, memory, part)
            found |= {
                p: types.decoded(w, nest.target, raw, memory.dtype)
                for p, raw in zip(part, turned, strict=True)
            }
    return [found[p] for p in positions]


def _runs(positions: Sequence[Expr]) -> list[list[Expr]]:
    """Neighbours in memory, each run ascending."""
    runs: list[list[Expr]] = []
    ordered = sorted(dict.fromkeys(positions), key=lambda p: p.constant)
    for p in ordered:
        for run in runs:
            if run[0].terms == p.terms and run[-1].constant + 1 == p.constant:
                run.append(p)
                break
        else:
            runs.append([p])
    return runs


def _width(dtype: DType, lanes: int, count: int) -> int:
    """How many columns are turned at a time; 0: none."""
    most = max(_RUN_BYTES // dtype.item_bytes, _FEWEST_COLUMNS)
    width = 1 << (min(count, most).bit_length() - 1)
    words = width // _packed(dtype)
    return width if width >= _FEWEST_COLUMNS and 2 <= words <= lanes <= MOST_LANES else 0


def _packed(dtype: DType) -> int:
    """How many elements are turned as one."""
    return max(1, _WORD_BYTES // dtype.item_bytes)


def _columns(nest: Nest, memory: Memory, part: Sequence[Expr]) -> list[Value]:
    """As many vectors as there are neighbours: row q*n + k is part q of register k until turned."""
    w, first, packed = nest.w, part[0], _packed(memory.dtype)
    lanes, step, words = first.lanes, stride(first), len(part) // packed
    element = types.storage_scalar(memory.dtype)
    base = Expr({lane_zero(a): k for a, k in first.terms.items()}, first.constant)
    pointer = nest.pointer(memory.base, base, element)
    assert step is not None
    type = vector_of("i32" if packed > 1 else element, words)
    rows = [
        w.load(w.address(pointer, w.int(lane * step), element) if lane else pointer, type, 1)
        for lane in range(lanes)
    ]
    return _turned(nest, memory.dtype, rows)


def _found_columns(nest: Nest, memory: Memory, run: Sequence[Expr]) -> list[Value]:
    """The columns of rows that lie anywhere, and of as many more as fill a power of two."""
    w, packed, width = nest.w, _packed(memory.dtype), _row_width(len(run))
    element = types.storage_scalar(memory.dtype)
    if _is_a_word(memory.dtype, run):
        base, offsets = lane_offsets(nest, memory, run[0], element)
        addresses = w.offset("getelementptr", base, offsets, element)
        word = masked.gather(w, vector_of("i32", offsets.lanes), addresses, 1, None)
        return _unpacked(nest, memory.dtype, [word])
    bits = {"half": "i16", "bfloat": "i16"}.get(element, element)
    mask = constant_mask([k < len(run) for k in range(width)]) if len(run) < width else None
    rows = [
        masked.load(w, vector_of(bits if packed > 1 else element, width), address, 1, mask)
        for address in _row_addresses(nest, memory, run[0], run[0].lanes)
    ]
    if packed > 1:
        rows = [w.cast("bitcast", row, vector_of("i32", width // packed)) for row in rows]
    return _turned(nest, memory.dtype, rows)


def _turned(nest: Nest, dtype: DType, rows: Sequence[Value]) -> list[Value]:
    """A row for each lane as a vector for each column."""
    words = rows[0].lanes
    registers = transposed(nest, [nest.w.end_to_end(rows[k::words]) for k in range(words)])
    return _unpacked(nest, dtype, registers)


def _unpacked(nest: Nest, dtype: DType, registers: list[Value]) -> list[Value]:
    """The elements of words that hold several each."""
    packed, element = _packed(dtype), types.storage_scalar(dtype)
    if packed == 1:
        return registers
    return [
        _part(nest, register, k * 8 * dtype.item_bytes, element)
        for register in registers
        for k in range(packed)
    ]


def _part(nest: Nest, words: Value, shift: int, element: str) -> Value:
    """The elements that begin at a bit of each word."""
    w = nest.w
    bits = {"half": "i16", "bfloat": "i16"}.get(element, element)
    shifted = w.binary("lshr", words, w.int(shift, words.type)) if shift else words
    low = w.cast("trunc", shifted, vector_of(bits, words.lanes))
    return w.cast("bitcast", low, vector_of(element, words.lanes))


def transposed(nest: Nest, rows: list[Value]) -> list[Value]:
    """n vectors of n lanes turned: result k holds lane k of every row. Of longer vectors squares of
    n lanes, which lie side by side.
    """
    if not nest.target.isa.picks(rows[0].type):
        return turned_parts(nest.w, rows)
    from hlo.backend.lanes.permuted import permuted

    for _ in range(len(rows).bit_length() - 1):
        rows = _mixed(rows, len(rows), partial(permuted, nest))
    return rows


def turned_parts(w: Writer, rows: list[Value]) -> list[Value]:
    """The same by shuffles that machines have: parts of 128 bits and more are exchanged whole, and
    the machine interleaves inside of 128 bits. Interleaving across them takes an instruction for
    either half and one to join them: 1.4 to 3.8 times as many, which LLVM takes up to ten times as
    long to find.
    """
    n = len(rows)
    part = min(n, part_lanes([rows[0].scalar_type]))
    size = n // 2
    while size >= part:
        rows = _exchanged(w, rows, size)
        size //= 2
    turned: list[Value] = []
    for first in range(0, n, part):
        inner = rows[first : first + part]
        for _ in range(part.bit_length() - 1):
            inner = _mixed(inner, part, w.shuffle)
        turned += inner
    return turned


def _exchanged(w: Writer, rows: list[Value], size: int) -> list[Value]:
    """Every second run of `size` lanes exchanged with the run before it in the row `size` later."""
    lanes = rows[0].lanes
    early = [lane - size + lanes if lane & size else lane for lane in range(lanes)]
    late = [lane + lanes if lane & size else lane + size for lane in range(lanes)]
    return [
        w.shuffle(rows[k - size], rows[k], late) if k & size else
        w.shuffle(rows[k], rows[k + size], early)
        for k in range(len(rows))
    ]  # fmt: skip


def _mixed(
    rows: list[Value], width: int, shuffle: Callable[[Value, Value, list[int]], Value]
) -> list[Value]:
    """Row k's lanes between those of row k + n/2, inside of each `width` lanes."""
    n = len(rows)
    lanes = rows[0].lanes
    mixed: list[Value] = []
    for k in range(n // 2):
        for start in (0, width // 2):
            order = [
                base + start + lane // 2 + lane % 2 * lanes
                for base in range(0, lanes, width)
                for lane in range(width)
            ]
            mixed.append(shuffle(rows[k], rows[k + n // 2], order))
    return mixed
