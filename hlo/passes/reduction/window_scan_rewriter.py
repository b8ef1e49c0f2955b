"""window-scan-rewriter: a window of several arrays that is as long as its dimension is a scan.

    reduce-window(xs, inits) f, padded before the dimension by all of the window but one
        =>  scan(xs, inits), ys = carries = f(carries, xs)

Result t takes elements 0 to t, the first one first, as f is not known to be associative; padding
is no element. n elements are met once each instead of n / 2 times. A window of one array is a
kernel that does the same (backend/loops/choose_scan.py).
"""

from __future__ import annotations

from hlo.analysis.reducers import grown_dimension, reducer_of
from hlo.ir.computation import Computation
from hlo.ir.graph import is_topological, post_order
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.making import make
from hlo.ops.table import Trait, has_trait
from hlo.passes.liveness import replace, replaceable
from hlo.passes.loop_making import adopted, element, new_computation, parameter
from hlo.passes.patterns.matching import is_plain

LEAST = 32  # Elements from which a loop's steps cost less than windows.


def window_scan_rewriter(module: Module) -> bool:
    """Write windows of several arrays that grow along a dimension as scans. O(instructions)."""
    found = [i for i in replaceable(module, "reduce-window") if _grows(i)]
    for window in found:
        replace(window, _scan(window, module))
    return bool(found)


def _grows(window: Instruction) -> bool:
    scanned = grown_dimension(window) if window.shape.is_tuple else None
    if scanned is None or scanned[1]:
        return False
    shapes = (*(o.shape for o in window.operands), *window.shape.elements)
    if not all(map(is_plain, shapes)) or window.operands[0].shape.dims[scanned[0]] < LEAST:
        return False
    members = reducer_of(window).computation.instructions
    return is_topological(members) and all(_is_liftable(i) for i in members)


def _is_liftable(member: Instruction) -> bool:
    """Whether it does for all elements of arrays what it does for one."""
    known = member.opcode in ("parameter", "constant") or has_trait(member, Trait.ELEMENTWISE)
    is_end = member.is_root and member.opcode == "tuple"
    return (known or is_end) and "control-predecessors" not in member.attributes


def _scan(window: Instruction, module: Module) -> Instruction:
    scanned = grown_dimension(window)
    assert scanned is not None
    along, count = scanned[0], len(window.shape.elements)
    xs, starts = window.operands[:count], window.operands[count:]
    dims = tuple(n for d, n in enumerate(xs[0].shape.dims) if d != along)
    rows = [Shape.array(x.shape.dtype, dims) for x in xs]
    carried = [
        make(window, "broadcast", z, shape=row, dimensions=())
        for z, row in zip(starts, rows, strict=True)
    ]
    step = adopted(module, window, _step(window, rows))
    shape = Shape.tuple((*window.shape.elements, *rows))
    scan = make(
        window, "scan", *xs, *carried, shape=shape,
        dimensions=(along,), num_carries=count, to_apply=step,
    )  # fmt: skip
    return make(window, "tuple", *(element(scan, k) for k in range(count)), shape=window.shape)


def _step(window: Instruction, rows: list[Shape]) -> Computation:
    """The window's function of rows: the elements first, then what was accumulated."""
    made, function = new_computation(window, "window_scan"), reducer_of(window).computation
    given = [parameter(made, n, row) for n, row in enumerate((*rows, *rows))]
    twins = dict(zip(function.parameters, (*given[len(rows) :], *given[: len(rows)]), strict=True))
    like = given[0]
    for old in post_order(function):
        if old in twins or old.opcode == "tuple":
            continue
        shape = rows[0].with_dtype(old.shape.dtype)
        if old.opcode == "constant":
            one = made.new("constant", old.shape, (), dict(old.attributes))
            twins[old] = make(like, "broadcast", one, shape=shape, dimensions=())
        else:
            operands = [twins[o] for o in old.operands]
            twins[old] = make(like, old.opcode, *operands, shape=shape, **old.attributes)
    values = [twins[o] for o in function.root.operands]
    made.root = make(like, "tuple", *values, *values)
    return made
