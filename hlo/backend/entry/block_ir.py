"""The memory of results as LLVM IR: new arrays, large ones in aligned blocks from a free list.

    hlo_new_result(row) -> an array; its block returns to the list when the array dies

A row is that of call_ir. Blocks: docs/measurements.md 2. All run under the interpreter's lock.
"""

from __future__ import annotations

from hlo.backend.entry.layouts import Row
from hlo.backend.entry.process import NDARRAY, NEW_FLAGS
from hlo.backend.ir.interface import NULL, Field, prototype
from hlo.backend.ir.procedure import Procedure, Unit
from hlo.backend.ir.words import Word

HEADER_BYTES = 64
CLASSES = 256
LINE = 64  # The least block.
POOL_BYTES = 1 << 30  # The most that the free list holds.

# A block's header: the next block in its list, its size class, its size without the header.
NEXT, CLASS, SIZE = Field(0, "ptr"), Field(8), Field(16)

BLOCK_NEW = prototype("ptr", "hlo_block_new", "i64")
BLOCK_FREE = prototype("void", "hlo_block_free", "ptr")
CAPSULE_END = prototype("void", "hlo_capsule_end", "ptr")
NEW_RESULT = prototype("ptr", "hlo_new_result", "ptr")
DECREF = prototype("void", "Py_DecRef", "ptr")
INCREF = prototype("void", "Py_IncRef", "ptr")
_LEADING_ZEROS = prototype("i64", "llvm.ctlz.i64", "i64", "i1")
_ALLOCATE = prototype("i32", "posix_memalign", "ptr", "i64", "i64")
_FREE = prototype("void", "free", "ptr")
_CAPSULE_NEW = prototype("ptr", "PyCapsule_New", "ptr", "ptr", "ptr")
_CAPSULE_POINTER = prototype("ptr", "PyCapsule_GetPointer", "ptr", "ptr")
_NO_MEMORY = prototype("ptr", "PyErr_NoMemory")
_NEW_ARRAY = prototype(
    "ptr", "hlo_new_from_descr", "ptr", "ptr", "i32", "ptr", "ptr", "ptr", "i32", "ptr"
)
_SET_BASE = prototype("i32", "hlo_set_base", "ptr", "ptr")


def define(unit: Unit) -> None:
    """The free list and its functions."""
    unit.data(NDARRAY, "external global i8")
    unit.data("hlo_pooled_bytes", "global i64 0")
    unit.data("hlo_pool_limit", f"global i64 {POOL_BYTES}")
    unit.data("hlo_free_blocks", f"global [{CLASSES} x ptr] zeroinitializer")
    unit.define(BLOCK_NEW, _block_new)
    unit.define(BLOCK_FREE, _block_free)
    unit.define(CAPSULE_END, _capsule_end)
    unit.define(NEW_RESULT, _new_result)


def _block_new(p: Procedure, bytes: Word) -> None:
    """A block of at least so many bytes, or null: four size classes per power of two, from the free
    list or fresh.
    """
    place = p.stack("ptr", 8)
    log = 63 - p.call(_LEADING_ZEROS, bytes, 0)
    two = log - 2
    quarters = (bytes + ((1 << two) - 1)) >> two
    size = quarters << two
    kind = (two << 2) + quarters
    with p.when(kind.below(CLASSES)):
        head = p.symbol("hlo_free_blocks").item("ptr", kind)
        block = head.get("ptr")
        with p.when(block.ne(NULL)):
            head.put(block.load(NEXT))
            pooled = p.symbol("hlo_pooled_bytes")
            pooled.put(pooled.get("i64") - size)
            p.ret(block.item("i8", HEADER_BYTES))
    with p.when(p.call(_ALLOCATE, place, 64, size + HEADER_BYTES).eq(0)):
        new = place.get("ptr")
        new.store(CLASS, kind)
        new.store(SIZE, size)
        p.ret(new.item("i8", HEADER_BYTES))
    p.ret(NULL)


def _block_free(p: Procedure, data: Word) -> None:
    """Back to the free list, or to the system when the list holds enough."""
    block = data.item("i8", -HEADER_BYTES)
    kind = block.load(CLASS)
    pooled = p.symbol("hlo_pooled_bytes")
    more = pooled.get("i64") + block.load(SIZE)
    is_within = more.at_most(p.symbol("hlo_pool_limit").get("i64"))
    with p.when(is_within & kind.below(CLASSES)):
        pooled.put(more)
        head = p.symbol("hlo_free_blocks").item("ptr", kind)
        block.store(NEXT, head.get("ptr"))
        head.put(block)
        p.ret()
    p.call(_FREE, block)
    p.ret()


def _capsule_end(p: Procedure, capsule: Word) -> None:
    """A block whose array is dead."""
    p.call(BLOCK_FREE, p.call(_CAPSULE_POINTER, capsule, NULL))
    p.ret()


def _new_result(p: Procedure, row: Word) -> None:
    """A new array for a result's row; its memory is NumPy's when small. null: an exception is
    set.
    """
    array_type, dtype = p.symbol(NDARRAY), row.load(Row.dtype)
    rank = row.load(Row.rank).to("i32")
    sizes, bytes = row.load(Row.sizes), row.load(Row.bytes)
    with p.when(bytes.below(row.load(Row.blocks_from))):
        p.call(INCREF, dtype)
        p.ret(p.call(_NEW_ARRAY, array_type, dtype, rank, sizes, NULL, NULL, 0, NULL))
    data = p.call(BLOCK_NEW, bytes.below(LINE).select(p.word(LINE), bytes))
    with p.when(data.eq(NULL)):
        p.call(_NO_MEMORY)
        p.ret(NULL)
    capsule = p.call(_CAPSULE_NEW, data, NULL, p.symbol(CAPSULE_END.symbol))
    with p.when(capsule.eq(NULL)):
        p.call(BLOCK_FREE, data)
        p.ret(NULL)
    p.call(INCREF, dtype)
    flags = p.word(NEW_FLAGS, "i32")
    array = p.call(_NEW_ARRAY, array_type, dtype, rank, sizes, NULL, data, flags, NULL)
    with p.when(array.eq(NULL)):
        p.call(DECREF, capsule)
        p.ret(NULL)
    p.call(_SET_BASE, array, capsule)
    p.ret(array)
