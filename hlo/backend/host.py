"""Host steps: instructions that no kernel computes, evaluated by the reference during the run.

    (step number, table) -> operand arrays at the row's addresses -> evaluate -> copied to results

One interpreter run per call of the executable keeps what ops keep between steps (random state).
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator

import numpy as np

from hlo.analysis.leaves import leaves_of
from hlo.backend.planning.program import HostStep, Program
from hlo.errors import HloError
from hlo.interpreter.device import Device, Surroundings
from hlo.interpreter.run import Run
from hlo.ir.computation import Computation
from hlo.ir.graph import clone_instruction
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.ops.linear_algebra import FftAttributes
from hlo.runtime.native_calls import flattened


class HostCalls:
    """What the executable calls back for a program's host steps."""

    def __init__(self, program: Program) -> None:
        self._steps = [(step, _alone(step.instruction)) for step in program.hosts]
        self._local = threading.local()

    def begin(self) -> None:
        """A new run on this thread: random state starts again, and no recv is under way."""
        self._local.run = Run(Device(Surroundings()))
        self._local.waiting = {}

    def __call__(self, step: int, table: np.ndarray) -> None:
        """Evaluate one step on the addresses of its row."""
        host, computation = self._steps[step]
        shapes = [o.shape for o in host.instruction.operands]
        leaves = [leaf for shape in shapes for leaf in leaves_of(shape)]
        row = [int(a) for a in table[host.slot : host.slot + len(leaves)]]
        arrays = iter([_array(a, s) for a, s in zip(row, leaves, strict=True)])
        values = tuple(_value(arrays, shape) for shape in shapes)
        if host.instruction.opcode == "recv-done":
            values = (self._under_way(host.instruction),)
        with np.errstate(all="ignore"):
            if host.instruction.opcode == "fft":
                result: object = _transformed(host.instruction, arrays=values)
            else:
                result = self._local.run.call(computation, values)
        if host.instruction.opcode == "recv":  # its value is what recv-done waits for
            self._local.waiting[host.instruction] = result
            nothing = _nothing(host.instruction.shape.elements[0])
            result = (nothing, *result[1:])  # type: ignore[index]  # a tuple
        self._write(host, result, table, host.slot + len(leaves))

    def _under_way(self, done: Instruction) -> object:
        """What the recv began that a recv-done ends."""
        found = self._local.waiting.pop(done.operands[0], None)
        if found is None:
            message = "recv-done: a recv elsewhere, expected one beside it: not compiled"
            raise HloError("unsupported", message, done.span)
        return found

    def _write(self, step: HostStep, result: object, table: np.ndarray, slot: int) -> None:
        """Copy the result's leaves to where the plan wants them."""
        for leaf, shape in zip(flattened(result), leaves_of(step.instruction.shape), strict=True):
            if shape.is_array and leaf is not None:
                if leaf.dtype == object:
                    opcode, what = step.instruction.opcode, "an operation still under way"
                    message = f"{opcode}: {what}, expected its value: not compiled"
                    raise HloError("unsupported", message, step.instruction.span)
                if leaf.shape != shape.dims:
                    raise HloError(
                        "unsupported",
                        f"{step.instruction.opcode}: a result of sizes {list(leaf.shape)}, "
                        f"expected {shape}: sizes that change at run time are not compiled",
                        step.instruction.span,
                    )
                target = _array(int(table[slot]), shape)
                assert target is not None, "an array shape has an array"
                target[...] = leaf
            slot += 1


def _alone(instruction: Instruction) -> Computation:
    """A computation of the instruction and parameters for its operands."""
    computation = Computation(instruction.name)
    parameters = [
        computation.new("parameter", o.shape, attributes={"parameter_number": n}, name=f"p{n}")
        for n, o in enumerate(instruction.operands)
    ]
    clone = clone_instruction(instruction, tuple(parameters))
    clone.attributes = {k: v for k, v in clone.attributes.items() if k != "control-predecessors"}
    computation.add(clone)
    computation.root = clone
    return computation


def _transformed(fft: Instruction, arrays: tuple[object, ...]) -> object:
    """A transform too long for kernels, by NumPy in the operand's own precision: the reference's
    wider one costs three copies."""
    (x,) = arrays
    assert isinstance(x, np.ndarray), "fft has one array"
    attrs = FftAttributes.of(fft.attributes)
    kind, lengths = attrs.fft_type, attrs.fft_length
    dims = fft.shape.dims
    if 0 in dims or 0 in x.shape:
        return np.zeros(dims, fft.shape.dtype.numpy)
    axes = tuple(range(x.ndim - len(lengths), x.ndim))
    return getattr(np.fft, f"{kind.lower()}n")(x, s=lengths, axes=axes)


def _array(address: int, shape: Shape) -> np.ndarray | None:
    """The array at an address, not copied; None for a token."""
    if not shape.is_array:
        return None
    size = shape.size_bytes
    assert shape.dtype.numpy is not None, "an array shape has a NumPy type"
    if not size:
        return np.empty(shape.dims, shape.dtype.numpy)
    memory = (ctypes.c_uint8 * size).from_address(address)
    return np.ctypeslib.as_array(memory).view(shape.dtype.numpy).reshape(shape.dims)


def _nothing(shape: Shape) -> object:
    """None for every leaf of a shape."""
    return tuple(map(_nothing, shape.elements)) if shape.is_tuple else None


def _value(arrays: Iterator[np.ndarray | None], shape: Shape) -> object:
    """The next leaves in the structure of a shape."""
    if shape.is_tuple:
        return tuple(_value(arrays, element) for element in shape.elements)
    return next(arrays)
