"""Step for sorts: elements beyond a size come after all others."""

from __future__ import annotations

from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.ops.making import make
from hlo.passes.padding.scope import FLAG, Made, Scope, ints, static


def sort(p: Scope, old: Instruction) -> Made:
    """Sorted by validity before all else."""
    xs, (along,) = old.operands, ints(old, "dimensions")
    sizes = p.common(xs, range(xs[0].shape.rank), xs[0].shape.dims)
    values = [p.value(x) for x in xs]
    if along not in sizes:
        made = p.like(old, values, static(old.shape))
        return (p.sized_parts(made, sizes), {}) if old.shape.is_tuple else (made, sizes)
    outside = make(old, "not", p.inside_of(values[0], along, sizes[along]))
    f = old["to_apply"]
    assert isinstance(f, Computation), "to_apply is a computation"
    body = p.module.adopt(_valid_first(f))
    shape = Shape.tuple(tuple(v.shape for v in (*values, outside)))
    made = p.like(old, (*values, outside), shape, to_apply=body)
    parts = p.sized_parts(made, sizes, len(xs))
    assert isinstance(parts, tuple), "a tuple's parts"
    return (parts, {}) if old.shape.is_tuple else (parts[0], sizes)


def _valid_first(f: Computation) -> Computation:
    """(..., is a outside, is b outside) -> those inside first, then as f says."""
    body = Computation(f"{f.name}_of_valid")
    shapes = [*(q.shape for q in f.parameters), FLAG, FLAG]
    given = [
        body.new("parameter", s, (), {"parameter_number": n}, name=f"p{n}")
        for n, s in enumerate(shapes)
    ]
    a, b = given[-2:]
    within = body.new("call", FLAG, given[:-2], {"to_apply": f})
    alike = make(within, "compare", a, b, direction="EQ")
    first = make(within, "compare", a, b, direction="LT")
    body.root = make(within, "select", alike, within, first)
    return body
