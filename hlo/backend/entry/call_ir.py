"""The call from Python as LLVM IR: one METH_FASTCALL function for every executable.

    hlo_call(self, args, nargs): self is an int64 array, the executable's call record

It checks that each argument is a plain array of the right type and shape or a number (scalar_ir),
makes the results (large ones in blocks from a free list), puts the addresses into a frame's table,
runs the entry with or without the interpreter's lock, and gives the result back. A result in an
argument's memory is a copy of it, or that array itself if the caller gave it away. Whatever is not
as expected goes to the record's Python callable. Sources of the object layouts: CPython's and
NumPy's headers, probed before use (hlo/backend/linking/native.py); blocks: BACKEND_FACTS.md
sections 1 and 2.
"""

from __future__ import annotations

from hlo.backend.entry import block_ir, scalar_ir
from hlo.backend.entry.block_ir import NDARRAY
from hlo.backend.entry.run_ir import ENTER, RAISED

# The call record, in 8-byte words.
(
    NARGS, NRESULTS, FRAMES, ENTRY, SLOW, FLAGS, ARGUMENT_SLOTS, ARGUMENT_COUNT, RESULT_SLOTS,
    RESULT_COUNT, ARGUMENTS, RESULTS, WAKER, STOPPED,
) = range(14)  # fmt: skip
RECORD_WORDS = 14
# Flags: let other Python threads run; the result is a tuple; an argument is given away; the run
# may be stopped, which lets other threads run too.
RELEASES, TUPLE, GIVES, WATCHED = 1, 2, 4, 8
# FRAMES: a stack of idle frames' addresses, their number first. WAKER: 0, or what to call early,
# before arguments are checked: threads take their time to wake. STOPPED: the Python callable that
# raises what a run ends with that stopped for another reason than an exception.
# An argument's or a result's row, in words: dtype object, rank, address of the sizes, bytes; then
# of an argument the kind of number and the type of NumPy's scalars (scalar_ir), of a result the
# number of the argument in whose memory it is, plus one; then whether that memory is given away.
ROW_WORDS = 7
# A call's own list of addresses and numbers, two words for each argument and each result: longer
# ones lie in a block of the free list, for a thread's stack may be small.
STACK_WORDS = 256
PARTNER, SCALAR, GIVEN = 4, 5, 6
# A relocation, in words: slot of the table, number of the argument or result.

PYTHON_SYMBOLS = (
    "Py_IncRef", "Py_DecRef", "PyEval_SaveThread", "PyEval_RestoreThread", "PyTuple_New",
    "PyTuple_SetItem", "PyObject_Vectorcall", "PyCapsule_New", "PyCapsule_GetPointer",
    "PyErr_NoMemory", "PyLong_AsLongLongAndOverflow", "PyLong_FromLong",
)  # fmt: skip
LIBRARY_SYMBOLS = ("posix_memalign", "free", "syscall", "memcpy")
NUMPY_SYMBOLS = {"hlo_new_from_descr": 94, "hlo_set_base": 282}  # places in NumPy's C API table


def text() -> str:
    """The free list's functions and the call's."""
    return block_ir.TEXT + scalar_ir.TEXT + _PUSH + _STOPPED + _CALL


# One more idle frame: as one step under the interpreter's lock, beside calls that take frames.
_PUSH = """
define void @hlo_push_frame(ptr %frames, ptr %frame) {
  %count = load i64, ptr %frames
  %more = add i64 %count, 1
  %place = getelementptr ptr, ptr %frames, i64 %more
  store ptr %frame, ptr %place
  store i64 %more, ptr %frames
  ret void
}
"""


# What a run left behind that stopped: no result, and an exception.
_STOPPED = f"""
declare i32 @{ENTER}(ptr, ptr)
declare ptr @PyLong_FromLong(i64)
define void @hlo_stopped(ptr %record, ptr %results, i32 %why) noinline cold {{
  %outs.place = getelementptr i64, ptr %record, i64 {NRESULTS}
  %outs = load i64, ptr %outs.place
  %raise.place = getelementptr i64, ptr %record, i64 {STOPPED}
  %raise = load ptr, ptr %raise.place
  %argument = alloca ptr
  %is.raised = icmp eq i32 %why, {RAISED}
  br i1 %is.raised, label %results.test, label %other
other:
  %why.long = sext i32 %why to i64
  %number = call ptr @PyLong_FromLong(i64 %why.long)
  store ptr %number, ptr %argument
  %none = call ptr @PyObject_Vectorcall(ptr %raise, ptr %argument, i64 1, ptr null)
  call void @Py_DecRef(ptr %number)
  br label %results.test
results.test:
  %k = phi i64 [ 0, %0 ], [ 0, %other ], [ %k.next, %one ]
  %more = icmp ult i64 %k, %outs
  br i1 %more, label %one, label %end
one:
  %slot = getelementptr ptr, ptr %results, i64 %k
  %array = load ptr, ptr %slot
  call void @Py_DecRef(ptr %array)
  %k.next = add i64 %k, 1
  br label %results.test
end:
  ret void
}}
"""


def _field(name: str, word: int) -> str:
    return (
        f"  %{name}.place = getelementptr i8, ptr %record, i64 {8 * word}\n"
        f"  %{name} = load ptr, ptr %{name}.place"
    )


def _count(name: str, word: int) -> str:
    return (
        f"  %{name}.place = getelementptr i8, ptr %record, i64 {8 * word}\n"
        f"  %{name} = load i64, ptr %{name}.place"
    )


def _relocations(name: str, slots: int, count: int, source: str, after: str) -> str:
    """A loop that stores addresses into the table's slots."""
    return f"""
{name}:
{_field(name + ".list", slots)}
{_count(name + ".count", count)}
  br label %{name}.test
{name}.test:
  %{name}.i = phi i64 [ 0, %{name} ], [ %{name}.next, %{name}.one ]
  %{name}.more = icmp ult i64 %{name}.i, %{name}.count
  br i1 %{name}.more, label %{name}.one, label %{after}
{name}.one:
  %{name}.entry = getelementptr {{ i64, i64 }}, ptr %{name}.list, i64 %{name}.i
  %{name}.slot = load i64, ptr %{name}.entry
  %{name}.number.place = getelementptr i8, ptr %{name}.entry, i64 8
  %{name}.number = load i64, ptr %{name}.number.place
  %{name}.from = getelementptr ptr, ptr {source}, i64 %{name}.number
  %{name}.address = load ptr, ptr %{name}.from
  %{name}.to = getelementptr ptr, ptr %frame, i64 %{name}.slot
  store ptr %{name}.address, ptr %{name}.to
  %{name}.next = add i64 %{name}.i, 1
  br label %{name}.test
"""


# Whether each argument that is given away may be written, and shares memory with no other one.
_GIVEN = f"""lend:
  br label %giver
giver:
  %gi = phi i64 [ 0, %lend ], [ %gi.next, %giver.next ]
  %gi.more = icmp ult i64 %gi, %n
  br i1 %gi.more, label %giver.one, label %make
giver.one:
  %giver.row = getelementptr [{ROW_WORDS} x i64], ptr %rows, i64 %gi
  %giver.place = getelementptr i64, ptr %giver.row, i64 {GIVEN}
  %giver.flag = load i64, ptr %giver.place
  %giver.is = icmp ne i64 %giver.flag, 0
  br i1 %giver.is, label %giver.type, label %giver.next
giver.type:
  %giver.arg.place = getelementptr ptr, ptr %args, i64 %gi
  %giver.arg = load ptr, ptr %giver.arg.place
  %giver.type.place = getelementptr i8, ptr %giver.arg, i64 8
  %giver.type.is = load ptr, ptr %giver.type.place
  %giver.array = icmp eq ptr %giver.type.is, @{NDARRAY}
  br i1 %giver.array, label %giver.flags, label %decline
giver.flags:
  %giver.flags.place = getelementptr i8, ptr %giver.arg, i64 64
  %giver.flags.all = load i32, ptr %giver.flags.place
  %giver.writeable = and i32 %giver.flags.all, 1024
  %giver.may = icmp ne i32 %giver.writeable, 0
  %giver.low.place = getelementptr i64, ptr %data, i64 %gi
  %giver.low = load i64, ptr %giver.low.place
  %giver.bytes.place = getelementptr i64, ptr %giver.row, i64 3
  %giver.bytes = load i64, ptr %giver.bytes.place
  %giver.high = add i64 %giver.low, %giver.bytes
  br i1 %giver.may, label %other, label %decline
other:
  %oi = phi i64 [ 0, %giver.flags ], [ %oi.next, %other.one ]
  %oi.more = icmp ult i64 %oi, %n
  br i1 %oi.more, label %other.one, label %giver.next
other.one:
  %oi.next = add i64 %oi, 1
  %other.low.place = getelementptr i64, ptr %data, i64 %oi
  %other.low = load i64, ptr %other.low.place
  %other.row = getelementptr [{ROW_WORDS} x i64], ptr %rows, i64 %oi
  %other.bytes.place = getelementptr i64, ptr %other.row, i64 3
  %other.bytes = load i64, ptr %other.bytes.place
  %other.high = add i64 %other.low, %other.bytes
  %other.is = icmp ne i64 %oi, %gi
  %below = icmp ult i64 %other.low, %giver.high
  %above = icmp ult i64 %giver.low, %other.high
  %meets = and i1 %below, %above
  %shares = and i1 %meets, %other.is
  br i1 %shares, label %decline, label %other
giver.next:
  %gi.next = add i64 %gi, 1
  br label %giver
"""

_CALL = f"""
define ptr @hlo_call(ptr %self, ptr %args, i64 %nargs) {{
start:
  %small = alloca [{STACK_WORDS} x i64], align 16
  %record.place = getelementptr i8, ptr %self, i64 16
  %record = load ptr, ptr %record.place
{_count("n", NARGS)}
{_field("frames", FRAMES)}
{_count("mode", FLAGS)}
  %same = icmp eq i64 %n, %nargs
  %waiting = load i64, ptr %frames
  %idle = icmp ne i64 %waiting, 0
  %ready = and i1 %same, %idle
  br i1 %ready, label %check, label %slow
check:
{_field("rows", ARGUMENTS)}
{_count("outs", NRESULTS)}
  %leaves = add i64 %n, %outs
  %words = shl i64 %leaves, 1
  %is.large = icmp ugt i64 %words, {STACK_WORDS}
  br i1 %is.large, label %room, label %begin
room:
  %room.bytes = shl i64 %words, 3
  %room.made = call ptr @hlo_block_new(i64 %room.bytes)
  %has.room = icmp ne ptr %room.made, null
  br i1 %has.room, label %begin, label %slow
begin:
  %data = phi ptr [ %small, %check ], [ %room.made, %room ]
  %numbers = getelementptr ptr, ptr %data, i64 %n
  %results = getelementptr ptr, ptr %numbers, i64 %n
  %out.data = getelementptr ptr, ptr %results, i64 %outs
{_field("waker", WAKER)}
  %sleepy = icmp ne ptr %waker, null
  br i1 %sleepy, label %waking, label %arguments
waking:
  call void %waker()
  br label %arguments
arguments:
  br label %argument
argument:
  %i = phi i64 [ 0, %arguments ], [ %i.next, %accept ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %one, label %checked
one:
  %arg.place = getelementptr ptr, ptr %args, i64 %i
  %arg = load ptr, ptr %arg.place
  %type.place = getelementptr i8, ptr %arg, i64 8
  %type = load ptr, ptr %type.place
  %is.array = icmp eq ptr %type, @{NDARRAY}
  %row = getelementptr [{ROW_WORDS} x i64], ptr %rows, i64 %i
  %data.slot = getelementptr ptr, ptr %data, i64 %i
  br i1 %is.array, label %array, label %scalar
scalar:
  %number.place = getelementptr i64, ptr %numbers, i64 %i
  %number = call ptr @hlo_scalar(ptr %arg, ptr %type, ptr %row, ptr %number.place)
  store ptr %number, ptr %data.slot
  %is.number = icmp ne ptr %number, null
  br i1 %is.number, label %accept, label %decline
array:
  %want = load ptr, ptr %row
  %descr.place = getelementptr i8, ptr %arg, i64 56
  %descr = load ptr, ptr %descr.place
  %c0 = icmp eq ptr %descr, %want
  %flags.place = getelementptr i8, ptr %arg, i64 64
  %flags = load i32, ptr %flags.place
  %f1 = and i32 %flags, 257
  %c1 = icmp eq i32 %f1, 257
  %rank.place = getelementptr i8, ptr %row, i64 8
  %rank = load i64, ptr %rank.place
  %nd.place = getelementptr i8, ptr %arg, i64 24
  %nd32 = load i32, ptr %nd.place
  %nd = zext i32 %nd32 to i64
  %c2 = icmp eq i64 %nd, %rank
  %c3 = and i1 %c0, %c1
  %c4 = and i1 %c3, %c2
  %data.place = getelementptr i8, ptr %arg, i64 16
  %address = load ptr, ptr %data.place
  store ptr %address, ptr %data.slot
  %dims.place = getelementptr i8, ptr %arg, i64 32
  %dims = load ptr, ptr %dims.place
  %sizes.place = getelementptr i8, ptr %row, i64 16
  %sizes = load ptr, ptr %sizes.place
  br i1 %c4, label %dim, label %decline
dim:
  %d = phi i64 [ 0, %array ], [ %d.next, %dim.one ]
  %d.more = icmp ult i64 %d, %rank
  br i1 %d.more, label %dim.one, label %accept
dim.one:
  %a.place = getelementptr i64, ptr %dims, i64 %d
  %a = load i64, ptr %a.place
  %w.place = getelementptr i64, ptr %sizes, i64 %d
  %w = load i64, ptr %w.place
  %d.next = add i64 %d, 1
  %equal = icmp eq i64 %a, %w
  br i1 %equal, label %dim, label %decline
accept:
  %i.next = add i64 %i, 1
  br label %argument
checked:
  %g0 = and i64 %mode, {GIVES}
  %gives = icmp ne i64 %g0, 0
  br i1 %gives, label %lend, label %make
{_GIVEN}
make:
{_field("out.rows", RESULTS)}
  br label %result
result:
  %k = phi i64 [ 0, %make ], [ %k.next, %made ]
  %k.more = icmp ult i64 %k, %outs
  br i1 %k.more, label %new, label %take
new:
  %out.row = getelementptr [{ROW_WORDS} x i64], ptr %out.rows, i64 %k
  %partner.place = getelementptr i64, ptr %out.row, i64 {PARTNER}
  %partner.next = load i64, ptr %partner.place
  %partner = sub i64 %partner.next, 1
  %given.place = getelementptr i64, ptr %out.row, i64 {GIVEN}
  %given = load i64, ptr %given.place
  %is.given = icmp ne i64 %given, 0
  br i1 %is.given, label %itself, label %fresh
itself:
  %own.place = getelementptr ptr, ptr %args, i64 %partner
  %own = load ptr, ptr %own.place
  call void @Py_IncRef(ptr %own)
  br label %made
fresh:
  %whole.new = call ptr @hlo_new_result(ptr %out.row)
  %out.good = icmp ne ptr %whole.new, null
  br i1 %out.good, label %partnered, label %undo
partnered:
  %is.copy = icmp sge i64 %partner, 0
  br i1 %is.copy, label %copy, label %made
copy:
  %copy.bytes.place = getelementptr i64, ptr %out.row, i64 3
  %copy.bytes = load i64, ptr %copy.bytes.place
  %copy.from.place = getelementptr ptr, ptr %data, i64 %partner
  %copy.from = load ptr, ptr %copy.from.place
  %copy.to.place = getelementptr i8, ptr %whole.new, i64 16
  %copy.to = load ptr, ptr %copy.to.place
  call void @llvm.memcpy.p0.p0.i64(ptr %copy.to, ptr %copy.from, i64 %copy.bytes, i1 false)
  br label %made
made:
  %out = phi ptr [ %own, %itself ], [ %whole.new, %partnered ], [ %whole.new, %copy ]
  %out.slot = getelementptr ptr, ptr %results, i64 %k
  store ptr %out, ptr %out.slot
  %out.place = getelementptr i8, ptr %out, i64 16
  %out.address = load ptr, ptr %out.place
  %out.data.slot = getelementptr ptr, ptr %out.data, i64 %k
  store ptr %out.address, ptr %out.data.slot
  %k.next = add i64 %k, 1
  br label %result
undo:
  %u = phi i64 [ %k, %fresh ], [ %u.next, %undo.one ]
  %u.more = icmp ugt i64 %u, 0
  br i1 %u.more, label %undo.one, label %failed
undo.one:
  %u.next = sub i64 %u, 1
  %u.slot = getelementptr ptr, ptr %results, i64 %u.next
  %u.array = load ptr, ptr %u.slot
  call void @Py_DecRef(ptr %u.array)
  br label %undo
failed:
  br label %leave
take:
  %idle.count = load i64, ptr %frames
  %frame.place = getelementptr ptr, ptr %frames, i64 %idle.count
  %frame = load ptr, ptr %frame.place
  %idle.left = sub i64 %idle.count, 1
  store i64 %idle.left, ptr %frames
  br label %patch.args
{_relocations("patch.args", ARGUMENT_SLOTS, ARGUMENT_COUNT, "%data", "patch.outs")}
{_relocations("patch.outs", RESULT_SLOTS, RESULT_COUNT, "%out.data", "enter")}
enter:
{_field("entry", ENTRY)}
  %r0 = and i64 %mode, {RELEASES}
  %releases = icmp ne i64 %r0, 0
  br i1 %releases, label %release, label %hold
hold:
  %s0 = call i32 %entry(ptr %frame)
  br label %back
release:
  %w0 = and i64 %mode, {WATCHED}
  %watched = icmp ne i64 %w0, 0
  br i1 %watched, label %watch, label %alone
watch:
  %s2 = call i32 @{ENTER}(ptr %entry, ptr %frame)
  br label %back
alone:
  %thread = call ptr @PyEval_SaveThread()
  %s1 = call i32 %entry(ptr %frame)
  call void @PyEval_RestoreThread(ptr %thread)
  br label %back
back:
  %status = phi i32 [ 0, %hold ], [ %s2, %watch ], [ 0, %alone ]
  %count.now = load i64, ptr %frames
  %count.next = add i64 %count.now, 1
  %frame.back = getelementptr ptr, ptr %frames, i64 %count.next
  store ptr %frame, ptr %frame.back
  store i64 %count.next, ptr %frames
  %ended = icmp eq i32 %status, 0
  br i1 %ended, label %give, label %stopped
stopped:
  call void @hlo_stopped(ptr %record, ptr %results, i32 %status)
  ret ptr null
give:
  %t0 = and i64 %mode, {TUPLE}
  %is.tuple = icmp ne i64 %t0, 0
  br i1 %is.tuple, label %tuple, label %single
single:
  %only = load ptr, ptr %results
  br label %leave
tuple:
  %whole = call ptr @PyTuple_New(i64 %outs)
  br label %item
item:
  %m = phi i64 [ 0, %tuple ], [ %m.next, %item.one ]
  %m.more = icmp ult i64 %m, %outs
  br i1 %m.more, label %item.one, label %done
item.one:
  %m.slot = getelementptr ptr, ptr %results, i64 %m
  %m.array = load ptr, ptr %m.slot
  %m.status = call i32 @PyTuple_SetItem(ptr %whole, i64 %m, ptr %m.array)
  %m.next = add i64 %m, 1
  br label %item
done:
  br label %leave
leave:
  %made.all = phi ptr [ null, %failed ], [ %only, %single ], [ %whole, %done ]
  br i1 %is.large, label %leave.room, label %left
leave.room:
  call void @hlo_block_free(ptr %data)
  br label %left
left:
  ret ptr %made.all
decline:
  br i1 %is.large, label %decline.room, label %slow
decline.room:
  call void @hlo_block_free(ptr %data)
  br label %slow
slow:
{_field("python", SLOW)}
  %answer = call ptr @PyObject_Vectorcall(ptr %python, ptr %args, i64 %nargs, ptr null)
  ret ptr %answer
}}
"""
