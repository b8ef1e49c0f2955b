"""Results of reductions of several arrays, converted in the kernel that reduces them.

    k = get-tuple-element(fusion), index=1;  convert(k)   =>   a result of the fusion

What nobody asks for is no result: an arg-max whose values are not wanted stores its indices alone.
"""

from __future__ import annotations

from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.passes.rewriting import is_pinned


def finish_reductions(computation: Computation) -> bool:
    """Let fusions of reductions convert what is only wanted converted. O(instructions)."""
    changed = False
    for fusion in [i for i in computation.instructions if i.opcode == "fusion"]:
        (body,) = fusion.called_computations()
        if body.root.opcode == "reduce" and body.root.shape.is_tuple and not fusion.is_root:
            changed |= _finish(computation, fusion, body)
    return changed


def _finish(computation: Computation, fusion: Instruction, body: Computation) -> bool:
    if is_pinned(fusion) or not all(u.opcode == "get-tuple-element" for u in fusion.users):
        return False
    parts = [u for u in fusion.users if u.users or u.is_root]
    wanted = [_converted(part) or part for part in parts]
    if all(w is part for w, part in zip(wanted, parts, strict=True)):
        return False
    reduction, results = body.root, []
    for part, last in zip(parts, wanted, strict=True):
        twin = body.new("get-tuple-element", part.shape, (reduction,), {"index": part["index"]})
        if last is not part:
            twin = body.new("convert", last.shape, (twin,), like=last)
        results.append(twin)
    is_one = len(results) == 1
    body.root = (
        results[0] if is_one else body.new("tuple", Shape.tuple(r.shape for r in results), results)
    )
    call = computation.new(
        "fusion", body.root.shape, fusion.operands, fusion.attributes, like=fusion, name=fusion.name
    )
    for k, last in enumerate(wanted):
        new = call
        if not is_one:
            new = computation.new("get-tuple-element", last.shape, (call,), {"index": k}, like=last)
        computation.replace_uses(last, new)
    return True


def _converted(part: Instruction) -> Instruction | None:
    """The one user of a reduction's result, a conversion."""
    if part.is_root or len(part.users) != 1 or is_pinned(part):
        return None
    (user,) = part.users
    return user if user.opcode == "convert" and not is_pinned(user) else None
