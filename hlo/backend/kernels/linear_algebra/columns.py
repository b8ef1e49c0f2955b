"""Matrices by columns, as LAPACK wants them: functions between them and ours by rows.

Each is written for an element type and compiled once for all kernels of a program.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from hlo.backend.ir.called import as_function
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.target import Target
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.transposed import transposed

SQUARE = 8  # Rows and columns that are turned at once.
FROM, TO, IMAGINARY = (Value(f"%{name}", "ptr") for name in ("from", "to", "imaginary"))
ROWS, COLUMNS, COUNT = (Value(f"%{name}", "i64") for name in ("rows", "columns", "count"))


@lru_cache(maxsize=8)
def turning(target: Target, item_bytes: int) -> Kernel:
    """(from, to, rows, columns): to[c rows + r] = from[r columns + c]."""
    w = Writer()
    nest = Nest(w, target)
    element = {4: "i32", 8: "i64", 16: "<2 x i64>"}[item_bytes]

    def place(base: Value, row: Value, width: Value, column: Value) -> Value:
        index = w.binary("add", w.binary("mul", row, width), column)
        return w.address(base, index, element)

    def one(r: Value, c: Value) -> None:
        x = w.load(place(FROM, r, COLUMNS, c), element, min(item_bytes, 8))
        w.store(x, place(TO, c, ROWS, r), min(item_bytes, 8))

    def square(r: Value, c: Value) -> None:
        rows = _vectors(w, place(FROM, r, COLUMNS, c), COLUMNS, element)
        loads = [w.load(at, f"<{SQUARE} x {element}>", item_bytes) for at in rows]
        targets = _vectors(w, place(TO, c, ROWS, r), ROWS, element)
        for vector, at in zip(transposed(nest, loads), targets, strict=True):
            w.store(vector, at, item_bytes)

    if item_bytes == 16:  # a vector by itself
        _over(
            nest,
            w.int(0),
            ROWS,
            1,
            lambda r: _over(nest, w.int(0), COLUMNS, 1, lambda c: one(r, c)),
        )
        return as_function(w, (FROM, TO, ROWS, COLUMNS), is_library=True)
    whole_rows, whole = (w.binary("and", n, w.int(-SQUARE)) for n in (ROWS, COLUMNS))

    def band(r: Value) -> None:
        _over(nest, w.int(0), whole, SQUARE, lambda c: square(r, c))
        end = w.binary("add", r, w.int(SQUARE))
        _over(nest, whole, COLUMNS, 1, lambda c: _over(nest, r, end, 1, lambda k: one(k, c)))

    _over(nest, w.int(0), whole_rows, SQUARE, band)
    _over(
        nest, w.int(0), COLUMNS, 1, lambda c: _over(nest, whole_rows, ROWS, 1, lambda r: one(r, c))
    )
    return as_function(w, (FROM, TO, ROWS, COLUMNS), is_library=True)


def _vectors(w: Writer, first: Value, step: Value, element: str) -> list[Value]:
    addresses = [first]
    for _ in range(1, SQUARE):
        addresses.append(w.address(addresses[-1], step, element))
    return addresses


@lru_cache(maxsize=8)
def nan_finding(target: Target, scalar: str) -> Kernel:
    """(from, count): whether one of so many scalars is NaN."""
    w = Writer()

    def one(i: Value, found: list[Value]) -> list[Value]:
        x = w.load(w.address(FROM, i, scalar), scalar, 4)
        return [w.binary("or", found[0], w.compare("fcmp uno", x, x))]

    (found,) = Nest(w, target).loop(w.int(0), COUNT, 1, [w.int(0, "i1")], one)
    return as_function(w, (FROM, COUNT), found, is_library=True)


@lru_cache(maxsize=4)
def pairing(target: Target, scalar: str) -> Kernel:
    """(from, imaginary, to, count): complex eigenvectors by rows, from real ones by columns.

    Where an eigenvalue has an imaginary part, its vector's parts are this column and the next one;
    the next eigenvalue's vector is the conjugate.
    """
    w = Writer()
    nest = Nest(w, target)
    zero = w.float(0.0, scalar)

    def column(c: Value, carried: list[Value]) -> list[Value]:
        imaginary = w.load(w.address(IMAGINARY, c, scalar), scalar, 4)
        is_real = w.compare("fcmp oeq", imaginary, zero)
        is_second = w.select(is_real, w.int(0, "i1"), carried[0])
        first = w.binary("sub", c, w.cast("zext", is_second, "i64"))
        last = w.binary("sub", COUNT, w.int(1))
        second = w.intrinsic("llvm.smin", "i64", w.binary("add", first, w.int(1)), last)
        columns = [w.binary("mul", k, COUNT) for k in (first, second)]

        def row(r: Value) -> None:
            real, turned = (
                w.load(w.address(FROM, w.binary("add", k, r), scalar), scalar, 4) for k in columns
            )
            turned = w.select(is_second, w.unary("fneg", turned), turned)
            at = w.binary("add", w.binary("mul", r, COUNT), c)
            place = w.address(TO, at, f"[2 x {scalar}]")
            w.store(real, place, 4)
            imaginary_part = w.select(is_real, zero, turned)
            w.store(imaginary_part, w.address(place, w.int(1), scalar), 4)

        _over(nest, w.int(0), COUNT, 1, row)
        both = w.binary("or", is_real, is_second)
        return [w.binary("xor", both, w.int(1, "i1"))]

    nest.loop(w.int(0), COUNT, 1, [w.int(0, "i1")], column)
    return as_function(w, (FROM, IMAGINARY, TO, COUNT), is_library=True)


def _over(nest: Nest, low: Value, high: Value, step: int, body: Callable[[Value], None]) -> None:
    """body at low, low + step, ... while a whole step fits below high."""

    def run(i: Value, _: list[Value]) -> list[Value]:
        body(i)
        return []

    nest.loop(low, high, step, [], run)
