"""The call from Python as LLVM IR: one METH_FASTCALL function for every executable.

    hlo_call(self, args, nargs): self is an int64 array, the executable's call record

It checks that each argument is a plain array of the right type and shape or a number (scalar_ir),
makes the results (large ones in blocks from a free list), puts the addresses into a frame's table,
runs the entry with or without the interpreter's lock, and gives the result back. A result in an
argument's memory is a copy of it, or that array itself if the caller gave it away. Whatever is not
as expected goes to the record's Python callable. Object layouts (layouts.py) are probed before use
(hlo/backend/linking/native.py); blocks: docs/measurements.md 1 and 2.
"""

from __future__ import annotations

from msgspec import Struct

from hlo.backend.entry import block_ir, clock_ir, foreign_ir, scalar_ir, trials_ir
from hlo.backend.entry.block_ir import BLOCK_FREE, BLOCK_NEW, DECREF, INCREF, NEW_RESULT
from hlo.backend.entry.foreign_ir import FOREIGN
from hlo.backend.entry.layouts import (
    Array,
    Description,
    Foreign,
    Object,
    Record,
    Relocation,
    Row,
)
from hlo.backend.entry.process import (
    CALL,
    ENTER,
    GIVES,
    NDARRAY,
    PUSH_FRAME,
    RAISED,
    RELEASES,
    RESTORE_THREAD,
    SAVE_THREAD,
    TRIED,
    TUPLE,
    WATCHED,
)
from hlo.backend.entry.scalar_ir import SCALAR
from hlo.backend.ir.control import Join
from hlo.backend.ir.interface import MEMCPY, NULL, prototype
from hlo.backend.ir.procedure import Procedure, Unit
from hlo.backend.ir.words import Word
from hlo.backend.planning.slots import SLOT_TEAM

# Words of a call's list of addresses and numbers, two for each argument and each result, that lie
# on the stack. Longer lists lie in a block of the free list, for a thread's stack may be small.
STACK_WORDS = 256
# NumPy's flags of arrays: contiguous in C's order and aligned; writeable.
PLAIN, WRITEABLE = 0x101, 0x400

_STOPPED = prototype("void", "hlo_stopped", "ptr", "ptr", "i32")
_TUPLE_NEW = prototype("ptr", "PyTuple_New", "i64")
_TUPLE_SET = prototype("i32", "PyTuple_SetItem", "ptr", "i64", "ptr")
_VECTORCALL = prototype("ptr", "PyObject_Vectorcall", "ptr", "ptr", "i64", "ptr")
_FROM_LONG = prototype("ptr", "PyLong_FromLong", "i64")
_ROW, _RELOCATION = (f"[{layout.words} x i64]" for layout in (Row, Relocation))


def text() -> str:
    """The free list's functions and the call's."""
    unit = Unit()
    block_ir.define(unit)
    scalar_ir.define(unit)
    foreign_ir.define(unit)
    unit.define(PUSH_FRAME, _push_frame)
    unit.define(_STOPPED, _stopped, attributes="noinline cold")
    trials_ir.define(unit)
    unit.define(CALL, _call)
    return unit.text()


def _push_frame(p: Procedure, frames: Word, frame: Word) -> None:
    """One more idle frame: as one step under the interpreter's lock, beside calls that take
    frames.
    """
    _push(frames, frame)
    p.ret()


def _push(frames: Word, frame: Word) -> None:
    more = frames.get("i64") + 1
    frames.put(frame, more)
    frames.put(more)


def _stopped(p: Procedure, record: Word, results: Word, why: Word) -> None:
    """What a run leaves behind that stopped: no result and no list, but an exception."""
    count, raise_stopped = record.load(Record.nresults), record.load(Record.stopped)
    n = record.load(Record.nargs)
    argument = p.stack("ptr", 8)
    with p.when(why.ne(RAISED)):
        number = p.call(_FROM_LONG, why.cast("sext", "i64"))
        argument.put(number)
        p.call(_VECTORCALL, raise_stopped, argument, 1, NULL)
        p.call(DECREF, number)
    with p.counted(count) as k:
        p.call(DECREF, results.get("ptr", k))
    with p.when(((n + count) << 1).above(STACK_WORDS)):
        p.call(BLOCK_FREE, results.item("i64", 0 - (n << 1)))
    p.ret()


class _Lists(Struct):
    """What a call works on. n, outs: how many arguments and results; rows, foreign: of the record;
    data, addresses: where the bytes of arguments and of results are; numbers: the bytes of
    arguments that are numbers; results: the arrays.
    """

    args: Word
    n: Word
    outs: Word
    rows: Word
    foreign: Word
    data: Word
    numbers: Word
    results: Word
    addresses: Word


def _call(p: Procedure, self: Word, args: Word, nargs: Word) -> None:
    small = p.stack(f"[{STACK_WORDS} x i64]", 16)
    record = self.load(Array.data)
    n, frames, mode = (record.load(f) for f in (Record.nargs, Record.frames, Record.flags))
    slow, decline, leave = p.join(), p.join(), p.join("ptr")
    is_expected = n.eq(nargs)
    slow.go_unless(is_expected & frames.get("i64").ne(0))

    rows, outs = record.load(Record.arguments), record.load(Record.nresults)
    words = (n + outs) << 1
    is_large = words.above(STACK_WORDS)
    has_room = p.join("ptr")
    has_room.go_unless(is_large, small)
    room = p.call(BLOCK_NEW, words << 3)
    slow.go_if(room.eq(NULL))
    (data,) = has_room.here(room)
    numbers = data.item("ptr", n)
    results = numbers.item("ptr", n)
    addresses = results.item("ptr", outs)
    known = rows, record.load(Record.foreign)
    lists = _Lists(args, n, outs, *known, data, numbers, results, addresses)

    waker, alone = record.load(Record.waker), record.load(Record.alone, "monotonic")
    with p.when(waker.ne(NULL) & alone.eq(0)):
        p.call_address("void", waker)
    _check_arguments(p, lists, frames, decline)
    with p.when((mode & GIVES).ne(0)):
        _check_given(p, lists, decline)
    _make_results(p, lists, record.load(Record.results), leave)
    frame = _take_frame(frames)
    slots, count = record.load(Record.argument_slots), record.load(Record.argument_count)
    _relocate(p, slots, count, data, frame)
    slots, count = record.load(Record.result_slots), record.load(Record.result_count)
    _relocate(p, slots, count, lists.addresses, frame)
    status = _timed_run(p, record, frame, mode, alone)
    _push(frames, frame)
    with p.when(status.ne(0)):
        p.call(_STOPPED, record, results, status)
        p.ret(NULL)
    with p.when((mode & TUPLE).eq(0)):
        leave.go(results.get("ptr"))
    whole = p.call(_TUPLE_NEW, outs)
    with p.counted(outs) as k:
        p.call(_TUPLE_SET, whole, k, results.get("ptr", k))

    (result,) = leave.here(whole)
    with p.when(is_large):
        p.call(BLOCK_FREE, data)
    p.ret(result)
    decline.here()
    with p.when(is_large):
        p.call(BLOCK_FREE, data)
    slow.here()
    p.ret(p.call(_VECTORCALL, record.load(Record.slow), args, nargs, NULL))


def _check_arguments(p: Procedure, lists: _Lists, frames: Word, decline: Join) -> None:
    """Where the bytes of each argument are, if it is what its row says.

    Another library's arrays may let other threads run, which may take the frames.
    """
    with p.counted(lists.n) as i:
        array, accept = p.join(), p.join()
        argument = lists.args.get("ptr", i)
        type = argument.load(Object.type)
        is_array = type.eq(p.symbol(NDARRAY))
        row, place = lists.rows.item(_ROW, i), lists.data.item("ptr", i)
        array.go_if(is_array)
        other = p.join()
        other.go_if(lists.foreign.eq(NULL))
        other.go_unless(lists.foreign.load(Foreign.type).eq(type))
        own = p.call(FOREIGN, argument, row, lists.foreign)
        place.put(own)
        accept.go_if(own.ne(NULL))
        decline.go()
        other.here()
        number = p.call(SCALAR, argument, type, row, lists.numbers.item("i64", i))
        place.put(number)
        accept.go_if(number.ne(NULL))
        decline.go()
        array.here()
        _check_dtype(p, row.load(Row.dtype), argument.load(Array.dtype), decline)
        is_plain = (argument.load(Array.flags) & PLAIN).eq(PLAIN)
        rank = row.load(Row.rank)
        has_rank = argument.load(Array.rank).to("i64").eq(rank)
        is_expected = is_plain & has_rank
        place.put(argument.load(Array.data))
        sizes, expected = argument.load(Array.sizes), row.load(Row.sizes)
        decline.go_unless(is_expected)
        with p.counted(rank) as d:
            decline.go_unless(sizes.get("i64", d).eq(expected.get("i64", d)))
        accept.here()
    decline.go_if(frames.get("i64").eq(0))


def _check_dtype(p: Procedure, expected: Word, found: Word, decline: Join) -> None:
    """Whether an array's type is the expected one, or says the same: what was unpickled has copies
    of NumPy's types.
    """
    agrees = p.join()
    agrees.go_if(found.eq(expected))
    is_same_class = found.load(Description.scalar).eq(expected.load(Description.scalar))
    is_same_type = found.load(Description.identity).eq(expected.load(Description.identity))
    decline.go_unless(is_same_class & is_same_type)
    agrees.here()


def _check_given(p: Procedure, lists: _Lists, decline: Join) -> None:
    """Whether each argument that is given away may be written, and shares memory with no other."""
    with p.counted(lists.n) as i:
        row = lists.rows.item(_ROW, i)
        with p.when(row.load(Row.given).ne(0)):
            argument = lists.args.get("ptr", i)
            decline.go_unless(argument.load(Object.type).eq(p.symbol(NDARRAY)))
            is_writeable = (argument.load(Array.flags) & WRITEABLE).ne(0)
            low = lists.data.get("i64", i)
            high = low + row.load(Row.bytes)
            decline.go_unless(is_writeable)
            with p.counted(lists.n) as other:
                other_low = lists.data.get("i64", other)
                other_high = other_low + lists.rows.item(_ROW, other).load(Row.bytes)
                is_other = other.ne(i)
                meets = other_low.below(high) & low.below(other_high)
                decline.go_if(meets & is_other)


def _make_results(p: Procedure, lists: _Lists, out_rows: Word, leave: Join) -> None:
    """A new array for each result, or the argument in whose memory it is, and where its bytes are.
    Where there is no memory, those that are there go.
    """
    undo, every = p.join("i64"), p.join()
    with p.counted(lists.outs) as k:
        row, made = out_rows.item(_ROW, k), p.join("ptr")
        partner = row.load(Row.partner) - 1
        with p.when(row.load(Row.given).ne(0)):
            own = lists.args.get("ptr", partner)
            p.call(INCREF, own)
            made.go(own)
        new = p.call(NEW_RESULT, row)
        undo.go_if(new.eq(NULL), k)
        made.go_if(partner < 0, new)
        bytes, source = row.load(Row.bytes), lists.data.get("ptr", partner)
        p.call(MEMCPY, new.load(Array.data), source, bytes, 0)
        (array,) = made.here(new)
        lists.results.put(array, k)
        lists.addresses.put(array.load(Array.data), k)
    every.go()
    undo.here()
    with p.loop(*undo.words) as (again, done):
        (left,) = again.words
        done.go_if(left.eq(0))
        last = left - 1
        p.call(DECREF, lists.results.get("ptr", last))
        again.go(last)
    leave.go(NULL)
    every.here()


def _take_frame(frames: Word) -> Word:
    count = frames.get("i64")
    frame = frames.get("ptr", count)
    frames.put(count - 1)
    return frame


def _relocate(p: Procedure, slots: Word, count: Word, addresses: Word, frame: Word) -> None:
    """Put addresses into the slots of a frame's table."""
    with p.counted(count) as i:
        row = slots.item(_RELOCATION, i)
        slot, number = row.load(Relocation.slot), row.load(Relocation.number)
        frame.put(addresses.get("ptr", number), slot)


def _timed_run(p: Procedure, record: Word, frame: Word, mode: Word, alone: Word) -> Word:
    """A run, which shows how long it takes where that is asked."""
    ended, entry = p.join("i32"), record.load(Record.entry)
    with p.when(record.load(Record.tries).eq(0)):
        ended.go(_run(p, entry, frame, mode))
    frame.put(trials_ir.told(p, record, alone).to("ptr"), SLOT_TEAM)
    began = clock_ir.now(p)
    status = _run(p, entry, frame, mode)
    with p.when(status.eq(0)):
        p.call(TRIED, record, alone, clock_ir.now(p) - began)
    (status,) = ended.here(status)
    return status


def _run(p: Procedure, entry: Word, frame: Word, mode: Word) -> Word:
    """Run the entry; why it stopped, or 0."""
    back = p.join("i32")
    with p.when((mode & RELEASES).eq(0)):
        p.call_address("i32", entry, frame)
        back.go(0)
    with p.when((mode & WATCHED).ne(0)):
        back.go(p.call(ENTER, entry, frame))
    thread = p.call(SAVE_THREAD)
    p.call_address("i32", entry, frame)
    p.call(RESTORE_THREAD, thread)
    (status,) = back.here(0)
    return status
