"""scatter-operand-transposer: what a scatter combines at one position lies side by side.

    scatter(x[w, n], i, u[w, p])  =>  transpose(scatter(x^T[n, w], i, u^T[p, w]))

Sums by columns (`zeros((16, 32)).at[:, i].add(u)`, a histogram for each feature): the window of a
position has an element in each row of the operand, and each is a load, an op and a store, often on
a line of its own. Turned, a window is a run, which vectors combine. Windows of 16 in 32 columns
take 0.2 to 0.3 of the time (Golden Cove, two threads), of 64 in 3,000 0.3, of 4 in 300 0.6, of
1,000 in 512 that are replaced a half. Positions keep their order, and so bits what they are.
"""

from __future__ import annotations

from math import prod

from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.permutation import inverse
from hlo.ir.shape import Ints, Shape
from hlo.ops.indexing import ScatterAttributes
from hlo.ops.making import make, transposed
from hlo.passes.liveness import replace, replaceable
from hlo.passes.patterns.matching import is_plain

LEAST_WINDOW = 4  # Elements of a window; of fewer, as many single ones are combined as fast.


def scatter_operand_transposer(module: Module) -> bool:
    """Combine windows that are runs, between transposes. O(scatters)."""
    found = [(s, order) for s in replaceable(module, "scatter") if (order := _turned(s))]
    for scatter, order in found:
        replace(scatter, _of_runs(scatter, order))
    return bool(found)


def _turned(scatter: Instruction) -> Ints:
    """The operand's dimensions, those that indices choose first; () where windows lie as they are
    to, or where there is more to turn than to combine.
    """
    if len(scatter.operands) != 3 or not all(map(is_plain, _shapes(scatter))):
        return ()
    x, _, updates = (o.shape for o in scatter.operands)
    attrs = ScatterAttributes[Computation].of(scatter.attributes)
    chosen = attrs.inserted_window_dims
    if attrs.input_batching_dims or not set(attrs.scatter_dims_to_operand_dims) <= set(chosen):
        return ()
    window = prod(updates.dims[d] for d in attrs.update_window_dims)
    innermost = max((d for d, n in enumerate(x.dims) if n > 1), default=-1)
    if innermost not in chosen or window < LEAST_WINDOW or x.size > updates.size:
        return ()
    return (*chosen, *(d for d in range(x.rank) if d not in chosen))


def _shapes(scatter: Instruction) -> list[Shape]:
    """Those of the arrays, but of updates that a transpose lays out as what they are turned of."""
    x, indices, updates = scatter.operands
    is_turned = updates.opcode == "transpose" and not updates.shape.is_dynamic
    sources = updates.operands if is_turned else (updates,)
    return [scatter.shape, x.shape, indices.shape, *(o.shape for o in sources)]


def _of_runs(scatter: Instruction, order: Ints) -> Instruction:
    x, indices, updates = scatter.operands
    attrs = ScatterAttributes[Computation].of(scatter.attributes)
    places = [d for d in range(updates.shape.rank) if d not in attrs.update_window_dims]
    turned = transposed(updates, (*places, *attrs.update_window_dims))
    operand = transposed(x, order)
    attributes = {
        **scatter.attributes,
        "update_window_dims": tuple(range(len(places), updates.shape.rank)),
        "inserted_window_dims": tuple(range(len(attrs.inserted_window_dims))),
        "scatter_dims_to_operand_dims": tuple(
            order.index(d) for d in attrs.scatter_dims_to_operand_dims
        ),
    }
    made = make(scatter, "scatter", operand, indices, turned, shape=operand.shape, **attributes)
    return transposed(made, inverse(order))
