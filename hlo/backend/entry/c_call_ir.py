"""The call from C as LLVM IR: one function for each program, beside call_ir's call from Python.

    int NAME(const void *const *inputs, void *const *outputs, void *arena)
    int NAME_parallel(inputs, outputs, arena, host)     where the caller's threads run loops
    int NAME_cancellable(inputs, outputs, arena, word)  where a word of the caller's ends calls
    int NAME_parallel(inputs, outputs, arena, host, word)                    where both is so

An object for several machines has one such function of its own for each of them, and NAME chooses
one by the processor (hlo/backend/isa/processor.py).

The arena is the memory of one run: the program's table of addresses, then its temporaries. The
function keeps nothing of its own, so that calls on different arenas may run at once. It puts the
addresses of temporaries, constants, arguments and results into the table and runs the entry. A
result in an argument's memory is a copy of the argument, unless both are the same array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from hlo.backend.entry import cancel_ir, own_threads_ir, table_ir
from hlo.backend.entry.host_loops_ir import Host
from hlo.backend.entry.layouts import Relocation
from hlo.backend.ir.control import Join
from hlo.backend.ir.interface import MEMCPY, NULL, Prototype, prototype
from hlo.backend.ir.ir_module import ENTRY
from hlo.backend.ir.procedure import Procedure, Unit
from hlo.backend.ir.words import Word
from hlo.backend.isa import processor
from hlo.backend.planning.slots import SLOT_HOST_LOOPS
from hlo.machine import ALIGNMENT

# What the function returns: all went well, an address is null, the arena is not aligned, arrays
# have sizes that the program does not allow, the processor is none of the machines.
FINE, NO_ADDRESS, NOT_ALIGNED, NOT_ALLOWED, NO_MACHINE = 0, 1, 2, 3, 4
# Who runs parallel loops: the caller's thread alone, threads of the object's own, a function of the
# caller's.
NONE, PTHREADS, CALLBACK = "none", "pthreads", "callback"
STRAIGHT_ROWS = 8  # So many rows are written one by one; longer tables are walked.
_ROW = f"[{Relocation.words} x i64]"
_ENTRY = prototype("i32", ENTRY, "ptr")

Rows = Sequence[tuple[int, int]]


class Given(Struct, frozen=True):
    """A result in an argument's memory: the numbers of both, and their bytes."""

    result: int
    argument: int
    bytes: int


class CallLayout(Struct, frozen=True):
    """Where a call puts addresses: (slot, offset in the arena), (slot, offset in the constants),
    (slot, number of the argument), (slot, number of the result). flag: the offset in the arena of a
    byte that the program sets, 0 where sizes are not as they may be; -1: there is none. threads:
    that parallel loops are planned for; threading: who runs them. weights: the number of the input
    that the constants are; -1: they are in the object. label: of one machine among several.
    is_cancellable: calls end early once a word of the caller's says so.
    """

    name: str
    arena: Rows
    constants: Rows
    arguments: Rows
    results: Rows
    given: Sequence[Given]
    threads: int
    flag: int = -1
    threading: str = NONE
    weights: int = -1
    label: str = ""
    is_cancellable: bool = False

    @property
    def function(self) -> Prototype:
        """The function as C knows it."""
        return prototype("i32", self.name, "ptr", "ptr", "ptr")

    @property
    def whole(self) -> Prototype:
        """The same with all that a caller may hand over besides: the function that runs the parts
        of loops, or null; the word that ends the call, or null."""
        is_hosted = self.threading == CALLBACK
        if not (is_hosted or self.is_cancellable):
            return self.function
        name = f"{self.name}_{'parallel' if is_hosted else 'cancellable'}"
        return prototype("i32", name, *["ptr"] * (3 + is_hosted + self.is_cancellable))

    @property
    def body(self) -> Prototype:
        """The function that does it: of one machine among several its own."""
        whole = self.whole
        return replace(whole, symbol=f"{self.name}.{self.label}") if self.label else whole

    @property
    def set_threads(self) -> str:
        """The name of what says how many threads of the object's own calls use."""
        return f"{self.name}_set_threads"

    @property
    def exported(self) -> tuple[str, ...]:
        """The names that the linker sees."""
        names = (self.name, self.whole.symbol)
        own = (self.set_threads,) if self.threading == PTHREADS else ()
        return (*dict.fromkeys(names), *own)

    @property
    def constants_symbol(self) -> str:
        """Of the bytes of all constants."""
        return f"{self.name}.constants"


def text(layout: CallLayout, constants: str) -> str:
    """The module of the call, or of one machine's among several. constants: what the symbol of the
    constants is, as LLVM has it."""
    unit = Unit()
    if constants:
        unit.data(layout.constants_symbol, constants)
    unit.define(layout.body, partial(_call, unit, layout))
    if not layout.label:
        _define_alone(unit, layout)
    return unit.text()


def choosing_text(
    layouts: Sequence[tuple[CallLayout, frozenset[str]]], constants: str, *, asks_linux: bool
) -> str:
    """The module of the call that chooses one of several machines'. layouts: with the features that
    each uses, the least first."""
    unit, first = Unit(), layouts[0][0]
    if constants:
        unit.data(first.constants_symbol, constants)
    processor.define(unit, asks_linux=asks_linux)
    levels = [processor.Level(layout.body, features) for layout, features in layouts]
    unit.define(first.whole, partial(_choose, levels))
    _define_alone(unit, first)
    return unit.text()


def _choose(levels: Sequence[processor.Level], p: Procedure, *arguments: Word) -> None:
    processor.choose(p, levels, *arguments)
    p.ret(p.word(NO_MACHINE, "i32"))


def _define_alone(unit: Unit, layout: CallLayout) -> None:
    """The call without what callers may hand over, where that is another function."""
    if layout.whole != layout.function:
        unit.define(layout.function, partial(_alone, layout.whole))


def _alone(whole: Prototype, p: Procedure, *arguments: Word) -> None:
    more = [NULL] * (len(whole.parameters) - len(arguments))
    p.ret(p.call(whole, *arguments, *more))


def _threads(layout: CallLayout, p: Procedure, arena: Word, host: Word) -> None:
    """How many threads run loops, and whose they are."""
    count = p.word(layout.threads)
    if layout.threading == PTHREADS and layout.threads > 1:
        count = p.call(own_threads_ir.THREADS, layout.threads)
    if layout.threading == CALLBACK:
        arena.put(host, SLOT_HOST_LOOPS)
        known = p.join("i64")
        known.go_if(host.eq(NULL), 1)
        there = host.load(Host.threads)
        (count,) = known.here((there < count).select(there, count))
    table_ir.put_threads(arena, count)


def _call(
    unit: Unit,
    layout: CallLayout,
    p: Procedure,
    inputs: Word,
    outputs: Word,
    arena: Word,
    *more: Word,
) -> None:
    no_address, not_aligned = p.join(), p.join()
    no_address.go_if(arena.eq(NULL))
    not_aligned.go_if((arena.to("i64") & (ALIGNMENT - 1)).ne(0))

    def given(addresses: Word, slot: Word, number: Word) -> None:
        address = addresses.get("ptr", number)
        no_address.go_if(address.eq(NULL))
        arena.put(address, slot)

    def inside(memory: Word, slot: Word, offset: Word) -> None:
        arena.put(memory.item("i8", offset), slot)

    name = layout.name
    _each(unit, p, f"{name}.arguments", layout.arguments, partial(given, inputs))
    _each(unit, p, f"{name}.results", layout.results, partial(given, outputs))
    for pair in layout.given:
        _copy_given(p, inputs, outputs, pair, no_address)
    _each(unit, p, f"{name}.temporaries", layout.arena, partial(inside, arena))
    constants = p.symbol(layout.constants_symbol)
    if layout.weights >= 0:
        constants = inputs.get("ptr", layout.weights)
        no_address.go_if(constants.eq(NULL))
        not_aligned.go_if((constants.to("i64") & (ALIGNMENT - 1)).ne(0))
    _each(unit, p, f"{name}.fixed", layout.constants, partial(inside, constants))
    _threads(layout, p, arena, more[0] if more else arena)
    if layout.is_cancellable:
        p.w.declarations[ENTRY] = _ENTRY.declaration
        status = p.call(cancel_ir.ENTER, p.symbol(ENTRY), arena, more[-1])
    else:
        status = p.call(_ENTRY, arena)
    if layout.flag >= 0:
        ended = p.join()
        ended.go_if(status.ne(0))
        with p.when(arena.item("i8", layout.flag).get("i8").eq(0)):
            p.ret(p.word(NOT_ALLOWED, "i32"))
        ended.here()
    p.ret(status)
    no_address.here()
    p.ret(p.word(NO_ADDRESS, "i32"))
    not_aligned.here()
    p.ret(p.word(NOT_ALIGNED, "i32"))


def _each(
    unit: Unit, p: Procedure, symbol: str, rows: Rows, body: Callable[[Word, Word], None]
) -> None:
    """The body for each row: straight for a few, else in a loop over a table."""
    if len(rows) <= STRAIGHT_ROWS:
        for slot, number in rows:
            body(p.word(slot), p.word(number))
        return
    entries = ", ".join(f"{_ROW} [i64 {slot}, i64 {number}]" for slot, number in rows)
    kind = f"[{len(rows)} x {_ROW}]"
    unit.data(symbol, f"private unnamed_addr constant {kind} [{entries}], align 8")
    with p.counted(p.word(len(rows))) as i:
        row = p.symbol(symbol).item(_ROW, i)
        body(row.load(Relocation.slot), row.load(Relocation.number))


def _copy_given(p: Procedure, inputs: Word, outputs: Word, pair: Given, no_address: Join) -> None:
    """The argument's bytes where its result is to be, unless they are there."""
    source, target = inputs.get("ptr", pair.argument), outputs.get("ptr", pair.result)
    no_address.go_if(source.eq(NULL))
    with p.when(source.ne(target)):
        p.call(MEMCPY, target, source, pair.bytes, 0)
