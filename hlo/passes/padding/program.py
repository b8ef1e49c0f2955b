"""A program's sizes that change at run time, as sizes beside arrays of their bounds.

    module --padded--> the same module, its entry's boundary as it was

Steps, one for each op that knows of sizes, stand in the other files of this folder.
"""

from __future__ import annotations

from collections.abc import Iterator

from hlo.analysis.fusibility import is_elementwise
from hlo.ir.computation import Computation
from hlo.ir.graph import clone_module, reachable_computations
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.custom_targets import IDENTITIES
from hlo.ops.making import make
from hlo.passes.padding import boundary, control, indexing, moving, ordering, packing, reducing
from hlo.passes.padding.scope import Scope, Step, UnsupportedError, flattened
from hlo.passes.simplify.dce import dce


def padded(module: Module) -> bool:
    """Rewrite a module with dynamic sizes; False where it has been, or has an op without a step."""
    if not boundary.has_sizes(module) or boundary.static_program(module) is not None:
        return False
    given, copy = module.entry, clone_module(module)
    twins = tuple(zip(module.computations, copy.computations, strict=True))
    dce(copy)  # what nobody uses assumes nothing of sizes
    for computation in copy.computations:
        computation.module = None
        module.adopt(computation)
    try:
        _pad(Scope(module, copy.entry, _step), given)
    except UnsupportedError:
        module.remove_all(set(module.computations) - {old for old, _ in twins})
        return False
    for old, new in twins:
        old.name, new.name = new.name, old.name
    module.entry = copy.entry
    module.remove_all(set(module.computations) - reachable_computations(module))
    return True


def _pad(scope: Scope, given: Computation) -> None:
    """Rewrite a copy of the given entry."""
    scope.walk()
    root = scope.root
    arrays, shapes = list(flattened(scope.tree(root))), tuple(root.shape.leaves())
    if any(not array.shape.is_array for array in arrays):
        raise UnsupportedError
    sizes: list[Instruction] = []
    for array, shape in zip(arrays, shapes, strict=True):
        dims = boundary.dynamic_dims(shape)
        for d, size in scope.sizes.get(array, {}).items():
            if d not in dims:
                scope.agreed(scope.number(root, shape.dims[d]), size)
        sizes += [scope.size(array, d) for d in dims]
    if scope.checks:
        passed = _chosen(scope, given, [*arrays, *sizes])
        arrays, sizes = passed[: len(arrays)], passed[len(arrays) :]
    left = iter(sizes)
    leaves = [
        boundary.cut(array, left, shape) if shape.is_dynamic else array
        for array, shape in zip(arrays, shapes, strict=True)
    ]
    scope.finish(_packed(root, iter(leaves), root.shape))


def _chosen(scope: Scope, given: Computation, passed: list[Instruction]) -> list[Instruction]:
    """What is passed on where the checks hold; else what the given program makes of it."""
    flag = scope.holds(scope.checks.pop(0))
    values = make(scope.root, "tuple", *passed)
    parameters = make(scope.root, "tuple", *scope.computation.parameters)
    kept = Computation("padded")
    _parameter(kept, values.shape)
    other = Computation("as_given")
    whole = _parameter(other, parameters.shape)
    count = len(whole.shape.elements)
    inputs = [make(whole, "get-tuple-element", whole, index=k) for k in range(count)]
    call = make(whole, "call", *inputs, to_apply=given)
    arrays: list[Instruction] = []
    sizes: list[Instruction] = []
    for leaf in flattened(scope.parts(call)):
        array, found = boundary.pad(leaf) if leaf.shape.is_dynamic else (leaf, {})
        arrays.append(array)
        sizes += found.values()
    other.root = make(call, "tuple", *arrays, *sizes)
    callees = {
        name: scope.module.adopt(c, before=scope.computation)
        for name, c in zip(control.BY_PREDICATE, (kept, other), strict=True)
    }
    made = scope.computation.new(
        "conditional", values.shape, (flag, values, parameters), callees, like=scope.root
    )
    return [make(made, "get-tuple-element", made, index=k) for k in range(len(passed))]


def _parameter(computation: Computation, shape: Shape) -> Instruction:
    """The computation's only parameter."""
    return computation.new("parameter", shape, (), {"parameter_number": 0})


def _packed(like: Instruction, leaves: Iterator[Instruction], shape: Shape) -> Instruction:
    """The next leaves as tuples of the structure of a shape."""
    if not shape.is_tuple:
        return next(leaves)
    return make(like, "tuple", *(_packed(like, leaves, e) for e in shape.elements))


def _step(instruction: Instruction) -> Step | None:
    """How an instruction is written on padded values."""
    opcode = instruction.opcode
    if opcode == "custom-call":
        return CALLS.get(str(instruction.get("custom_call_target")))
    return STEPS.get(opcode) or (moving.elementwise if is_elementwise(instruction) else None)


STEPS: dict[str, Step] = {
    "add-dependency": moving.same,
    "bitcast-convert": moving.bits,
    "broadcast": moving.placed,
    "call": control.call,
    "cholesky": moving.rows,
    "concatenate": moving.concatenate,
    "conditional": control.conditional,
    "convolution": reducing.convolution,
    "copy": moving.same,
    "domain": moving.same,
    "dot": reducing.dot,
    "dynamic-reshape": packing.dynamic_reshape,
    "dynamic-slice": indexing.dynamic_slice,
    "dynamic-update-slice": indexing.dynamic_update_slice,
    "fft": moving.rows,
    "fusion": control.call,
    "gather": indexing.gather,
    "get-dimension-size": moving.get_size,
    "get-tuple-element": control.element,
    "iota": moving.made_whole,
    "map": moving.elementwise,
    "opt-barrier": moving.same,
    "pad": moving.pad,
    "parameter": boundary.parameter,
    "reduce": reducing.reduce,
    "reduce-window": reducing.reduce_window,
    "reshape": packing.reshape,
    "reverse": moving.reverse,
    "scatter": indexing.scatter,
    "select-and-scatter": reducing.select_and_scatter,
    "set-dimension-size": moving.set_size,
    "slice": moving.part,
    "sort": ordering.sort,
    "topk": moving.best,
    "transpose": moving.placed,
    "triangular-solve": moving.rows,
    "tuple": control.tuple_of,
    "while": control.loop,
}
CALLS: dict[str, Step] = {
    **dict.fromkeys(IDENTITIES, moving.annotated),
    "PadToStatic": moving.pad_to_static,
    "SliceToDynamic": moving.slice_to_dynamic,
}
