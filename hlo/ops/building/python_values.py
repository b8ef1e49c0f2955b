"""Attribute values as people write them in Python, turned into the values that the IR holds.

`dimensions=[0, 1]`, `padding=[(1, 1), (0, 2)]`, `slice=[(0, 4), (1, 9, 2)]`, labels as text.
What already has the IR's form passes through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import index

from hlo.attributes.dim_labels import DIM_LABELS, DimLabels, dim_labels
from hlo.attributes.enums import OPERAND_PRECISION, PRECISIONS
from hlo.attributes.frontend import FRONTEND_ATTRIBUTES
from hlo.attributes.ints import INTS, INTS_LIST
from hlo.attributes.kind import AttributeKind
from hlo.attributes.names import COMPUTATION, COMPUTATIONS
from hlo.attributes.padding import PADDING, PaddingDim
from hlo.attributes.replica_groups import REPLICA_GROUPS, ListGroups
from hlo.attributes.scalars import BOOL, FLOAT, INT32, INT64, STRING
from hlo.attributes.slices import SLICE, SliceDim
from hlo.attributes.window import WINDOW, Window, WindowDim
from hlo.errors import Violation
from hlo.ir.computation import Computation

Ints = tuple[int, ...]


def attribute_value(name: str, kind: AttributeKind, value: object) -> object:
    """The IR's value of an attribute; Violation where no such value can be made of it."""
    if kind.words:
        return _word(name, kind.words, value)
    convert = _FORMS.get(kind)
    if convert is None:
        return value
    try:
        return convert(value)
    except Violation as wrong:
        wrong.at = name
        raise
    except (TypeError, ValueError, KeyError) as wrong:
        found = f"{value!r} ({wrong})"
        raise Violation("attribute-value", name, found, _EXPECTED[kind]) from None


def _word(name: str, words: tuple[str, ...], value: object) -> str:
    for word in words:
        if isinstance(value, str) and word.lower() == value.lower():
            return word
    raise Violation("attribute-value", name, repr(value), "one of " + ", ".join(words))


def ints(value: object) -> Ints:
    """Several integers; a lone one is a list of itself."""
    if isinstance(value, Iterable) and not isinstance(value, str):
        return tuple(index(n) for n in value)
    return (index(value),)  # type: ignore[arg-type]  # TypeError says what it is


def _lists(value: object) -> tuple[Ints, ...]:
    return tuple(ints(row) for row in value)  # type: ignore[attr-defined]  # TypeError, as above


def _rows(row: Callable[..., object], held: type) -> Callable[[object], object]:
    """Several rows: each one as held, or the numbers or fields that make it."""

    def build(value: object) -> tuple[object, ...]:
        return tuple(
            r if isinstance(r, held) else row(**r) if isinstance(r, Mapping) else row(*ints(r))
            for r in value  # type: ignore[attr-defined]  # TypeError, as above
        )

    return build


def _window(value: object) -> Window:
    if isinstance(value, Window):
        return value
    return Window(_rows(WindowDim, WindowDim)(value))  # type: ignore[arg-type]  # WindowDims


def _labels(value: object) -> object:
    return dim_labels(value) if isinstance(value, str) else _held(DimLabels)(value)


def _groups(value: object) -> object:
    return value if hasattr(value, "groups") else ListGroups(_lists(value))


def _precisions(value: object) -> tuple[str, ...]:
    words = [value] * 2 if isinstance(value, str) else list(value)  # type: ignore[call-overload]  # TypeError, as above
    return tuple(_word("operand_precision", PRECISIONS, word) for word in words)


def _held(held: type) -> Callable[[object], object]:
    def check(value: object) -> object:
        if not isinstance(value, held):
            raise TypeError(f"a {type(value).__name__}")
        return value

    return check


def _computations(value: object) -> object:
    return tuple(map(_held(Computation), value))  # type: ignore[call-overload]  # TypeError, as above


def _pairs(value: object) -> object:
    pairs = value.items() if isinstance(value, Mapping) else value
    return tuple(sorted((str(k), str(v)) for k, v in pairs))  # type: ignore[attr-defined]  # TypeError, as above


_FORMS: Mapping[AttributeKind, Callable[[object], object]] = {
    INTS: ints,
    INTS_LIST: _lists,
    INT64: index,  # type: ignore[dict-item]  # TypeError for what is no integer
    INT32: index,  # type: ignore[dict-item]  # the same
    BOOL: bool,
    FLOAT: float,  # type: ignore[dict-item]  # the same
    STRING: _held(str),
    PADDING: _rows(PaddingDim, PaddingDim),
    SLICE: _rows(SliceDim, SliceDim),
    WINDOW: _window,
    DIM_LABELS: _labels,
    REPLICA_GROUPS: _groups,
    OPERAND_PRECISION: _precisions,
    FRONTEND_ATTRIBUTES: _pairs,
    COMPUTATION: _held(Computation),
    COMPUTATIONS: _computations,
}
_EXPECTED: Mapping[AttributeKind, str] = {
    INTS: "integers",
    INTS_LIST: "lists of integers",
    INT64: "an integer",
    INT32: "an integer",
    BOOL: "True or False",
    FLOAT: "a number",
    STRING: "a string",
    PADDING: "(low, high) or (low, high, interior) per dimension",
    SLICE: "(start, limit) or (start, limit, stride) per dimension",
    WINDOW: "a Window, or the fields of a WindowDim per dimension",
    DIM_LABELS: 'labels such as "b01f_01io->b01f"',
    REPLICA_GROUPS: "lists of device numbers",
    OPERAND_PRECISION: "one of default, high, highest per operand",
    FRONTEND_ATTRIBUTES: "a dict of strings",
    COMPUTATION: "a computation that a subcomputation's `finish` gave",
    COMPUTATIONS: "computations that subcomputations' `finish` gave",
}
