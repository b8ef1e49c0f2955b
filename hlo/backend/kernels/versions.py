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

from hlo.backend.ir.arithmetic import divided, times
from hlo.backend.ir.definitions import symbol
from hlo.backend.ir.functions import BEGIN, BUFFERS, END
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.generic import FloatMode


def of_met(usual: Kernel, careful: Kernel, mode: FloatMode) -> Kernel:
    """The kernel that calls one of two with the same parameters, by what the thread has met."""
    w = Writer()
    slot = w.alloca("i32", 4)
    mode.save(w, slot)
    status = w.load(slot, "i32", 4)
    met = w.compare("icmp ne", w.binary("and", status, w.int(mode.met, "i32")), w.int(0, "i32"))

    def forget() -> None:
        w.store(w.binary("and", status, w.int(~mode.met, "i32")), slot, 4)
        mode.set(w, slot)

    return _of_two(w, usual, careful, met, forget)


def of_read(usual: Kernel, careful: Kernel, found: Callable[[Writer], Value]) -> Kernel:
    """The kernel that calls one of two with the same buffers, by what it reads.

    found: i1, whether there are subnormal numbers; written with the buffers at hand.
    """
    w = Writer()
    return _of_two(w, usual, careful, found(w), lambda: None)


def _of_two(
    w: Writer,
    usual: Kernel,
    careful: Kernel,
    is_careful: Value,
    before: Callable[[], None],
) -> Kernel:
    """before: what is written before the careful one is called."""
    quick, slow, done = (w.new_label(p) for p in ("quick", "slow", "done"))
    w.branch_if(is_careful, slow, quick)
    w.label(quick)
    w.call_declared(symbol(usual), BUFFERS, BEGIN, END)
    w.branch(done)
    w.label(slow)
    before()
    begin, end = BEGIN, END
    if careful.units != usual.units:  # which are parted as the other's are
        begin, end = (divided(w, times(w, n, careful.units), usual.units) for n in (BEGIN, END))
        some = w.new_label("some")
        w.branch_if(w.compare("icmp ult", begin, end), some, done)
        w.label(some)
    w.call_declared(symbol(careful), BUFFERS, begin, end)
    w.branch(done)
    w.label(done)
    function = w.kernel_function()
    declarations, globals_ = w.beside
    parts = [part for k in (usual, careful) for part in (*k.functions, replace(k, functions=()))]
    return replace(
        usual, function=function, declarations=declarations, globals=globals_,
        functions=tuple(dict.fromkeys(parts)), is_glue=True,
        scratch_bytes=max(usual.scratch_bytes, careful.scratch_bytes),
    )  # fmt: skip
