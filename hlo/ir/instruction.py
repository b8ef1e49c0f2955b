"""Instruction: one operation in a computation; a node, edited only through its Computation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from hlo.ir.shape import Shape
from hlo.source import Source, Span

if TYPE_CHECKING:
    from hlo.ir.computation import Computation

Attributes = Mapping[str, object]
NO_ATTRIBUTES: Attributes = MappingProxyType({})

# Attributes whose value is a computation, or a tuple of them, in the order in which XLA lists an
# instruction's called computations (a while's body before its condition: docs/text.md 8.5).
CALLING_ATTRIBUTES = (
    "body",
    "condition",
    "true_computation",
    "false_computation",
    "branch_computations",
    "select",
    "scatter",
    "to_apply",
    "calls",
    "called_computations",
)
_CALLING = frozenset(CALLING_ATTRIBUTES)


def calling_keys(attributes: Attributes) -> Sequence[str]:
    """Those of the attributes' names that name computations, in XLA's order."""
    found = _CALLING.intersection(attributes)
    return [key for key in CALLING_ATTRIBUTES if key in found] if len(found) > 1 else tuple(found)


def may_call(instruction: Instruction) -> bool:
    """Whether it has an attribute that names computations."""
    attributes = instruction.attributes
    return bool(attributes) and not _CALLING.isdisjoint(attributes)


class Instruction:
    """`name = shape opcode(operands), attributes`.

    attributes: values keyed by HLO's own attribute names, only those that were given (the op table
    knows the defaults: `hlo.ops.table.attribute`). Also held there: `parameter_number` (int) of a
    parameter, `literal` (Literal) of a constant, and what any instruction may carry (sharding,
    metadata, frontend_attributes, backend_config, control-predecessors, ...).
    users: insertion-ordered; an instruction that uses this one twice is listed once.
    start, end, source: where it stands in the text; (-1, -1, None) when it was made in Python.
    """

    __slots__ = (
        "attributes", "computation", "end", "name", "opcode", "operands", "shape", "source",
        "start", "users",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        opcode: str,
        shape: Shape,
        operands: tuple[Instruction, ...] = (),
        attributes: Attributes = NO_ATTRIBUTES,
    ) -> None:
        self.name = name
        self.opcode = opcode
        self.shape = shape
        self.operands = operands
        self.attributes = attributes
        self.users: dict[Instruction, None] = {}
        self.computation: Computation | None = None
        self.start = -1
        self.end = -1
        self.source: Source | None = None

    def __getitem__(self, attribute: str) -> object:
        """The attribute's value; KeyError when it was not given."""
        return self.attributes[attribute]

    def get(self, attribute: str, default: object = None) -> object:
        return self.attributes.get(attribute, default)

    def __repr__(self) -> str:
        operands = ", ".join(o.name for o in self.operands)
        return f"<{self.name} = {self.shape} {self.opcode}({operands})>"

    @property
    def span(self) -> Span | None:
        return None if self.source is None else Span(self.source, self.start, self.end)

    @property
    def is_root(self) -> bool:
        return self.computation is not None and self.computation.root is self

    def called_computations(self) -> list[Computation]:
        """Computations that it calls, in XLA's order, repeats kept."""
        found: list[Computation] = []
        if not self.attributes:
            return found
        for key in calling_keys(self.attributes):
            value = self.attributes[key]
            found += value if isinstance(value, tuple) else (value,)
        return found
