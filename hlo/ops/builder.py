"""`hlo.Builder`: modules written in Python."""

from __future__ import annotations

from hlo.ops.building.control import Control


class Builder(Control):
    """Builds one module, entry first to last. Every op of the table is a method.

    `-` in an opcode is `_`, Python's keywords get a trailing `_` (`and_`, `while_`); operands are
    positional, attributes go by keyword, `shape=` where the result does not follow from the
    operands (infeed, recv, ...), `name=` for the instruction's name. Numbers and NumPy arrays are
    constants where operands are expected. Elementwise ops broadcast their operands and write that
    out. `emit(opcode, ...)` is HLO's plain form of any op. Errors point at the caller's line.

    >>> b = hlo.Builder("axpy")
    >>> x = b.parameter("x", hlo.Shape.array("f32", [3]))
    >>> y = b.parameter("y", x.shape)
    >>> module = b.build(b.add(b.multiply(2.0, x), y))
    >>> hlo.evaluate(module, np.float32([1, 2, 3]), np.float32([4, 5, 6]))
    array([ 6.,  9., 12.], dtype=float32)

    A computation to call: `f = b.subcomputation("f")`, its instructions, `f.finish(root)`.
    """
