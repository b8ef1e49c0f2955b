"""Reading: what a reduction reads and leaves, as it is made."""

from __future__ import annotations

from msgspec.structs import replace

from hlo.backend.emitters.elemental import Elemental
from hlo.backend.loops.schedule import Reduction
from hlo.backend.loops.trace import trace
from hlo.ir.instruction import Instruction


def shown(elemental: Elemental, reduction: Instruction, form: Reduction) -> Reduction:
    """How a reduce or reduce-window is made, with what it reads and leaves for later stages."""
    from hlo.backend.loops.post_dominators import PostDominators
    from hlo.backend.loops.reading import arrays_of, names_read  # for who looks at loops

    roots = arrays_of(reduction)
    met = trace(elemental.expression, roots)
    costly = {*met.heavy_at, *met.rounded_at}
    last = map(PostDominators().of, costly)  # in whose place they are kept
    asked = {*costly, *last, *(read.source for read in met.reads)}
    saved = elemental.saved.items()
    fills = (i.name for i, s in saved if i in asked and s.is_touched and not s.is_filled)
    filled = [kept for kept, s in saved if s.is_filled]
    reads = names_read(elemental.expression, filled, roots)
    return replace(form, reads=reads, fills=tuple(fills))
