"""Scatters of narrow floats whose updates may meet in one element: combined in f32, rounded once.

    operand, updates --convert--> f32 --scatter--> f32 --convert--> result
    select-and-scatter likewise, where its windows overlap

Rows of updates are converted where they are combined (computed.py).

As the reference sums (docs/semantics.md 9, accumulation). Rounding after each update would lose all
ones that are added to 256 in bf16.
"""

from __future__ import annotations

from hlo.analysis.scatters import has_rows
from hlo.attributes.window import Window
from hlo.backend.ir.kernel import KernelCall, KernelSequence
from hlo.backend.isa.target import Target
from hlo.backend.kernels.fused_loops import fused_kernel
from hlo.backend.kernels.scatter.scatter import scatter_calls
from hlo.backend.kernels.scatter.select_scatter import select_and_scatter_kernel
from hlo.ir.computation import Computation
from hlo.ir.dtype import F32
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.ops.axis_reductions import operations
from hlo.ops.indexing import ScatterAttributes
from hlo.ops.table import Trait, opcodes

ROUNDING = opcodes(Trait.ASSOCIATIVE) - opcodes(Trait.EXACT)


def wide_scatter_kernels(instruction: Instruction, target: Target) -> KernelSequence | None:
    """The kernels of a scatter that rounds once; None where no sum or product is rounded twice."""
    if instruction.opcode == "fusion":
        return None  # of a type that is not narrow
    attrs = ScatterAttributes[Computation].of(instruction.attributes)
    count = len(instruction.operands) // 2
    found = operations(attrs.to_apply, count)
    if found is None or attrs.unique_indices or not _positions(instruction, attrs.index_vector_dim):
        return None
    rounded = [
        k
        for k, operation in enumerate(found)
        if operation in ROUNDING and _is_narrow(instruction.operands[k].shape)
    ]
    if not rounded:
        return None
    return _sequence(instruction, found, rounded, target)


def _is_narrow(shape: Shape) -> bool:
    return shape.dtype.is_float and shape.dtype.bits < F32.bits


def _positions(instruction: Instruction, vector: int) -> bool:
    """Whether there are at least two windows."""
    count = len(instruction.operands) // 2
    indices = instruction.operands[count].shape
    size = 1
    for d, n in enumerate(indices.dims):
        size *= 1 if d == vector else n
    return size > 1


def _sequence(
    instruction: Instruction, found: tuple[str, ...], rounded: list[int], target: Target
) -> KernelSequence:
    """Buffers: operands, results, then a temporary per converted operand."""
    count, leaves = len(found), len(instruction.operands)
    is_computing = count == 1 and has_rows(instruction)
    converted = [*rounded, *(count + 1 + k for k in rounded if not is_computing)]
    place = {k: leaves + count + n for n, k in enumerate(converted)}
    fragment = Computation("wide")
    given = [_parameter(fragment, k, o.shape) for k, o in enumerate(instruction.operands)]
    wide = [_converted(p, F32.name) if k in place else p for k, p in enumerate(given)]
    shapes = [w.shape for w in wide[:count]]
    shape = Shape.tuple(shapes) if count > 1 else shapes[0]
    said = {**instruction.attributes, "to_apply": _combiner(found, shapes)}
    if is_computing:
        scatter = _computing(fragment, wide, said)
    else:
        scatter = fragment.new("scatter", shape, wide, said)
    operands = tuple(place.get(k, k) for k in range(leaves))
    results = tuple(place.get(k, leaves + k) for k in range(count))
    calls = [KernelCall(fused_kernel(wide[k], target), (k, at)) for k, at in place.items()]
    scattering, flags = scatter_calls(
        scatter, target, (*operands, *results), leaves + count + len(converted)
    )
    calls += scattering
    for k in rounded:
        narrow = _converted(wide[k], given[k].shape.dtype.name)
        calls.append(KernelCall(fused_kernel(narrow, target), (place[k], leaves + k)))
    return KernelSequence(
        tuple(calls),
        (*(wide[k].shape.size_bytes for k in converted), *flags),
        in_place=frozenset((k, k) for k in rounded),
        must_alias=frozenset((k, k) for k in range(count) if k not in rounded),
    )


def _computing(
    fragment: Computation, operands: list[Instruction], said: dict[str, object]
) -> Instruction:
    """A fusion of a scatter of one array with the conversion of its updates."""
    body = Computation("converting")
    x, indices, updates = (_parameter(body, k, o.shape) for k, o in enumerate(operands))
    wide = _converted(updates, x.shape.dtype.name)
    body.root = body.new("scatter", x.shape, (x, indices, wide), said)
    return fragment.new("fusion", x.shape, operands, {"kind": "kInput", "calls": body})


def wide_select_and_scatter_kernels(
    instruction: Instruction, target: Target
) -> KernelSequence | None:
    """The kernels of a select-and-scatter that rounds once; None where that is no matter."""
    if instruction.opcode != "select-and-scatter" or not _is_narrow(instruction.shape):
        return None
    select, scatter = instruction["select"], instruction["scatter"]
    window = instruction.get("window", Window(()))
    assert isinstance(select, Computation)
    assert isinstance(scatter, Computation)
    assert isinstance(window, Window)
    found = operations(scatter, 1)
    overlap = any(d.stride < (d.size - 1) * d.window_dilation + 1 for d in window.dims)
    if found is None or found[0] not in ROUNDING or not overlap or not _compares(select):
        return None
    fragment = Computation("wide")
    given = [_parameter(fragment, k, o.shape) for k, o in enumerate(instruction.operands)]
    wide = [_converted(p, F32.name) for p in given]
    scalar = Shape.array(F32)
    computations = {"select": _selector(select), "scatter": _combiner(found, [scalar])}
    attributes = {**instruction.attributes, **computations}
    whole = fragment.new("select-and-scatter", wide[0].shape, wide, attributes)
    kernel = select_and_scatter_kernel(whole, target)
    if kernel is None:
        return None
    narrow = _converted(whole, instruction.shape.dtype.name)
    calls = [KernelCall(fused_kernel(x, target), (k, 4 + k)) for k, x in enumerate(wide)]
    calls.append(KernelCall(kernel, (4, 5, 6, 7)))
    calls.append(KernelCall(fused_kernel(narrow, target), (7, 3)))
    sizes = (*(x.shape.size_bytes for x in wide), whole.shape.size_bytes)
    return KernelSequence(tuple(calls), sizes, in_place=frozenset({(0, 0), (1, 0)}))


def _compares(select: Computation) -> bool:
    """Whether it is one comparison of its parameters, which means the same of wider ones."""
    root = select.root
    return root.opcode == "compare" and all(o.opcode == "parameter" for o in root.operands)


def _selector(select: Computation) -> Computation:
    wide = Computation("selector")
    given = [_parameter(wide, k, Shape.array(F32)) for k in range(2)]
    order = [given[o.attributes["parameter_number"]] for o in select.root.operands]  # type: ignore[call-overload]  # an int
    wide.new("compare", select.root.shape, order, select.root.attributes)
    return wide


def _parameter(computation: Computation, number: int, shape: Shape) -> Instruction:
    return computation.new("parameter", shape, (), {"parameter_number": number})


def _converted(x: Instruction, dtype: str) -> Instruction:
    assert x.computation is not None
    return x.computation.new("convert", x.shape.with_dtype(dtype), (x,))


def _combiner(found: tuple[str, ...], shapes: list[Shape]) -> Computation:
    """The same operations on the types of the wide operands."""
    combiner = Computation("combiner")
    scalars = [Shape.array(s.dtype) for s in shapes]
    given = [_parameter(combiner, k, s) for k, s in enumerate((*scalars, *scalars))]
    results = [
        combiner.new(operation, scalar, (given[k], given[len(found) + k]))
        for k, (operation, scalar) in enumerate(zip(found, scalars, strict=True))
    ]
    if len(results) > 1:
        combiner.new("tuple", Shape.tuple(scalars), results)
    return combiner
