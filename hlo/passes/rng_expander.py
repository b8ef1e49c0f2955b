"""rng_expander: random numbers of a run that draws each of them once, from counters known here.

    rng(a, b)  =>  arithmetic on rng-bit-generator(state), state = (seed 0, blocks drawn before)

The stream is the run's own (hlo/ops/random.py), for seed 0, with which compiled programs run.
Programs that draw in loops, branches or other callees are left alone: their counters are not known.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hlo.attributes.slices import SliceDim
from hlo.ir import dtype as dt
from hlo.ir.computation import Computation
from hlo.ir.dtype import DType
from hlo.ir.graph import is_topological, post_order
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.making import make, make_constant
from hlo.ops.random import FIRST_STATE
from hlo.ops.table import attribute
from hlo.passes.liveness import awaited
from hlo.records import dataclass

WORDS_PER_BLOCK = 4
MOST_WORDS = 2**40


def rng_expander(module: Module) -> bool:
    """Write the random numbers of the entry as arithmetic on rng-bit-generator, for seed 0."""
    if not any(map(_draws, module.entry.instructions)):
        return False
    drawing = [i for i in _in_order(module.entry) if _draws(i)]
    if not _all_known(module, drawing):
        return False
    blocks = 0
    for instruction in drawing:
        new = _drawn(instruction, blocks)
        blocks += -(-_words(instruction) // WORDS_PER_BLOCK)
        if new.shape != instruction.shape:
            new = make(instruction, "copy", new, shape=instruction.shape)
        module.entry.replace_uses(instruction, new)
        module.entry.remove(instruction)
    return True


def _in_order(computation: Computation) -> tuple[Instruction, ...]:
    """The order of evaluation."""
    order = computation.instructions
    if is_topological(order) and not any("control-predecessors" in i.attributes for i in order):
        return tuple(order)
    return tuple(post_order(computation))


def _draws(instruction: Instruction) -> bool:
    if instruction.opcode == "custom-call":
        return instruction.get("custom_call_target") == "GetRngSeed"
    return instruction.opcode in ("rng", "rng-get-and-update-state")


def _all_known(module: Module, drawing: list[Instruction]) -> bool:
    """Whether nothing else draws, and each can be written as arithmetic with the same bits."""
    elsewhere = (c for c in module.computations if c is not module.entry)
    if any(_draws(i) for c in elsewhere for i in c.instructions):
        return False
    kept = awaited(module.entry)
    if any(i in kept or "control-predecessors" in i.attributes for i in drawing):
        return False
    draws = [i for i in drawing if i.opcode == "rng"]
    if sum(map(_words, draws)) > MOST_WORDS or any(i.shape.is_dynamic for i in draws):
        return False
    # two mathematical libraries agree on log and cos but for the last bits of f64
    return not any(i.shape.dtype is dt.F64 and _is_normal(i) for i in draws)


def _is_normal(rng: Instruction) -> bool:
    return attribute(rng, "distribution") == "rng_normal"


def _words(instruction: Instruction) -> int:
    return 2 * instruction.shape.size if instruction.opcode == "rng" else 0


def _drawn(instruction: Instruction, blocks: int) -> Instruction:
    if instruction.opcode == "rng-get-and-update-state":
        return _constant(instruction, np.array([FIRST_STATE, 0], np.uint64), dt.U64)
    if instruction.opcode == "custom-call":
        return _constant(instruction, np.array(0, np.uint64), dt.U64)
    rng = _Rng.of(instruction, blocks)
    dtype = instruction.shape.dtype
    if _is_normal(instruction):
        return rng.normal()
    if dtype.is_float:
        return rng.uniform_float()
    return rng.coin() if dtype.is_pred else rng.uniform_integer()


def _constant(like: Instruction, value: np.ndarray, dtype: DType) -> Instruction:
    return make_constant(like, Literal.of(value, Shape.array(dtype, value.shape)))


@dataclass(frozen=True, slots=True)
class _Rng:
    """One rng: its words of 32 bits as u64, two for each element."""

    rng: Instruction
    first: Instruction
    second: Instruction

    @staticmethod
    def of(rng: Instruction, blocks: int) -> _Rng:
        dims = rng.shape.dims
        state = _constant(rng, np.array([0, blocks, 0], np.uint64), dt.U64)
        bits = Shape.array(dt.U32, (2, *dims))
        shape = Shape.tuple((state.shape, bits))
        pair = make(rng, "rng-bit-generator", state, shape=shape, algorithm="rng_philox")
        words = make(rng, "get-tuple-element", pair, index=1)
        found = []
        for k in range(2):
            parts = (SliceDim(k, k + 1), *(SliceDim(0, n) for n in dims))
            half = make(rng, "slice", words, slice=parts)
            plain = make(rng, "reshape", half, shape=Shape.array(dt.U32, dims))
            found.append(make(rng, "convert", plain, shape=Shape.array(dt.U64, dims)))
        return _Rng(rng, *found)

    # -- arithmetic ------------------------------------------------------------------------------

    def op(self, opcode: str, *operands: Instruction, **attributes: Any) -> Instruction:
        return make(self.rng, opcode, *operands, **attributes)

    def number(self, value: float, dtype: DType) -> Instruction:
        """A number at every element."""
        scalar = _constant(self.rng, np.array(value, dtype.numpy), dtype)
        return self.spread(scalar)

    def spread(self, scalar: Instruction) -> Instruction:
        shape = Shape.array(scalar.shape.dtype, self.rng.shape.dims)
        return make(self.rng, "broadcast", scalar, shape=shape, dimensions=())

    def typed(self, x: Instruction, dtype: DType) -> Instruction:
        if x.shape.dtype is dtype:
            return x
        return make(self.rng, "convert", x, shape=Shape.array(dtype, x.shape.dims))

    def operands(self, dtype: DType) -> tuple[Instruction, Instruction]:
        """a and b at every element."""
        a, b = (self.spread(self.typed(o, dtype)) for o in self.rng.operands)
        return a, b

    def uniform_float(self) -> Instruction:
        """u (b - a) + a, u of as many bits as the type holds; a where that is b."""
        dtype = self.rng.shape.dtype
        assert dtype.float_format is not None, "a floating type"
        amount, less = (self.number(n, dt.U64) for n in (21, 11))
        high = self.op("shift-left", self.first, amount)
        bits = self.op("xor", high, self.op("shift-right-logical", self.second, less))
        unit = self.op("multiply", self.typed(bits, dt.F64), self.number(2.0**-53, dt.F64))
        scale = 2.0 ** (dtype.float_format.mantissa + 1)
        steps = self.op("floor", self.op("multiply", unit, self.number(scale, dt.F64)))
        unit = self.op("multiply", steps, self.number(1 / scale, dt.F64))
        a, b = self.operands(dt.F64)
        wide = self.op("add", self.op("multiply", unit, self.op("subtract", b, a)), a)
        drawn = self.typed(wide, dtype)
        is_over = self.op("compare", self.typed(drawn, dt.F64), b, direction="GE")
        is_range = self.op("compare", a, b, direction="LT")
        narrow, _ = self.operands(dtype)
        return self.op("select", self.op("and", is_over, is_range), narrow, drawn)

    def uniform_integer(self) -> Instruction:
        """a + bits mod (b - a), a where the range is empty."""
        dtype = self.rng.shape.dtype
        bits = self.op(
            "or", self.first, self.op("shift-left", self.second, self.number(32, dt.U64))
        )
        a, b = (self.unsigned(x) for x in self.operands(dt.S64 if dtype.is_signed else dt.U64))
        mask = self.number((1 << dtype.bits) - 1, dt.U64)
        span = self.op("and", self.op("subtract", b, a), mask)
        zero = self.number(0, dt.U64)
        rest = self.op("remainder", bits, span)
        is_empty = self.op("compare", span, zero, direction="EQ")
        return self.typed(self.op("add", a, self.op("select", is_empty, zero, rest)), dtype)

    def unsigned(self, x: Instruction) -> Instruction:
        shape = Shape.array(dt.U64, x.shape.dims)
        return x if x.shape.dtype is dt.U64 else make(self.rng, "bitcast-convert", x, shape=shape)

    def coin(self) -> Instruction:
        """A fair coin where b is, a where it is not."""
        a, b = (self.spread(o) for o in self.rng.operands)
        low = self.op("and", self.first, self.number(1, dt.U64))
        head = self.op("compare", low, self.number(0, dt.U64), direction="NE")
        return self.op("or", self.op("and", head, b), self.op("and", self.op("not", b), a))

    def normal(self) -> Instruction:
        """Box and Muller."""
        one, two = (self.typed(w, dt.F64) for w in (self.first, self.second))
        small = self.number(2.0**-32, dt.F64)
        shifted = self.op("add", one, self.number(0.5, dt.F64))
        u = self.op("maximum", self.op("multiply", shifted, small), self.number(1e-7, dt.F64))
        turn = self.op("multiply", two, small)
        square = self.op("multiply", self.number(-2.0, dt.F64), self.op("log", u))
        angle = self.op("multiply", self.number(2 * np.pi, dt.F64), turn)
        drawn = self.op("multiply", self.op("sqrt", square), self.op("cosine", angle))
        mean, deviation = self.operands(dt.F64)
        wide = self.op("add", self.op("multiply", drawn, deviation), mean)
        return self.typed(wide, self.rng.shape.dtype)
