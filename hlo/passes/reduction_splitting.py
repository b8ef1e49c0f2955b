"""Long folds with few results are cut in two, so that their parts run in parallel.

reduce(x, z) over n elements  =>  reduce(reduce(reshape(x, [b, n/b]), e), z)     e f's identity
    z itself is e where f picks one of two (value, index) pairs, as arg-max does.

How it is cut depends on shapes only, so the result is the same for every number of threads.
Exact up to the association that HLO leaves open. Source: XLA's tree_reduction_rewriter.
"""

from __future__ import annotations

from math import prod

import numpy as np

from hlo.ir.computation import Computation
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.shape import Shape
from hlo.ops.table import attribute
from hlo.passes.liveness import awaited
from hlo.passes.selections import is_symmetric_selection, ordering_index

_PART = 16 * 1024  # elements that one part folds at least
_PARTS = 64  # parts that are enough
_RESULTS = 2 * 1024  # with so many results there is parallelism without parts
_IDENTITIES = {"add": -0.0, "multiply": 1.0, "maximum": -np.inf, "minimum": np.inf}


def split_reductions(computation: Computation) -> bool:
    """Cut the computation's long folds; whether there were any."""
    changed = False
    kept = awaited(computation)
    for instruction in computation.instructions:
        if instruction.opcode == "reduce":
            changed |= instruction not in kept and _split(instruction)
    return changed


def _split(reduce: Instruction) -> bool:
    x = reduce.operands[0]
    reduced = sorted(attribute(reduce, "dimensions"))  # type: ignore[call-overload]  # INTS
    results = reduce.shape.elements[0].size if reduce.shape.is_tuple else reduce.shape.size
    length = prod(x.shape.dims[d] for d in reduced)
    if results >= _RESULTS or length < 2 * _PART:
        return False
    if x.shape.is_dynamic or "control-predecessors" in reduce.attributes:
        return False
    kept_after = prod(n for d, n in enumerate(x.shape.dims) if d not in reduced)
    wanted = min(_PARTS, length * kept_after // _PART)
    d = reduced[0]
    parts = _parts(x.shape.dims[d], wanted)
    starts = _starts(reduce) if parts > 1 else None
    if starts is None:
        return False
    _rewrite(reduce, d, parts, starts)
    return True


def _starts(reduce: Instruction) -> list[Instruction] | None:
    """What parts start from, where folding them one by one gives what the whole gives."""
    inits = reduce.operands[len(reduce.operands) // 2 :]
    if len(inits) == 1:
        (z,) = inits
        identity = _identity(reduce, z.shape.dtype)
        computation = reduce.computation
        if identity is None or computation is None:
            return None
        return [computation.new("constant", identity.shape, (), {"literal": identity})]
    body: Computation = reduce["to_apply"]  # type: ignore[assignment]  # a COMPUTATION
    is_selection = is_symmetric_selection(body) or ordering_index(reduce) is not None
    return list(inits) if is_selection else None


def _parts(size: int, wanted: int) -> int:
    """The divisor of size nearest below twice what is wanted, at least a quarter of it."""
    for parts in range(min(2 * wanted, size), max(wanted // 4, 1), -1):
        if size % parts == 0:
            return parts
    return 1


def _rewrite(reduce: Instruction, d: int, parts: int, starts: list[Instruction]) -> None:
    computation = reduce.computation
    assert computation is not None, "a reduce in a computation"
    arrays, inits = reduce.operands[: len(starts)], reduce.operands[len(starts) :]
    dims = arrays[0].shape.dims
    reduced = attribute(reduce, "dimensions")
    split = (*dims[:d], parts, dims[d] // parts, *dims[d + 1 :])
    reshaped = [
        computation.new("reshape", x.shape.with_dims(split), (x,), like=reduce) for x in arrays
    ]
    inner = tuple(k + (k >= d) for k in reduced)  # type: ignore[attr-defined]  # INTS
    kept = [k for k in range(len(split)) if k not in inner]
    shapes = [Shape.array(z.shape.dtype, [split[k] for k in kept]) for z in starts]
    partial = computation.new(
        "reduce",
        Shape.tuple(shapes) if reduce.shape.is_tuple else shapes[0],
        (*reshaped, *starts),
        {"dimensions": inner, "to_apply": reduce["to_apply"]},
        like=reduce,
    )
    results = [partial]
    if reduce.shape.is_tuple:
        results = [
            computation.new("get-tuple-element", shape, (partial,), {"index": k}, like=reduce)
            for k, shape in enumerate(shapes)
        ]
    computation.set_operands(reduce, (*results, *inits))
    computation.set_attributes(reduce, {**reduce.attributes, "dimensions": (kept.index(d),)})


def _identity(reduce: Instruction, dtype: DType) -> Literal | None:
    """e with f(e, x) = x, where f is one op known to be associative."""
    body: Computation = reduce["to_apply"]  # type: ignore[assignment]  # a COMPUTATION
    root = body.root
    if set(root.operands) != set(body.parameters) or len(root.operands) != 2:
        return None
    shape = Shape.array(dtype)
    if dtype.is_pred:
        value = {"or": False, "add": False, "maximum": False, "and": True, "multiply": True}
        found = value.get(root.opcode)
        return None if found is None else Literal.of(np.bool_(found), shape)
    if dtype.is_integral:
        least, greatest = dtype.int_range
        numbers = {
            "add": 0, "multiply": 1, "maximum": least, "minimum": greatest, "or": 0, "xor": 0,
            "and": -1 if dtype.is_signed else greatest,
        }  # fmt: skip
        whole = numbers.get(root.opcode)
        return None if whole is None else Literal.of(np.array(whole).astype(dtype.numpy), shape)
    # Narrow floats would round their parts' results; they are left whole.
    if root.opcode not in _IDENTITIES or dtype.name not in ("f32", "f64"):
        return None
    return Literal.of(np.array(_IDENTITIES[root.opcode]).astype(dtype.numpy), shape)
