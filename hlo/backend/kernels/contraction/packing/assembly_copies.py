"""Assembly copies: packing of plain f32 and f64 factors, whose code costs LLVM no time.

    along   the free set is contiguous: rows of memory to rows of panels
    across  depth is contiguous: squares of 128 bits a side, transposed in registers

Assembly without masks copies whole panels along the free set; other forms, types and targets are
packing.py's loops.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from hlo.backend.ir.arithmetic import add, advanced, divided, times
from hlo.backend.ir.called import as_function, call
from hlo.backend.ir.control import loop, when_rest
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa import assembly
from hlo.backend.isa.assembly import Assembly
from hlo.backend.kernels.contraction.microkernels.assembly import REACH, tile_assembly
from hlo.backend.kernels.contraction.packing.form import Packing, PanelRange
from hlo.backend.kernels.contraction.packing.packing import each_vector, pack
from hlo.backend.kernels.contraction.problem.addressing import address_of, handed
from hlo.backend.kernels.contraction.problem.ring import element_address, is_plain

CHUNK = 64  # Rows of memory that the next panel meets again while their pages are known.
FEW_ROWS = 8  # The same of rows that come from far: so many streams the processor itself foresees.


def rows_at_once(packing: Packing) -> int:
    """Rows of memory that go to all panels before further ones do."""
    return FEW_ROWS if packing.is_far else CHUNK


def in_chunks(packing: Packing) -> bool:
    """Whether some rows of memory go to a panel before the next panel has its own."""
    return is_along(packing) and _words(packing).has_masks


def bytes_ahead(packing: Packing) -> int:
    """How far ahead rows that go to all panels one by one are asked for; 0: they are not. A unit's
    panels take a few lines of each, too few for the processor to foresee.
    """
    source = packing.source
    if not packing.is_far or in_chunks(packing) or not is_along(packing) or not source.depth:
        return 0
    ahead = FEW_ROWS * source.depth[0][1] * source.dtype.item_bytes
    return ahead if abs(ahead) < REACH // 2 else 0


def panels_ahead(packing: Packing) -> int:
    """How many panels ahead each row is asked for; 0: it is not. 32x3072x768 and 32x768x3072 on Zen
    4, with few rows at once: 0.82 and 0.87 of the time.
    """
    if not packing.is_far:
        return 0
    ring = packing.ring
    panel_bytes = FEW_ROWS * packing.panels.width * ring.scalar_bytes
    return max(1, ring.target.machine.rates.awaited_bytes // panel_bytes)


def is_assembly(packing: Packing) -> bool:
    """Whether `packed` leaves no loop to LLVM."""
    return is_along(packing) or is_across(packing) or _is_copy(packing)


def packed(w: Writer, packing: Packing, block: PanelRange) -> None:
    """Like `pack`, as assembly where that serves."""
    if is_along(packing):
        (_along if in_chunks(packing) else _by_row)(w, packing, block)
    elif is_across(packing):
        _across(w, packing, block)
    else:
        pack(w, packing, block)


def called(w: Writer, packing: Packing, block: PanelRange) -> Kernel:
    """Like `pack`, by a function: LLVM's time grows faster than a function, and a product with
    tiles of assembly is left without loops of its own. What is called."""
    inner = Writer()
    fields = {name: getattr(block, name) for name in block.__struct_fields__}
    given = {name: value for name, value in fields.items() if value is not None}
    source, own = handed(block.source, inner)
    del given["source"]
    moved = {name: value for name, value in given.items() if not value.is_constant}
    names = {name: Value(f"%{name}", value.type) for name, value in moved.items()}
    packed(inner, packing, replace(block, source=source, **names))
    parameters = [parameter for parameter, _ in own]
    function = as_function(inner, [*parameters, *names.values()], has_entry=False)
    call(w, function, *(value for _, value in own), *moved.values())
    return function


def _is_copy(packing: Packing) -> bool:
    """Whether `pack` copies rows as they are."""
    source = packing.source
    plain = is_plain(source.dtype, packing.ring) and not source.is_made
    return packing.by_rows and len(packing.source.depth) == 1 and plain


def _serves(packing: Packing) -> bool:
    ring, source = packing.ring, packing.source
    if tile_assembly(ring) is None or packing.by_rows or source.is_made:
        return False
    return is_plain(source.dtype, ring) and len(source.depth) <= 1


def is_along(packing: Packing) -> bool:
    """Whether rows of memory are copied to rows of panels."""
    if not _serves(packing) or not packing.source.is_free_contiguous:
        return False
    panels = packing.panels
    is_even = not panels.overlaps and not panels.exceeds(packing.source.free_size)
    return _words(packing).has_masks or is_even


def is_across(packing: Packing) -> bool:
    """Whether squares along depth are turned."""
    source = packing.source
    if not _serves(packing) or not _words(packing).has_masks:
        return False
    if source.is_free_contiguous or not source.is_depth_contiguous:
        return False
    if len(source.free) != 1 or packing.panels.exceeds(source.free_size):
        return False
    reach = abs(source.free[0][1]) * packing.ring.lanes * packing.ring.scalar_bytes
    return source.depth_size >= packing.square and reach < REACH // 2


# -- along the free set ------------------------------------------------------------------------


def _along(w: Writer, packing: Packing, block: PanelRange) -> None:
    """for some rows of memory: for panel: rows."""
    source, panels, ring = packing.source, packing.panels, packing.ring
    stride = source.depth[0][1] if source.depth else 0
    size, rows = block.depth_size, rows_at_once(packing)
    whole = size.integer or 0  # 0: the run knows it

    def at_chunk(i: Value, _: list[Value]) -> list[Value]:
        done = times(w, i, rows)
        count = w.int(min(rows, whole))
        if whole == 0 or (whole > rows and whole % rows):
            count = w.intrinsic("llvm.umin", "i64", w.binary("sub", size, done), w.int(rows))
        k = add(w, block.depth_begin, done)
        row = element_address(w, address_of(block.source), times(w, k, stride), source.dtype)
        target = advanced(w, block.target, times(w, k, packing.k_step), ring.scalar)

        def at_panel(p: Value, _: list[Value]) -> list[Value]:
            start = panels.start(w, add(w, block.first, p))
            to = advanced(w, target, times(w, p, packing.panel_size), ring.scalar)
            address = element_address(w, row, start, source.dtype)
            mask = _last_mask(w, packing, start) if panels.exceeds(source.free_size) else None
            _write_rows(w, packing, (address, to, count), stride, mask)
            return []

        loop(w, block.count, [], at_panel)
        return []

    chunks = w.binary("udiv", add(w, size, w.int(rows - 1)), w.int(rows))
    loop(w, chunks, [], at_chunk)


def _last_mask(w: Writer, packing: Packing, start: Value) -> Value:
    """The lanes of the panel's last vector that exist, as bits."""
    lanes, panels = packing.ring.lanes, packing.panels
    first = packing.source.free_size - (panels.width - lanes)
    left = w.binary("sub", w.int(first), start)
    count = w.intrinsic("llvm.umin", "i64", left, w.int(lanes))
    return w.binary("sub", w.binary("shl", w.int(1), count), w.int(1))


def _write_rows(
    w: Writer,
    packing: Packing,
    registers: tuple[Value, Value, Value],
    stride: int,
    mask: Value | None,
) -> None:
    """registers: source, target, count of rows. Operands: $0 source, $1 target, $2 count, mask."""
    ring, words = packing.ring, _words(packing)
    size, row = ring.scalar_bytes, ring.target.vector_bytes
    vectors = packing.panels.width // ring.lanes
    lines = [] if mask is None else [words.mask("${3:k}")]
    lines.append(words.label(1))
    for v in range(vectors):
        masked = mask is not None and v == vectors - 1
        lines.append(words.load(f"{row * v}($0)", v, is_masked=masked))
    lines += [words.store(v, f"{row * v}($1)") for v in range(vectors)]
    if ahead := panels_ahead(packing):
        first = ahead * vectors * row
        lines += [words.fetch(f"{first + row * v}($0)") for v in range(vectors)]
    lines += [words.advance("$0", stride * size), words.advance("$1", packing.k_step * size)]
    lines += [words.count_down("$2"), words.again(1), words.leave()]
    assembly.write(w, lines, registers, [] if mask is None else [mask], words.names(vectors))


def _by_row(w: Writer, packing: Packing, block: PanelRange) -> None:
    """for row of memory: all panels. Rows that lie a multiple of a cache's way apart, as those of
    most weights do, would drive each other out of it before the next panel reads on. Zen 3, two
    threads, 49 to 512 rows by 768 x 3072 and 3072 x 768, beside LLVM's loop without hints: 0.87 to
    0.97 of the product's time.
    """
    source, ring = packing.source, packing.ring
    stride = source.depth[0][1] if source.depth else 0
    begin = times(w, block.first, packing.panels.step)
    base = element_address(w, address_of(block.source), begin, source.dtype)
    lines = list(_row_lines(packing))
    names = _words(packing).names(packing.panels.width // ring.lanes)

    def at_row(i: Value, _: list[Value]) -> list[Value]:
        k = add(w, block.depth_begin, i)
        row = element_address(w, base, times(w, k, stride), source.dtype)
        to = advanced(w, block.target, times(w, k, packing.k_step), ring.scalar)
        assembly.write(w, lines, (row, to, block.count), [], names)
        return []

    loop(w, block.depth_size, [], at_row)


def _row_lines(packing: Packing) -> Iterator[str]:
    """A row's part of each panel. Operands: $0 source, $1 target, $2 count of panels."""
    ring, words = packing.ring, _words(packing)
    size, vector = ring.scalar_bytes, ring.target.vector_bytes
    vectors = packing.panels.width // ring.lanes
    yield words.label(1)
    yield from (words.load(f"{vector * v}($0)", v) for v in range(vectors))
    yield from (words.store(v, f"{vector * v}($1)") for v in range(vectors))
    if ahead := bytes_ahead(packing):
        lines = range(0, vectors * vector, ring.target.machine.line_bytes)
        yield from (words.fetch(f"{ahead + at}($0)") for at in lines)
    yield words.advance("$0", packing.panels.step * size)
    yield words.advance("$1", packing.panel_size * size)
    yield words.count_down("$2")
    yield words.again(1)
    yield words.leave()


def _words(packing: Packing) -> Assembly:
    words = tile_assembly(packing.ring)
    assert words is not None, "asked for where assembly serves"
    return words


# -- along depth -------------------------------------------------------------------------------


def _across(w: Writer, packing: Packing, block: PanelRange) -> None:
    """for panel: for group of lanes: squares; what is left of depth is in the one that ends it."""
    source, step, size = packing.source, packing.square, block.depth_size
    lines, registers = list(_square_lines(packing)), _words(packing).names(8)

    def at_vector(start: Value, target: Value) -> None:
        offset = times(w, start, source.free[0][1])

        def squares(first: Value, count: Value) -> None:
            k = add(w, block.depth_begin, first)
            base = address_of(block.source)
            address = element_address(w, base, add(w, offset, k), source.dtype)
            to = advanced(w, target, times(w, k, packing.k_step), packing.ring.scalar)
            assembly.write(w, lines, (address, to, count), [], registers)

        squares(w.int(0), divided(w, size, step))
        when_rest(w, size, step, lambda: squares(add(w, size, w.int(-step)), w.int(1)))

    each_vector(w, packing, block, at_vector)


def _square_lines(packing: Packing) -> Iterator[str]:
    """Squares of a group, one after the other."""
    words, size = _words(packing), packing.ring.scalar_bytes
    yield words.label(1)
    yield from words.turned(packing.source.free[0][1] * size, packing.k_step * size)
    yield words.advance("$0", packing.square * size)
    yield words.advance("$1", packing.square * packing.k_step * size)
    yield words.count_down("$2")
    yield words.again(1)
    yield words.leave()
