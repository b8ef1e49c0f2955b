"""dynamic_padder: a program of bounded dynamic sizes as one of static shapes and size scalars.

    f32[<=8] value  =>  f32[8] whose elements beyond a size s32[] mean nothing, and that size

Ops along whole arrays mask what means nothing: sums with zeros, contractions too. A parameter's
sizes are parameters of their own, after the others; the result is a tuple of the result's leaves,
their sizes, and whether all sizes were as the program assumes. Where they were not, and for ops
that are not listed here, the reference is asked. No pass of a pipeline, for the interface differs.
Source: OP_SEMANTICS_CONTROL section 4.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hlo.analysis.fusibility import is_elementwise
from hlo.ir import dtype as dt
from hlo.ir.graph import clone_module, reachable_computations
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ops.custom_call import IDENTITIES
from hlo.ops.making import make
from hlo.passes.padding import control, folding, indexing, moving, ordering, packing
from hlo.passes.padding.scope import Scope, Step, UnsupportedError, flattened

Places = tuple[tuple[int, int], ...]  # (leaf of the result, dimension)
Given = tuple[tuple[int, int, int], ...]  # (parameter, leaf of it, dimension)


class Padded(Struct, frozen=True):
    """The static program; given: sizes that it takes after its parameters; found: sizes that it
    gives after the leaves of the result, before the flag."""

    module: Module
    given: Given
    found: Places
    leaves: int


def padded(module: Module) -> Padded | None:
    """The program with static shapes; None where an op has no such form."""
    try:
        return _padded(clone_module(module))
    except UnsupportedError:
        return None


def _padded(module: Module) -> Padded:
    scope = Scope(module, module.entry, _step)
    scope.walk()
    leaves = list(flattened(scope.tree(scope.root)))
    if any(not leaf.shape.is_array for leaf in leaves):
        raise UnsupportedError
    found = [(n, d) for n, leaf in enumerate(leaves) for d in sorted(scope.sizes.get(leaf, {}))]
    sizes = [scope.sizes[leaves[n]][d] for n, d in found]
    flag = scope.holds(scope.constant(scope.root, np.bool_(True), dt.PRED))
    scope.finish(make(scope.root, "tuple", *leaves, *sizes, flag))
    module.remove_all(set(module.computations) - reachable_computations(module))
    module.attributes = {}
    return Padded(module, tuple(scope.given), tuple(found), len(leaves))


def _step(instruction: Instruction) -> Step | None:
    """How an instruction is written on padded values."""
    opcode = instruction.opcode
    if opcode == "custom-call":
        return CALLS.get(str(instruction.get("custom_call_target")))
    return STEPS.get(opcode) or (moving.elementwise if is_elementwise(instruction) else None)


STEPS: dict[str, Step] = {
    "add-dependency": moving.same,
    "bitcast-convert": moving.bits,
    "broadcast": moving.broadcast,
    "call": control.call,
    "cholesky": moving.rows,
    "concatenate": moving.concatenate,
    "conditional": control.conditional,
    "convolution": folding.convolution,
    "copy": moving.same,
    "domain": moving.same,
    "dot": folding.dot,
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
    "parameter": moving.parameter,
    "reduce": folding.reduce,
    "reduce-window": folding.reduce_window,
    "reshape": packing.reshape,
    "reverse": moving.reverse,
    "scatter": indexing.scatter,
    "select-and-scatter": folding.select_and_scatter,
    "set-dimension-size": moving.set_size,
    "slice": moving.part,
    "sort": ordering.sort,
    "topk": moving.best,
    "transpose": moving.transpose,
    "triangular-solve": moving.rows,
    "tuple": control.tuple_of,
    "while": control.loop,
}
CALLS: dict[str, Step] = {
    **dict.fromkeys(IDENTITIES, moving.annotated),
    "PadToStatic": moving.pad_to_static,
    "SliceToDynamic": moving.slice_to_dynamic,
}
