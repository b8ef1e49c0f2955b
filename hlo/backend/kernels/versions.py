"""Versions: a kernel for numbers as most are, and the same for subnormal ones.

    a call: the second where subnormal numbers are, or have been met, else the first

A processor notes in its status that an operation has met a subnormal number (`FloatMode.met`), so
that looking for them costs a kernel nothing where there are none. Loops call their kernels again
and again: what the trip before has met, this one most likely meets too. Both make the same bits.
Kernels whose bits differ are chosen by what they read, which is the same for all threads.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from hlo.backend.ir.arithmetic import add, divided, times
from hlo.backend.ir.control import each
from hlo.backend.ir.definitions import symbol
from hlo.backend.ir.functions import BEGIN, BUFFERS, END
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.generic import FloatMode


def of_met(usual: Kernel, careful: Kernel, mode: FloatMode, at_once: int = 0) -> Kernel:
    """The kernel that calls one of two with the same parameters, by what the thread has met.

    at_once: so many units at a time, each time by what it has met before; 0: all of a call.
    """
    w = Writer()
    slot = w.alloca("i32", 4)
    if not at_once:
        _of_two(w, usual, careful, *_met(w, mode, slot))
        return _finished(w, usual, careful)

    def turn(n: Value) -> None:
        begin = add(w, BEGIN, times(w, n, at_once))
        end = w.intrinsic("llvm.umin", "i64", add(w, begin, w.int(at_once)), END)
        _of_two(w, usual, careful, *_met(w, mode, slot), begin, end)

    most = add(w, w.binary("sub", END, BEGIN), w.int(at_once - 1))
    each(w, w.int(0), divided(w, most, at_once), turn)
    return _finished(w, usual, careful)


def _met(w: Writer, mode: FloatMode, slot: Value) -> tuple[Value, Callable[[], None]]:
    """Whether the thread has met subnormal numbers, and what has it forget that."""
    mode.save(w, slot)
    status = w.load(slot, "i32", 4)

    def forget() -> None:
        w.store(w.binary("and", status, w.int(~mode.met, "i32")), slot, 4)
        mode.set(w, slot)

    found = w.binary("and", status, w.int(mode.met, "i32"))
    return w.compare("icmp ne", found, w.int(0, "i32")), forget


def of_read(usual: Kernel, careful: Kernel, found: Callable[[Writer], Value]) -> Kernel:
    """The kernel that calls one of two with the same buffers, by what it reads.

    found: i1, whether there are subnormal numbers; written with the buffers at hand.
    """
    w = Writer()
    _of_two(w, usual, careful, found(w))
    return _finished(w, usual, careful)


def _of_two(
    w: Writer,
    usual: Kernel,
    careful: Kernel,
    is_careful: Value,
    before: Callable[[], None] = lambda: None,
    begin: Value = BEGIN,
    end: Value = END,
) -> None:
    """A call of one. before: what is written before that of the careful one."""
    quick, slow, done = (w.new_label(p) for p in ("quick", "slow", "done"))
    w.branch_if(is_careful, slow, quick)
    w.label(quick)
    w.call_declared(symbol(usual), BUFFERS, begin, end)
    w.branch(done)
    w.label(slow)
    before()
    if careful.units != usual.units:  # which are parted as the other's are
        begin, end = (divided(w, times(w, n, careful.units), usual.units) for n in (begin, end))
        some = w.new_label("some")
        w.branch_if(w.compare("icmp ult", begin, end), some, done)
        w.label(some)
    w.call_declared(symbol(careful), BUFFERS, begin, end)
    w.branch(done)
    w.label(done)


def _finished(w: Writer, usual: Kernel, careful: Kernel) -> Kernel:
    function = w.kernel_function()
    declarations, globals_ = w.beside
    parts = [part for k in (usual, careful) for part in (*k.functions, replace(k, functions=()))]
    return replace(
        usual, function=function, declarations=declarations, globals=globals_,
        functions=tuple(dict.fromkeys(parts)), is_glue=True,
        scratch_bytes=max(usual.scratch_bytes, careful.scratch_bytes),
    )  # fmt: skip
