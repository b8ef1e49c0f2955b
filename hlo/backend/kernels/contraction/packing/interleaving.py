"""Interleaving: elements of neighbouring depths as words, while columns are packed.

    row k of words:  row g * k, row g * k + 1, .. of elements  -->  word: low bits first

g: of words that a dot product takes (words/words.py). The elements may be computed as they are
read; what memory would hold of them is what words are made of.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo.backend.ir.control import set_flag
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.kernels.contraction.packing.form import Packing
from hlo.backend.kernels.contraction.problem.addressing import Place, Run, codes_of, moved
from hlo.backend.kernels.contraction.problem.elements import held
from hlo.backend.kernels.contraction.problem.ring import element_address
from hlo.backend.kernels.contraction.problem.subnormal import are_subnormal


def rows_of_words(w: Writer, packing: Packing, row: Place) -> list[Place]:
    """Where the elements of a row of words lie, of the one whose first is given."""
    joined, dtype = packing.source.joined, packing.source.dtype
    if joined is None:
        return []
    axes = ((joined.group, joined.step),)
    return [moved(w, row, w.int(n), axes, dtype) for n in range(joined.group)]


def word_of(
    w: Writer, packing: Packing, rows: Sequence[Place], run: Run, mask: Value | None
) -> Value:
    """A vector of words of these rows."""
    ring, dtype, joined = packing.ring, packing.source.dtype, packing.source.joined
    assert joined is not None, "of words"
    type = vector_of(f"i{8 * ring.scalar_bytes}", ring.lanes)
    total: Value | None = None
    for n, row in enumerate(rows):
        raw = codes_of(w, ring, dtype, row, run, ring.lanes, mask)
        part = w.cast("zext", held(w, ring.target, raw, dtype, joined.element), type)
        part = w.binary("shl", part, w.int(n * joined.element.bits, type)) if n else part
        total = part if total is None else w.binary("or", total, part)
    assert total is not None, "a word has elements"
    return total


def flag_words(w: Writer, words: Sequence[Value], flag: Value) -> None:
    """Set a flag where some element of the words is a subnormal number of bf16."""
    codes = [w.cast("bitcast", word, vector_of("i16", 2 * word.lanes)) for word in words]
    set_flag(w, are_subnormal(w, codes), flag)


def rows_ahead(packing: Packing) -> int:
    """How many rows of words ahead memory is asked for, 0: not at all. A panel's part of so many is
    what comes while a line is awaited. Zen 4, 32 rows by 4096 x 4096: 0.78 of the time.
    """
    source, ring = packing.source, packing.ring
    if source.joined is None or source.is_computed or not source.depth or not packing.is_far:
        return 0
    part_bytes = packing.panels.width * source.number_bytes
    return max(1, ring.target.machine.rates.awaited_bytes // part_bytes)


def bytes_ahead(packing: Packing) -> int:
    """The same in bytes of the factor."""
    source, rows = packing.source, rows_ahead(packing)
    return rows * source.depth[-1][1] * source.dtype.item_bytes if rows else 0


def ask_ahead(w: Writer, packing: Packing, rows: Sequence[Place], start: Value) -> None:
    """For a panel's part of the rows so far ahead, which may lie behind the factor: a hint is no
    access.
    """
    source, line_bytes = packing.source, packing.ring.target.machine.line_bytes
    ahead = bytes_ahead(packing)
    for row in rows if ahead else ():
        assert isinstance(row, Value), "in memory"
        at = element_address(w, row, start, source.dtype)
        for byte in range(0, packing.panels.width * source.dtype.item_bytes, line_bytes):
            there = w.offset("getelementptr", at, w.int(ahead + byte), "i8")
            w.prefetch(there, locality=2)
