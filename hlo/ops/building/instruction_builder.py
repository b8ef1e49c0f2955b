"""The Builder's core: parameters, constants, any opcode by its table row, computations, the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hlo.errors import HloError, Violation
from hlo.ir.computation import Computation
from hlo.ir.dtype import DType, dtype, from_numpy
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.names import sanitised
from hlo.ir.shape import Shape, compatible
from hlo.ops.attributes import REQUIRED
from hlo.ops.building.caller import error, error_of
from hlo.ops.building.python_values import attribute_value
from hlo.ops.instruction_attributes import INSTRUCTION_ATTRS
from hlo.ops.making import inferred_shape, signature
from hlo.ops.mixed_precision import check_precision
from hlo.ops.shape_rules import text
from hlo.ops.table import OPS, attribute_keywords

Number = bool | int | float | complex
Operand = Instruction | Number | np.ndarray | np.generic
_PYTHON_TYPES = ((bool, "pred"), (int, "s32"), (float, "f32"), (complex, "c64"))


class InstructionBuilder:
    """Appends instructions to one computation of a module under construction."""

    def __init__(self, name: str = "module") -> None:
        self._module = Module(name)
        self._computation = Computation("main")

    @property
    def computation(self) -> Computation:
        return self._computation

    def parameter(self, name: str, shape: Shape) -> Instruction:
        """The next parameter of the computation."""
        if not isinstance(shape, Shape):
            raise error("arguments", f"parameter: shape is {shape!r}, expected an hlo.Shape")
        number = len(self._computation.parameters)
        attributes = {"parameter_number": number}
        return self._append("parameter", shape, (), attributes, name)

    def constant(self, value: object, dtype: DType | str | None = None) -> Instruction:
        """A constant: a Literal, an array, or nested lists of numbers.

        Without `dtype` an array keeps its own element type; Python's numbers are pred, s32, f32
        and c64.
        """
        literal = value if isinstance(value, Literal) else _literal(value, dtype)
        return self._append("constant", literal.shape, (), {"literal": literal}, "constant")

    def emit(
        self,
        opcode: str,
        *operands: Operand,
        shape: Shape | None = None,
        name: str = "",
        **attributes: object,
    ) -> Instruction:
        """Append an instruction of any opcode, operands as HLO has them.

        Raises HloError at the caller's line where a rule of the op is broken.
        """
        if opcode not in OPS:
            raise error("unknown-opcode", f"{opcode!r} is no opcode")
        arrays = self.operands(opcode, operands)
        try:
            values = _attributes(opcode, attributes)
            self._check_called(values)
            result = _checked_shape(opcode, arrays, values, shape)
        except Violation as violation:
            raise error_of(opcode, violation) from None
        return self._append(opcode, result, arrays, values, name or opcode)

    def operands(self, what: str, values: Sequence[Operand]) -> tuple[Instruction, ...]:
        """Instructions as they are; numbers and arrays as constants.

        A Python number takes the element type of the first operand that has one.
        """
        types = [v.shape.dtype for v in values if isinstance(v, Instruction) and v.shape.is_array]
        types += [t for v in values if (t := _numpy_type(v)) is not None]
        like = types[0] if types else None
        return tuple(self._operand(what, i, value, like) for i, value in enumerate(values))

    def _operand(self, what: str, index: int, value: object, like: DType | None) -> Instruction:
        if isinstance(value, Instruction):
            if value.computation is not self._computation:
                owner = "none" if value.computation is None else value.computation.name
                raise error(
                    "structure",
                    f"{what}: operand {index} is {value.name} of computation {owner}, "
                    f"expected an instruction of {self._computation.name}",
                )
            return value
        if isinstance(value, Number):
            return self.constant(value, like)
        if isinstance(value, np.ndarray | np.generic):
            return self.constant(value)
        found = type(value).__name__
        message = f"{what}: operand {index} is a {found}, expected an instruction, number or array"
        raise error("arguments", message)

    def attribute(self, opcode: str, name: str, value: object) -> object:
        """The IR's value of one of an opcode's attributes."""
        try:
            return attribute_value(name, OPS[opcode].attrs[name].kind, value)
        except Violation as violation:
            raise error_of(opcode, violation) from None

    def _check_called(self, attributes: dict[str, object]) -> None:
        for name, value in attributes.items():
            for callee in value if isinstance(value, tuple) else (value,):
                if isinstance(callee, Computation) and callee.module is not self._module:
                    raise Violation(
                        "structure", name, f"{callee.name} of another module", "one of this module"
                    )

    def _append(
        self,
        opcode: str,
        shape: Shape,
        operands: tuple[Instruction, ...],
        attributes: Mapping[str, object],
        name: str,
    ) -> Instruction:
        if self._computation.module is not None:
            message = f"{opcode}: computation {self._computation.name} is finished, expected one "
            raise error("structure", message + "that is still being built")
        clean = sanitised(name) or opcode
        return self._computation.new(opcode, shape, operands, attributes, name=clean)

    def add_computation(self, computation: Computation) -> Computation:
        """Enter a computation that instructions of this module call."""
        if computation.module is not None:
            raise error("structure", f"{computation.name} stands in a module, expected in none")
        return self._module.adopt(computation)

    def finish(self, root: Instruction) -> Computation:
        """Set the root and enter the computation into the module: it can be called now."""
        self._set_root(root)
        return self._module.adopt(self._computation)

    def build(self, root: Instruction) -> Module:
        """The finished module, this computation its entry."""
        self._set_root(root)
        self._module.adopt(self._computation)
        self._module.entry = self._computation
        return self._module

    def _set_root(self, root: object) -> None:
        name = self._computation.name
        if not isinstance(root, Instruction) or root.computation is not self._computation:
            message = f"root is {root!r}, expected an instruction of computation {name}"
            raise error("structure", message)
        if self._computation.module is not None:
            message = f"computation {name} is finished already, expected to be finished once"
            raise error("structure", message)
        self._computation.root = root


def _attributes(opcode: str, given: dict[str, object]) -> dict[str, object]:
    """Values by HLO's names; None is as good as not given."""
    own = OPS[opcode].attrs
    values: dict[str, object] = {}
    for keyword, value in given.items():
        name = "control-predecessors" if keyword == "control_predecessors" else keyword
        if value is None:
            continue
        attr = own.get(name) or INSTRUCTION_ATTRS.get(name)
        if attr is None or (name == "result_accuracy" and name not in own):
            expected = "one of " + ", ".join(own) if own else "none, or what any instruction has"
            raise Violation("attribute-unknown", "", f"given {keyword}", expected)
        values[name] = attribute_value(name, attr.kind, value)
    for name, attr in own.items():
        if attr.default is REQUIRED and name not in values:
            raise Violation("attribute-missing", "", f"given no {name}", "it to be given")
    return values


def _checked_shape(
    opcode: str,
    operands: tuple[Instruction, ...],
    attributes: dict[str, object],
    shape: Shape | None,
) -> Shape:
    """The result's shape, after all that the verifier would check of the instruction."""
    row = OPS[opcode]
    if row.arity is not None and len(operands) != row.arity:
        raise Violation("arity", "", f"given {len(operands)} operands", str(row.arity))
    if row.takes_shape and not row.inferable and shape is None:
        raise Violation("arguments", "", "given no shape", "shape=, for nothing else tells it")
    inferred = inferred_shape(opcode, operands, attributes, shape)
    if shape is not None and not compatible(inferred, shape):
        raise Violation("shape-mismatch", "shape", text(shape), text(inferred))
    shapes = [o.shape for o in operands]
    if hasattr(row, "check"):
        keywords = attribute_keywords(opcode, attributes, signature)
        row.check(*shapes, shape=shape or inferred, **keywords)
    callee = attributes.get("to_apply")
    reducer = signature(callee) if isinstance(callee, Computation) else None
    check_precision(opcode, shapes, reducer)
    return shape or inferred


def _numpy_type(value: object) -> DType | None:
    return from_numpy(value.dtype) if isinstance(value, np.ndarray | np.generic) else None


def _literal(value: object, wanted: DType | str | None) -> Literal:
    try:
        if wanted is None and not isinstance(value, np.ndarray | np.generic):
            wanted = _python_type(value)
        if wanted is None:
            return Literal.of(value)
        element = dtype(wanted)
        array = np.asarray(value)
        if array.dtype.kind in "fc" and not (element.is_float or element.is_complex):
            raise ValueError(f"{array.dtype} numbers for {element}")
        if array.dtype.kind == "c" and not element.is_complex:
            raise ValueError(f"complex numbers for {element}")
        return Literal.of(value, Shape.array(element, array.shape))
    except (HloError, KeyError, OverflowError, TypeError, ValueError) as wrong:
        if isinstance(wrong, HloError) and wrong.code == "memory":
            raise
        message = f"constant: value is {value!r}, expected numbers of one element type ({wrong})"
        raise error("literal", message) from None


def _python_type(value: object) -> str | None:
    while isinstance(value, list | tuple) and value:
        value = value[0]
    return next((name for type_, name in _PYTHON_TYPES if isinstance(value, type_)), "f32")
