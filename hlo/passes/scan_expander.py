"""scan_expander: a scan is a loop; one that only accumulates is a window that grows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hlo.attributes.window import Window, WindowDim
from hlo.ir import dtype as dt
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.making import make, make_constant
from hlo.ops.table import attribute
from hlo.passes.liveness import awaited, fused_computations

INDEX = Shape.array(dt.S32, ())
# Reducers of growing windows, and what they begin with.
_IDENTITIES = {"add": 0.0, "maximum": -np.inf, "minimum": np.inf, "multiply": 1.0}


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


@dataclass(frozen=True, slots=True)
class _Scan:
    """A scan's parts. outputs: the shapes of what it collects, in default layouts."""

    scan: Instruction
    inputs: tuple[Instruction, ...]
    inits: tuple[Instruction, ...]
    outputs: tuple[Shape, ...]
    step: Computation
    along: int
    is_reverse: bool

    @staticmethod
    def of(scan: Instruction) -> _Scan:
        carries, step = attribute(scan, "num_carries"), scan["to_apply"]
        dimensions = attribute(scan, "dimensions")
        assert isinstance(dimensions, tuple), "dimensions is a tuple of one int"
        assert isinstance(carries, int), "num_carries is an int"
        assert isinstance(step, Computation), "to_apply is a computation"
        count = len(scan.operands) - carries
        parts = scan.shape.elements if scan.shape.is_tuple else (scan.shape,)
        outputs = tuple(p.without_layout() for p in parts[: len(parts) - carries])
        return _Scan(
            scan, scan.operands[:count], scan.operands[count:], outputs, step, dimensions[0],
            bool(attribute(scan, "is_reverse")),
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
    first = make_constant(like, Literal.of(_identity(opcode, x.shape.dtype), scalar))
    pads = (0, scan.length - 1) if scan.is_reverse else (scan.length - 1, 0)
    window = Window(
        tuple(
            WindowDim(scan.length, pad_low=pads[0], pad_high=pads[1])
            if d == scan.along
            else WindowDim(1)
            for d in range(x.shape.rank)
        )
    )
    reducer = _reducer(module, like, opcode, scalar)
    sums = make(like, "reduce-window", x, first, window=window, to_apply=reducer)
    kept = tuple(d for d in range(x.shape.rank) if d != scan.along)
    spread = make(like, "broadcast", init, shape=sums.shape, dimensions=kept)
    ys = make(like, opcode, sums, spread)
    starts = [0] * x.shape.rank
    starts[scan.along] = 0 if scan.is_reverse else scan.length - 1
    row = _row(like, ys, [_number(like, s) for s in starts], scan.along)
    return [ys, row]


def _accumulator(scan: _Scan) -> str | None:
    """The op of a scan that only accumulates, and says that the order is free."""
    root = scan.step.root
    counts = (len(scan.inputs), len(scan.inits), len(scan.outputs))
    if counts != (1, 1, 1) or not scan.length or not attribute(scan.scan, "is_associative"):
        return None
    if root.opcode != "tuple" or root.operands[0] is not root.operands[1]:
        return None
    op = root.operands[0]
    dtype = scan.inputs[0].shape.dtype
    if op.opcode not in _IDENTITIES or set(op.operands) != set(scan.step.parameters):
        return None
    return op.opcode if dtype.name in ("f32", "f64", "s32", "s64", "u32", "u64") else None


def _identity(opcode: str, dtype: dt.DType) -> np.ndarray:
    value = _IDENTITIES[opcode]
    if dtype.is_integral and not np.isfinite(value):
        value = dtype.int_range[0 if value < 0 else 1]
    return (
        np.array(value).astype(dtype.numpy) if dtype.is_float else np.array(int(value), dtype.numpy)
    )


def _reducer(module: Module, like: Instruction, opcode: str, scalar: Shape) -> Computation:
    made = _computation(like, f"scan_{opcode}")
    parameters = [_parameter(made, n, scalar) for n in range(2)]
    made.root = made.new(opcode, scalar, parameters)
    return _adopted(module, like, made)


# -- the loop ----------------------------------------------------------------------------------


def _loop(scan: _Scan, module: Module) -> list[Instruction]:
    """State: counter, carries, outputs, inputs."""
    like = scan.scan
    blanks = []
    for shape in scan.outputs:
        zero = Literal.of(np.zeros((), shape.dtype.numpy), Shape.array(shape.dtype, ()))
        blanks.append(
            make(like, "broadcast", make_constant(like, zero), shape=shape, dimensions=())
        )
    if not scan.length:
        return [*blanks, *scan.inits]
    start = make(like, "tuple", _number(like, 0), *scan.inits, *blanks, *scan.inputs)
    condition = _adopted(module, like, _condition(scan, start.shape))
    body = _adopted(module, like, _body(scan, start.shape))
    loop = make(like, "while", start, condition=condition, body=body)
    carries, outputs = len(scan.inits), len(scan.outputs)
    order = [*range(1 + carries, 1 + carries + outputs), *range(1, 1 + carries)]
    return [make(like, "get-tuple-element", loop, index=k) for k in order]


def _condition(scan: _Scan, state: Shape) -> Computation:
    made = _computation(scan.scan, "scan_condition")
    counter = _element(_parameter(made, 0, state), 0)
    limit = _number(counter, scan.length)
    made.root = make(counter, "compare", counter, limit, direction="LT")
    return made


def _body(scan: _Scan, state: Shape) -> Computation:
    made = _computation(scan.scan, "scan_body")
    parameter = _parameter(made, 0, state)
    parts = [_element(parameter, k) for k in range(len(state.elements))]
    carries, outputs = len(scan.inits), len(scan.outputs)
    counter, carried = parts[0], parts[1 : 1 + carries]
    collected, inputs = parts[1 + carries : 1 + carries + outputs], parts[1 + carries + outputs :]
    at = counter
    if scan.is_reverse:
        at = make(counter, "subtract", _number(counter, scan.length - 1), counter)
    zero = _number(counter, 0)

    def starts(rank: int) -> list[Instruction]:
        return [at if d == scan.along else zero for d in range(rank)]

    rows = [_row(counter, x, starts(x.shape.rank), scan.along) for x in inputs]
    result = scan.step.root.shape
    called = make(counter, "call", *rows, *carried, shape=result, to_apply=scan.step)
    values = (
        [_element(called, k) for k in range(len(result.elements))] if result.is_tuple else [called]
    )
    updated = []
    for whole, value in zip(collected, values[:outputs], strict=True):
        dims = list(whole.shape.dims)
        dims[scan.along] = 1
        row = make(counter, "reshape", value, shape=whole.shape.with_dims(dims))
        updated.append(make(counter, "dynamic-update-slice", whole, row, *starts(whole.shape.rank)))
    following = make(counter, "add", counter, _number(counter, 1))
    parts = [following, *values[outputs:], *updated, *inputs]
    made.root = make(counter, "tuple", *parts, shape=state)
    return made


def _row(like: Instruction, x: Instruction, at: list[Instruction], along: int) -> Instruction:
    """One row of x, without the dimension that it is taken from."""
    sizes = tuple(1 if d == along else n for d, n in enumerate(x.shape.dims))
    row = make(like, "dynamic-slice", x, *at, dynamic_slice_sizes=sizes)
    dims = [n for d, n in enumerate(x.shape.dims) if d != along]
    return make(like, "reshape", row, shape=x.shape.with_dims(dims))


def _number(like: Instruction, value: int) -> Instruction:
    return make_constant(like, Literal.of(np.array(value, np.int32), INDEX))


def _element(whole: Instruction, index: int) -> Instruction:
    return make(whole, "get-tuple-element", whole, index=index)


def _computation(like: Instruction, name: str) -> Computation:
    assert like.computation is not None, "an instruction in a computation"
    return Computation(name, execution_thread=like.computation.execution_thread)


def _parameter(made: Computation, number: int, shape: Shape) -> Instruction:
    return made.new("parameter", shape, (), {"parameter_number": number}, name=f"p{number}")


def _adopted(module: Module, like: Instruction, made: Computation) -> Computation:
    """The computation in the module, before the one that calls it."""
    caller = like.computation
    assert caller is not None, "an instruction in a computation"
    module.adopt(made)
    module.computations.insert(module.computations.index(caller), module.computations.pop())
    return made
