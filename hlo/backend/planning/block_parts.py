"""Block parts: sums over blocks that are made in several parts, and what adds these up.

    kernel over blocks --with_parts--> it, its sums in temporaries [heads, parts, ..]; then for each
                                       of them result = sum of the parts

Blocks that add to one sum run one after the other, so few heads would keep few threads busy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from msgspec.structs import replace

from hlo.analysis.leaves import leaves_of
from hlo.backend.ir.kernel import Kernel, KernelCall, KernelSequence
from hlo.backend.planning.implementations import HostCall, Implementation
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.shape import Shape
from hlo.ops.making import make, make_constant


def with_parts(
    blocked: Instruction,
    before: KernelSequence,
    kernel: Kernel,
    totals: Mapping[int, int],
    parts: int,
    implemented: Callable[[Instruction], Implementation],
) -> KernelSequence | None:
    """before: the calls before the kernel, which reads all that they write. totals: the leaves of
    the result that are sums over blocks, and how many heads they have.
    """
    leaves = leaves_of(blocked.shape)
    given = len(blocked.operands)
    first = given + len(leaves) + len(before.temporaries)
    temporaries = [leaves[leaf].size_bytes * parts for leaf in totals]
    buffers = list(range(first))
    calls: list[KernelCall] = []
    for number, (leaf, heads) in enumerate(totals.items()):
        buffers[given + leaf] = first + number
        made = implemented(_sum_of_parts(leaves[leaf], heads, parts))
        if isinstance(made, HostCall):
            return None
        assert all(call.when is None for call in made.calls), "loops ask for nothing"
        behind = range(first + len(temporaries), first + len(temporaries) + len(made.temporaries))
        places = (first + number, given + leaf, *behind)
        temporaries += made.temporaries
        calls += [
            replace(call, buffers=tuple(places[b] for b in call.buffers)) for call in made.calls
        ]
    all_calls = (*before.calls, KernelCall(kernel, tuple(buffers)), *calls)
    return KernelSequence(all_calls, (*before.temporaries, *temporaries))


def _sum_of_parts(leaf: Shape, heads: int, parts: int) -> Instruction:
    """fusion(x), calls={ reduce(x) over the parts }, both seen as rows of elements."""
    dtype = leaf.dtype
    scalar = Shape.array(dtype, ())
    added = Computation("added")
    two = [added.new("parameter", scalar, (), {"parameter_number": n}) for n in range(2)]
    added.root = added.new("add", scalar, two)
    given = Shape.array(dtype, (heads, parts, leaf.size // heads))
    inner, outer = Computation("parts_added"), Computation("parts")
    x = inner.new("parameter", given, (), {"parameter_number": 0})
    zero = make_constant(x, Literal(scalar, np.zeros((), dtype.numpy)))
    inner.root = make(x, "reduce", x, zero, dimensions=(1,), to_apply=added)
    whole = outer.new("parameter", given, (), {"parameter_number": 0})
    said = {"kind": "kInput", "calls": inner}
    return outer.new("fusion", inner.root.shape, [whole], said, name="parts_added")
