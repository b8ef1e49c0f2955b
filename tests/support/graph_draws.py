"""Random graphs of fusible ops at awkward shapes, over whole numbers, so that every bit is certain.

Values stay whole and small (what grows is clamped, what is not whole is rounded): sums are exact in
any order, and two engines, or two numbers of threads, have to agree to the bit.
"""

from __future__ import annotations

import math

import hlo
from hlo.ir.dtype import DTYPES
from hlo.ir.instruction import Instruction
from tests.support.op_draws import Draw, refactored

SIZES = (1, 1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 40, 64, 67, 129, 257, 1031)
LARGEST = 150_000  # elements of a value: enough that two threads get a part each
TYPES = ("f32", "f32", "f32", "f64", "s32", "bf16")
BOUND = 37  # bf16 adds such numbers exactly
BINARY = ("add", "subtract", "multiply", "maximum", "minimum")
UNARY = ("negate", "abs", "sign", "tanh", "exponential", "sqrt", "cosine")


class Graph(Draw):
    """A module that grows by one op at a time; `values` are its arrays so far, of one type."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.dtype = DTYPES[str(self.pick(TYPES))]
        self.values = [self.array(self.sizes(), self.dtype) for _ in range(1 + self.below(3))]

    def sizes(self) -> tuple[int, ...]:
        while True:
            dims = tuple(int(self.pick(SIZES)) for _ in range(1 + self.below(3)))  # type: ignore[call-overload]
            if math.prod(dims) <= LARGEST:
                return dims

    def partner(self, x: Instruction) -> Instruction:
        """Another value of the same shape; a new parameter where there is none."""
        others = [v for v in self.values if v.shape.dims == x.shape.dims and v is not x]
        return self.pick(others) if others else self.array(x.shape.dims, self.dtype)  # type: ignore[return-value]

    def recent(self) -> Instruction:
        return self.values[-1 - self.below(min(4, len(self.values)))]

    def tamed(self, x: Instruction) -> Instruction:
        """Whole numbers below BOUND, many of them."""
        if self.dtype.is_float:
            x = self.b.emit("round-nearest-even", x)
        return self.b.remainder(self.b.clamp(-9999, x, 9999), BOUND)

    def grow(self) -> None:
        """One more value, from recent ones."""
        x = self.recent()
        dims, rank = x.shape.dims, x.shape.rank
        match self.below(11):
            case 0:
                opcode = str(self.pick(UNARY if self.dtype.is_float else UNARY[:3]))
                made = self.tamed(self.b.multiply(self.b.emit(opcode, self.b.abs(x)), 9))
            case 1 | 2:
                made = self.tamed(self.b.emit(str(self.pick(BINARY)), x, self.partner(x)))
            case 3:
                y = self.partner(x)
                made = self.b.select(self.b.gt(x, y), y, self.b.negate(x))
            case 4:
                made = self.b.transpose(x, self.order(rank))
            case 5:
                made = self._broadcast(x)
            case 6:
                made = self._reduced(x)
            case 7 if rank:
                at = self.below(rank)
                made = self.b.concat_in_dim([x, self.b.negate(x), x][: 2 + self.below(2)], at)
            case 8:
                starts = [self.below(n) for n in dims]
                made = self.b.slice(x, starts, dims, [1 + self.below(3) for _ in dims])
            case 9:
                made = self.b.reshape(x, refactored(self, x.shape.size))
            case _:
                rows = [(self.below(3), self.below(4) - (n > 1), self.below(2)) for n in dims]
                made = self.b.pad(x, 3, rows)
        if 0 < made.shape.size <= LARGEST and made.shape.rank <= 5:
            self.values.append(made)

    def _broadcast(self, x: Instruction) -> Instruction:
        at = self.below(x.shape.rank + 1)
        kept = [d for d in range(x.shape.rank + 1) if d != at]
        dims = list(x.shape.dims)
        dims.insert(at, int(self.pick(SIZES[:12])))  # type: ignore[call-overload]
        return self.b.broadcast(x, dimensions=kept, shape=x.shape.with_dims(dims))

    def _reduced(self, x: Instruction) -> Instruction:
        """A reduction, and often what softmax does with one: spread it again and subtract."""
        over = self.some(x.shape.rank)
        opcode = str(self.pick(("add", "maximum")))
        wide = x
        if self.dtype.name == "bf16":  # its sums are rounded: exact while they are small
            wide = self.b.clamp(-1, x, 1) if opcode == "add" else x
            if math.prod(x.shape.dims[d] for d in over) > 200:
                opcode = "maximum"
        small = self.tamed(self.b.reduce(wide, 0, self.reducer(opcode, self.dtype), over))
        if self.coin():
            return small
        kept = [d for d in range(x.shape.rank) if d not in over]
        spread = self.b.broadcast(small, dimensions=kept, shape=x.shape)
        return self.tamed(self.b.subtract(x, spread))

    def module(self) -> hlo.ir.module.Module:
        """The last values are the results."""
        return self.b.build(self.b.tuple(self.values[-3:]))
