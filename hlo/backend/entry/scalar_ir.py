"""Scalars from Python as LLVM IR: where the bytes of a number object are, in a parameter's type.

    hlo_scalar(object, its type, row, eight bytes): an address, or null for what is left to Python

A NumPy scalar of the parameter's own type is read where it lies. A Python number is taken when the
type holds it exactly (hlo/runtime/arguments.py says the same in Python, and words the refusal).
"""

from __future__ import annotations

from hlo.backend.entry.layouts import Object, Row
from hlo.backend.entry.process import BFLOAT, DOUBLE, NUMBER_SYMBOLS, PRED, SIGNED, SINGLE, UNSIGNED
from hlo.backend.ir.control import Join
from hlo.backend.ir.interface import NULL, prototype
from hlo.backend.ir.procedure import Procedure, Unit
from hlo.backend.ir.words import Word

_MOST_EXACT = 1 << 53  # Every whole number up to this is a double.

SCALAR = prototype("ptr", "hlo_scalar", "ptr", "ptr", "ptr", "ptr")
_AS_LONG = prototype("i64", "PyLong_AsLongLongAndOverflow", "ptr", "ptr")


def define(unit: Unit) -> None:
    """The function, and the objects that it knows."""
    for symbol in NUMBER_SYMBOLS:
        unit.data(symbol, "external global i8")
    unit.define(SCALAR, _scalar)


def _scalar(p: Procedure, object: Word, type: Word, row: Word, place: Word) -> None:
    """The address of the object's own bytes, or of those that are written to the place."""
    overflow = p.stack("i32", 4)
    bytes, kind = row.load(Row.bytes), row.load(Row.kind)
    content = object.at(Object.content)
    with p.when(type.eq(row.load(Row.scalar))):
        p.ret(content)
    none, rounded = p.join(), p.join("double")
    none.go_if(kind.eq(0))
    with p.when(type.eq(p.symbol("hlo_float"))):
        rounded.go(content.get("double"))
    with p.when(type.eq(p.symbol("hlo_int"))):
        _whole(p, object, overflow, (bytes, kind, place), none, rounded)
    is_truth = type.eq(p.symbol("hlo_bool")) & kind.eq(PRED)
    with p.when(is_truth):
        place.put(object.eq(p.symbol("hlo_true")).to("i8"))
        p.ret(place)
    none.go()
    (number,) = rounded.here()
    _rounded(p, number, kind, place, none)
    none.here()
    p.ret(NULL)


def _whole(
    p: Procedure,
    object: Word,
    overflow: Word,
    wanted: tuple[Word, Word, Word],
    none: Join,
    rounded: Join,
) -> None:
    """A Python int in a type of so many bytes, of that kind, at a place."""
    bytes, kind, place = wanted
    overflow.put(p.word(0, "i32"))
    n = p.call(_AS_LONG, object, overflow)
    none.go_unless(overflow.get("i32").eq(0))
    spare = 64 - (bytes << 3)
    signed, unsigned, counted, put = p.join(), p.join(), p.join(), p.join()
    floats = dict.fromkeys((DOUBLE, SINGLE, BFLOAT), counted)
    p.switch(kind, {SIGNED: signed, UNSIGNED: unsigned, **floats}, none)
    signed.here()
    put.go_if((n << spare).binary("ashr", spare).eq(n))
    none.go()
    unsigned.here()
    is_same = ((n << spare) >> spare).eq(n)
    none.go_unless(is_same & (n >= 0))
    put.here()
    place.put(n)
    p.ret(place)
    counted.here()
    is_exact = (n >= -_MOST_EXACT) & (n <= _MOST_EXACT)
    real = n.cast("sitofp", "double")
    none.go_unless(is_exact)
    rounded.go(real)


def _rounded(p: Procedure, number: Word, kind: Word, place: Word, none: Join) -> None:
    """A double in a type of that kind, at a place; narrower ones only where they hold it."""
    single = number.cast("fptrunc", "float")
    is_same = number.compare("fcmp ueq", single.cast("fpext", "double"))
    bits = single.cast("bitcast", "i32")
    double, float, brain, good = p.join(), p.join(), p.join(), p.join()
    p.switch(kind, {DOUBLE: double, SINGLE: float, BFLOAT: brain}, none)
    double.here()
    place.put(number)
    p.ret(place)
    float.here()
    place.put(single)
    good.go_if(is_same)
    none.go()
    brain.here()
    is_short = (bits & 0xFFFF).eq(0)
    is_good = is_same & is_short
    place.put((bits >> 16).to("i16"))
    none.go_unless(is_good)
    good.here()
    p.ret(place)
