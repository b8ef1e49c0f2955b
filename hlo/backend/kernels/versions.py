"""Versions: a kernel for numbers as most are, and the same for subnormal ones.

    a call: the second where this thread has met subnormal numbers before, else the first

A processor notes in its status that an operation has met a subnormal number (`FloatMode.met`), so
that looking for them costs a kernel nothing where there are none. Loops call their kernels again
and again: what the trip before has met, this one most likely meets too. Both make the same bits.
"""

from __future__ import annotations

from msgspec.structs import replace

from hlo.backend.ir.definitions import symbol
from hlo.backend.ir.functions import BEGIN, BUFFERS, END
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Writer
from hlo.backend.isa.generic import FloatMode


def of_two(usual: Kernel, careful: Kernel, mode: FloatMode) -> Kernel:
    """The kernel that calls one of two, which have the same parameters."""
    w = Writer()
    slot = w.alloca("i32", 4)
    mode.save(w, slot)
    status = w.load(slot, "i32", 4)
    met = w.compare("icmp ne", w.binary("and", status, w.int(mode.met, "i32")), w.int(0, "i32"))
    quick, slow, done = (w.new_label(p) for p in ("quick", "slow", "done"))
    w.branch_if(met, slow, quick)
    w.label(quick)
    w.call_declared(symbol(usual), BUFFERS, BEGIN, END)
    w.branch(done)
    w.label(slow)
    w.store(w.binary("and", status, w.int(~mode.met, "i32")), slot, 4)
    mode.set(w, slot)
    w.call_declared(symbol(careful), BUFFERS, BEGIN, END)
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
