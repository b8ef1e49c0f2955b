"""scan_expander: a scan is a loop; one that only accumulates is a window that grows."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hlo.attributes.window import Window, WindowDim
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.identities import identity
from hlo.ops.making import make, make_constant
from hlo.ops.reduction import ScanAttributes
from hlo.passes.liveness import awaited, fused_computations
from hlo.passes.loop_making import (
    adopted,
    blank,
    element,
    new_computation,
    number,
    parameter,
    reducer,
    row,
)


def scan_expander(module: Module) -> bool:
    """Write scans as loops, or as reduce-windows where they accumulate by an associative op.

    scan(xs, inits)  =>  while(i < n) { y, carry = f(xs[i], carry); ys[i] = y }. O(instructions).
    """
    changed = False
    fused = fused_computations(module)
    for computation in tuple(module.computations):
        scans = [i for i in computation.instructions if i.opcode == "scan"]
        if computation in fused or not scans:
            continue
        kept = awaited(computation)
        for instruction in scans:
            if instruction not in kept and _is_expandable(instruction):
                scan = _Scan.of(instruction)
                values = _accumulated(scan, module) or _loop(scan, module)
                new = _result(instruction, values)
                computation.replace_uses(instruction, new)
                computation.remove(instruction)
                changed = True
    return changed


def _is_expandable(scan: Instruction) -> bool:
    if "control-predecessors" in scan.attributes:
        return False
    return not any(o.shape.is_dynamic or not o.shape.is_array for o in scan.operands)


def _result(scan: Instruction, values: list[Instruction]) -> Instruction:
    """The values in the structure and layouts of the scan's result."""
    shape = scan.shape
    parts = shape.elements if shape.is_tuple else (shape,)
    done = [
        v if v.shape == s else make(scan, "copy", v, shape=s)
        for v, s in zip(values, parts, strict=True)
    ]
    return make(scan, "tuple", *done, shape=shape) if shape.is_tuple else done[0]


class _Scan(Struct, frozen=True):
    """A scan's parts. outputs: the shapes of what it collects, in default layouts."""

    scan: Instruction
    inputs: tuple[Instruction, ...]
    inits: tuple[Instruction, ...]
    outputs: tuple[Shape, ...]
    step: Computation
    along: int
    is_reverse: bool
    is_associative: bool

    @staticmethod
    def of(scan: Instruction) -> _Scan:
        attrs: ScanAttributes[Computation] = ScanAttributes.of(scan.attributes)
        carries = attrs.num_carries
        count = len(scan.operands) - carries
        parts = scan.shape.elements if scan.shape.is_tuple else (scan.shape,)
        outputs = tuple(p.without_layout() for p in parts[: len(parts) - carries])
        return _Scan(
            scan, scan.operands[:count], scan.operands[count:], outputs,
            attrs.to_apply, attrs.dimensions[0], attrs.is_reverse, attrs.is_associative,
        )  # fmt: skip

    @property
    def length(self) -> int:
        return self.inputs[0].shape.dims[self.along] if self.inputs else 0


# -- accumulation ------------------------------------------------------------------------------


def _accumulated(scan: _Scan, module: Module) -> list[Instruction] | None:
    """[f(window(x), init), its last row]  for y = carry = f(x, carry), f one associative op."""
    opcode = _accumulator(scan)
    if opcode is None:
        return None
    like, x, init = scan.scan, scan.inputs[0], scan.inits[0]
    scalar = Shape.array(x.shape.dtype, ())
    start = np.array(identity(opcode, x.shape.dtype)).astype(x.shape.dtype.numpy)
    first = make_constant(like, Literal.of(start, scalar))
    pads = (0, scan.length - 1) if scan.is_reverse else (scan.length - 1, 0)
    window = Window(
        tuple(
            WindowDim(scan.length, pad_low=pads[0], pad_high=pads[1])
            if d == scan.along
            else WindowDim(1)
            for d in range(x.shape.rank)
        )
    )
    step = reducer(module, like, opcode, scalar)
    sums = make(like, "reduce-window", x, first, window=window, to_apply=step)
    kept = tuple(d for d in range(x.shape.rank) if d != scan.along)
    spread = make(like, "broadcast", init, shape=sums.shape, dimensions=kept)
    ys = make(like, opcode, sums, spread)
    last = number(like, 0 if scan.is_reverse else scan.length - 1)
    return [ys, row(ys, scan.along, last)]


def _accumulator(scan: _Scan) -> str | None:
    """The op of a scan that only accumulates, and says that the order is free."""
    root = scan.step.root
    counts = (len(scan.inputs), len(scan.inits), len(scan.outputs))
    if counts != (1, 1, 1) or not scan.length or not scan.is_associative:
        return None
    if root.opcode != "tuple" or root.operands[0] is not root.operands[1]:
        return None
    op = root.operands[0]
    dtype = scan.inputs[0].shape.dtype
    if identity(op.opcode, dtype) is None or set(op.operands) != set(scan.step.parameters):
        return None
    return op.opcode if dtype.name in ("f32", "f64", "s32", "s64", "u32", "u64") else None


# -- the loop ----------------------------------------------------------------------------------


def _loop(scan: _Scan, module: Module) -> list[Instruction]:
    """State: counter, carries, outputs, inputs."""
    like = scan.scan
    blanks = [blank(like, shape) for shape in scan.outputs]
    if not scan.length:
        return [*blanks, *scan.inits]
    start = make(like, "tuple", number(like, 0), *scan.inits, *blanks, *scan.inputs)
    condition = adopted(module, like, _condition(scan, start.shape))
    body = adopted(module, like, _body(scan, start.shape))
    loop = make(like, "while", start, condition=condition, body=body)
    carries, outputs = len(scan.inits), len(scan.outputs)
    order = [*range(1 + carries, 1 + carries + outputs), *range(1, 1 + carries)]
    return [make(like, "get-tuple-element", loop, index=k) for k in order]


def _condition(scan: _Scan, state: Shape) -> Computation:
    made = new_computation(scan.scan, "scan_condition")
    counter = element(parameter(made, 0, state), 0)
    limit = number(counter, scan.length)
    made.root = make(counter, "compare", counter, limit, direction="LT")
    return made


def _body(scan: _Scan, state: Shape) -> Computation:
    made = new_computation(scan.scan, "scan_body")
    whole = parameter(made, 0, state)
    parts = [element(whole, k) for k in range(len(state.elements))]
    carries, outputs = len(scan.inits), len(scan.outputs)
    counter, carried = parts[0], parts[1 : 1 + carries]
    collected, inputs = parts[1 + carries : 1 + carries + outputs], parts[1 + carries + outputs :]
    at = counter
    if scan.is_reverse:
        at = make(counter, "subtract", number(counter, scan.length - 1), counter)
    zero = number(counter, 0)

    def starts(rank: int) -> list[Instruction]:
        return [at if d == scan.along else zero for d in range(rank)]

    rows = [row(x, scan.along, at) for x in inputs]
    result = scan.step.root.shape
    called = make(counter, "call", *rows, *carried, shape=result, to_apply=scan.step)
    values = (
        [element(called, k) for k in range(len(result.elements))] if result.is_tuple else [called]
    )
    updated = []
    for array, value in zip(collected, values[:outputs], strict=True):
        dims = list(array.shape.dims)
        dims[scan.along] = 1
        one = make(counter, "reshape", value, shape=array.shape.with_dims(dims))
        starting = starts(array.shape.rank)
        updated.append(make(counter, "dynamic-update-slice", array, one, *starting))
    following = make(counter, "add", counter, number(counter, 1))
    parts = [following, *values[outputs:], *updated, *inputs]
    made.root = make(counter, "tuple", *parts, shape=state)
    return made
