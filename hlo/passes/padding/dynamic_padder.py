"""dynamic_padder: what works on sizes that change at run time works on arrays of their bounds.

f32[<=8] value  =>  f32[8] whose elements beyond a size s32[] mean nothing, and that size
"""

from __future__ import annotations

from hlo.ir.module import Module


def dynamic_padder(module: Module) -> bool:
    """Make arrays of bounds, and scalars beside them, of values whose sizes change at run time.

    Ops along whole arrays mask what means nothing: sums with zeros, contractions too. The entry's
    own shape stays: parameters are padded and results cut at its boundary. Where sizes turn out
    not to be as the program assumes, a conditional takes the program as it was. A program with an
    op that is not listed here stays as it is. O(size of the module).
    Source: docs/control.md 4; PadToStatic and SliceToDynamic are XLA's.
    """
    if not module.has_dynamic_sizes:
        return False
    from hlo.passes.padding.program import padded  # few programs have such sizes

    return padded(module)
