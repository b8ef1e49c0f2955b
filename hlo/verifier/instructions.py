"""Single instructions: operands, attributes, and the written shape beside the inferred one."""

from __future__ import annotations

from collections.abc import Iterator

from hlo.errors import Violation
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.shape import UNBOUNDED, ProgramShape, Shape, compatible, shape_text
from hlo.ops.attributes import REQUIRED
from hlo.ops.mixed_precision import check_precision
from hlo.ops.table import OPS, attribute_keywords
from hlo.verifier.report import Report

LARGEST_BYTES = 2**63 - 1  # what sizes and offsets can say
# Attributes with values that are dictionaries, or are looked at beside names of other instructions.
_ALONE = frozenset({"origin", "frontend_attributes", "backend_config", "statistics"})


class Signatures:
    """Program shapes of computations, each computed once. right: what instructions are like that
    were looked at and break no rule.
    """

    def __init__(self) -> None:
        self._known: dict[Computation, ProgramShape] = {}
        self.right: set[object] = set()

    def of(self, callee: Computation) -> ProgramShape:
        """The program shape of a computation."""
        found = self._known.get(callee)
        if found is None:
            found = self._known[callee] = callee.program_shape
        return found


def check(instruction: Instruction, signatures: Signatures, report: Report) -> None:
    """Arity, required attributes, infer, the written shape, check, mixed precision: once of all
    that are alike, as the layers of models are.
    """
    key = _likeness(instruction)
    if key is not None and key in signatures.right:
        return
    try:
        _check_form(instruction)
        _check_bounded(instruction)
        _check_shape(instruction, signatures)
        _check_precision(instruction, signatures)
        _check_origin(instruction)
    except Violation as violation:
        report.add(instruction, violation)
    else:
        if key is not None:
            signatures.right.add(key)


def _likeness(instruction: Instruction) -> object:
    """Equal for instructions of which the same is right; None of one that is looked at by itself:
    of a value that is given, or that says what it stood for.
    """
    attributes = instruction.attributes
    if not instruction.operands or not _ALONE.isdisjoint(attributes):
        return None
    said = [(name, type(v), v) for name, v in attributes.items() if name != "metadata"]
    found = (instruction.opcode, instruction.shape, *[o.shape for o in instruction.operands], *said)
    try:
        hash(found)
    except TypeError:  # attributes that Python code gave as a list
        return None
    return found


def _check_form(instruction: Instruction) -> None:
    row = OPS[instruction.opcode]
    count = len(instruction.operands)
    if row.arity is not None and count != row.arity:
        raise Violation("arity", "", f"{count} operands", f"{row.arity}", "V9")
    for name, attr in row.attrs.items():
        if attr.default is REQUIRED and name not in instruction.attributes:
            raise Violation("attribute-missing", "", f"no attribute {name}", "it to be given", "V8")


def _check_bounded(instruction: Instruction) -> None:
    for leaf in instruction.shape.leaves():
        if UNBOUNDED in leaf.dims:
            found, expected = _text(instruction.shape), "sizes or bounds (<=n) instead of ?"
            raise Violation("unsupported", "result", found, expected, "V28")
        if leaf.is_array and leaf.size_bytes > LARGEST_BYTES:
            found, expected = _text(instruction.shape), "arrays of fewer than 2^63 bytes"
            raise Violation("limit", "result", found, expected)


def _check_shape(instruction: Instruction, signatures: Signatures) -> None:
    row = OPS[instruction.opcode]
    keywords = attribute_keywords(instruction.opcode, instruction.attributes, signatures.of)
    shape = instruction.shape
    shapes = [o.shape for o in instruction.operands]
    inferred: object = _special_shape(instruction)
    if inferred is None:
        written = {"shape": shape} if row.takes_shape else {}
        inferred = row.infer(*shapes, **keywords, **written)
    assert isinstance(inferred, Shape), f"{instruction.opcode}.infer gives a Shape"
    if not compatible(inferred, shape):
        raise Violation("shape-mismatch", "result", _text(shape), _text(inferred), "V20")
    if hasattr(row, "check"):
        row.check(*shapes, shape=shape, **keywords)


def _special_shape(instruction: Instruction) -> Shape | None:
    """The shape of what has no operands to infer one from."""
    if instruction.opcode == "parameter":
        return instruction.shape
    if instruction.opcode == "constant":
        literal = instruction.attributes.get("literal")
        if literal is None:
            raise Violation("attribute-missing", "", "no literal", "a value", "V26")
        return literal.shape  # type: ignore[attr-defined,no-any-return]  # a Literal
    return None


def _check_precision(instruction: Instruction, signatures: Signatures) -> None:
    callee = instruction.attributes.get("to_apply")
    reducer = signatures.of(callee) if isinstance(callee, Computation) else None
    check_precision(instruction.opcode, [o.shape for o in instruction.operands], reducer)


def _check_origin(instruction: Instruction) -> None:
    """V66: what the value stood for has leaves where the shape has them."""
    origin = instruction.attributes.get("origin")
    if origin is None:
        return
    from hlo.attributes.origin import Origin

    if isinstance(origin, Origin) and not origin.synthetic_call:
        expected = sorted(_paths(_skeleton(instruction.shape)))
        found = sorted(_paths(origin.tree))
        if found != expected and not _is_wrapped(instruction):
            leaves = f"with leaves at {_listed(found)}"
            raise Violation("attribute-value", "origin", leaves, f"{_listed(expected)}", "V66")


def _is_wrapped(instruction: Instruction) -> bool:
    """Whether an async-start gave the root of what it calls its own origin, as reading does."""
    computation = instruction.computation
    if computation is None or computation.module is None or not instruction.is_root:
        return False
    return any(
        start.opcode.startswith("async-") and computation in start.called_computations()
        for other in computation.module.computations
        for start in other.instructions
    )


def _paths(tree: object, prefix: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Index paths of an origin's leaves, unknown ones too."""
    if not isinstance(tree, tuple):
        yield prefix
        return
    for k, element in enumerate(tree):
        yield from _paths(element, (*prefix, k))


def _skeleton(shape: Shape) -> object:
    return tuple(map(_skeleton, shape.elements)) if shape.is_tuple else None


def _listed(paths: list[tuple[int, ...]]) -> str:
    return ", ".join("{" + ",".join(map(str, p)) + "}" for p in paths) or "none"


def _text(shape: Shape) -> str:
    return shape_text(shape, layout=False)
