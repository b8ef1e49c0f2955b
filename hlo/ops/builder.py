"""Making instructions: `make` for passes, `Builder` for people. Shapes are inferred from the
table.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from hlo.errors import HloError, Violation
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.table import OPS, REQUIRED


def inferred_shape(
    opcode: str,
    operands: Iterable[Instruction],
    attributes: dict[str, object],
    shape: Shape | None = None,
) -> Shape:
    """The result shape by the op's own rule; raises Violation where it is broken."""
    row = OPS[opcode]
    keywords = {
        name: _for_infer(attributes[name]) if name in attributes else attr.default
        for name, attr in row.attrs.items()
        if name in attributes or attr.default is not REQUIRED
    }
    if row.takes_shape:
        keywords["shape"] = shape
    inferred = row.infer(*(o.shape for o in operands), **keywords)
    assert isinstance(inferred, Shape), f"{opcode}.infer gives a Shape"
    return inferred


def _for_infer(value: object) -> object:
    """Called computations reach `infer` as their program shapes."""
    if isinstance(value, Computation):
        return value.program_shape
    if isinstance(value, tuple) and value and isinstance(value[0], Computation):
        return tuple(c.program_shape for c in value)
    return value


def make(
    like: Instruction,
    opcode: str,
    *operands: Instruction,
    shape: Shape | None = None,
    **attributes: object,
) -> Instruction:
    """A new instruction in `like`'s computation, with its place and metadata;
    the shape is inferred.
    """
    assert like.computation is not None, f"{like.name} stands in no computation"
    result = inferred_shape(opcode, operands, attributes, shape)
    return like.computation.new(
        opcode, shape or result, operands, attributes, like=like, name=opcode
    )


def make_constant(like: Instruction, literal: Literal) -> Instruction:
    """A constant in `like`'s computation."""
    assert like.computation is not None, f"{like.name} stands in no computation"
    return like.computation.new("constant", literal.shape, (), {"literal": literal}, like=like)


class Builder:
    """Builds one module, entry first to last. Every op of the table is a method.

    `-` in an opcode is `_`, Python's keywords get a trailing `_` (`and_`, `while_`); operands are
    positional, attributes go by keyword, `shape=` where the result does not follow from the
    operands (convert, reshape, broadcast, iota, ...), `name=` for the instruction's name.

        b = hlo.Builder("axpy")
        x = b.parameter("x", hlo.Shape.array("f32", [8]))
        y = b.parameter("y", x.shape)
        two = b.broadcast(b.constant(2.0, "f32"), dimensions=(), shape=x.shape)
        module = b.build(b.add(b.multiply(two, x), y))
    """

    def __init__(self, name: str = "module") -> None:
        self._module = Module(name)
        self._computation = Computation("main")

    @property
    def computation(self) -> Computation:
        return self._computation

    def parameter(self, name: str, shape: Shape) -> Instruction:
        """The next parameter of the entry."""
        number = len(self._computation.parameters)
        return self._computation.new(
            "parameter", shape, (), {"parameter_number": number}, name=name
        )

    def constant(self, value: object, dtype: str | None = None) -> Instruction:
        """A constant: a Literal, or an array or number of the element type."""
        if isinstance(value, Literal):
            literal = value
        else:
            from_array = Literal.of(value) if dtype is None else None
            literal = from_array or Literal.of(value, _shape_of(value, dtype or "f32"))
        return self._computation.new("constant", literal.shape, (), {"literal": literal})

    def add_computation(self, computation: Computation) -> Computation:
        """Enter a computation that instructions of this module call."""
        return self._module.add(computation)

    def subcomputation(self, name: str) -> Builder:
        """A builder for a computation of the same module; end it with `finish(root)`."""
        inner = Builder(name)
        inner._module = self._module
        inner._computation = Computation(name)
        return inner

    def finish(self, root: Instruction) -> Computation:
        """Set the root and enter the computation into the module."""
        self._computation.root = root
        return self._module.adopt(self._computation)

    def build(self, root: Instruction) -> Module:
        """The finished module, this computation its entry."""
        self._computation.root = root
        self._module.add(self._computation, entry=True)
        return self._module

    def emit(
        self,
        opcode: str,
        *operands: Instruction,
        shape: Shape | None = None,
        name: str = "",
        **attributes: object,
    ) -> Instruction:
        """Append an instruction of any opcode; HloError where the op's rule is broken."""
        try:
            inferred = inferred_shape(opcode, operands, attributes, shape)
        except Violation as violation:
            raise HloError(violation.code, f"{opcode}: {violation}") from None
        return self._computation.new(opcode, shape or inferred, operands, attributes, name=name)

    def __getattr__(self, name: str) -> partial[Instruction]:
        opcode = name.rstrip("_").replace("_", "-")
        if opcode not in OPS:
            raise AttributeError(f"no opcode {opcode}")
        return partial(self.emit, opcode)


def _shape_of(value: object, dtype: str) -> Shape:
    dims = getattr(value, "shape", None)
    if dims is None:
        dims = _nested_dims(value)
    return Shape.array(dtype, dims)


def _nested_dims(value: object) -> tuple[int, ...]:
    dims: list[int] = []
    while isinstance(value, list | tuple):
        dims.append(len(value))
        if not value:
            break
        value = value[0]
    return tuple(dims)
