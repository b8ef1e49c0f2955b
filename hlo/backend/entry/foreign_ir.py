"""Another library's arrays as arguments, as LLVM IR: where the bytes of one are.

    hlo_foreign(object, row, Foreign): an address, or null for what is left to Python

The object's description (jax's: `aval`) says type and whether it is weak; the buffer protocol gives
the address once the values are there. The view is given back at once: only runs that keep the
interpreter's lock take such arguments, so that nobody ends the memory meanwhile.
"""

from __future__ import annotations

from hlo.backend.entry.block_ir import DECREF
from hlo.backend.entry.layouts import Buffer, Foreign, Row
from hlo.backend.ir.control import Join
from hlo.backend.ir.interface import NULL, prototype
from hlo.backend.ir.procedure import Procedure, Unit
from hlo.backend.ir.words import Word

CONTIGUOUS = 0x8  # PyBUF_ND: sizes, and bytes in C's order

FOREIGN = prototype("ptr", "hlo_foreign", "ptr", "ptr", "ptr")
_ATTRIBUTE = prototype("ptr", "PyObject_GetAttr", "ptr", "ptr")
_VIEW = prototype("i32", "PyObject_GetBuffer", "ptr", "ptr", "i32")
_RELEASE = prototype("void", "PyBuffer_Release", "ptr")
_CLEAR = prototype("void", "PyErr_Clear")


def define(unit: Unit) -> None:
    """The function."""
    unit.define(FOREIGN, _foreign)


def _foreign(p: Procedure, object: Word, row: Word, foreign: Word) -> None:
    """The address of the object's bytes, if it is what the row says and its type is not weak."""
    view = p.stack(f"[{Buffer.words} x i64]", 16)
    raised, refused, other = p.join(), p.join(), p.join()
    described = p.call(_ATTRIBUTE, object, foreign.load(Foreign.description))
    raised.go_if(described.eq(NULL))
    dtype = _attribute(p, described, foreign.load(Foreign.dtype), raised)
    weak = _attribute(p, described, foreign.load(Foreign.weak), raised)
    p.call(DECREF, described)
    is_strong = weak.eq(foreign.load(Foreign.false))
    other.go_unless(is_strong & dtype.eq(row.load(Row.dtype)))
    raised.go_unless(p.call(_VIEW, object, view, CONTIGUOUS).eq(0))
    rank = row.load(Row.rank)
    refused.go_unless(view.load(Buffer.rank).to("i64").eq(rank))
    sizes, expected = view.load(Buffer.sizes), row.load(Row.sizes)
    with p.counted(rank) as d:
        refused.go_unless(sizes.get("i64", d).eq(expected.get("i64", d)))
    data = view.load(Buffer.data)
    p.call(_RELEASE, view)
    p.ret(data)
    refused.here()
    p.call(_RELEASE, view)
    other.go()
    raised.here()
    p.call(_CLEAR)
    other.go()
    other.here()
    p.ret(NULL)


def _attribute(p: Procedure, described: Word, name: Word, raised: Join) -> Word:
    """What the description says under a name; it holds it, so we need not."""
    found = p.call(_ATTRIBUTE, described, name)
    with p.when(found.eq(NULL)):
        p.call(DECREF, described)
        raised.go()
    p.call(DECREF, found)
    return found
