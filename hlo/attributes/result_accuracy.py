"""result_accuracy: `{mode=highest}` or `{tolerance={atol=0.1,rtol=0.5,ulps=2}}`."""

from __future__ import annotations

import math

from msgspec import Struct

from hlo.attributes.kind import AttributeKind
from hlo.attributes.scalars import general_text
from hlo.attributes.tree import (
    Tree,
    bounded_double,
    key_of,
    subtrees,
    tokens,
    unknown_field,
)
from hlo.errors import Violation

_MODES = ("default", "highest")
_TOLERANCES = ("atol", "rtol", "ulps")


class Tolerance(Struct, frozen=True):
    """Largest errors allowed: absolute, relative, in units of the last place."""

    atol: float = 0.0
    rtol: float = 0.0
    ulps: int = 0


class ResultAccuracy(Struct, frozen=True):
    """A mode, or a tolerance."""

    mode: str = "default"
    tolerance: Tolerance | None = None

    @property
    def is_shown(self) -> bool:
        return self.mode != "default" or self.tolerance is not None


def _result_accuracy(tree: Tree) -> ResultAccuracy:
    (field,) = subtrees(tree, "accuracy_field")
    key, words = key_of(field), tokens(field, "IDENT")
    if key == "mode" and words:
        return ResultAccuracy(_mode(words[0]))
    if key == "tolerance" and not words:
        return ResultAccuracy(tolerance=_tolerance(field))
    raise unknown_field(key, ("mode=default|highest", "tolerance={...}"))


def _mode(text: str) -> str:
    if text.lower() not in _MODES:
        raise Violation("attribute-value", "", text, "default or highest")
    return text.lower()


def _tolerance(tree: Tree) -> Tolerance:
    """Any of the three, the last one written of each."""
    numbers: dict[str, float] = {}
    for field in subtrees(tree, "tolerance_field"):
        key = key_of(field)
        if key not in _TOLERANCES:
            raise unknown_field(key, _TOLERANCES)
        numbers[key] = bounded_double(tokens(field, "INT", "DECIMAL", "INF", "NEG_INF")[0])
        if not numbers[key] >= 0 or (key == "ulps" and numbers[key] >= 1 << 63):
            raise Violation("attribute-value", "", f"{key}={numbers[key]:g}", "0 or more")
    return Tolerance(
        numbers.get("atol", 0.0), numbers.get("rtol", 0.0), int(numbers.get("ulps", 0.0))
    )


def result_accuracy_text(accuracy: ResultAccuracy, *, reads_back: bool = True) -> str:
    """A tolerance with all three numbers, or the mode."""
    tolerance = accuracy.tolerance
    if tolerance is None:
        return f"{{mode={accuracy.mode}}}"
    atol, rtol = (_bound_text(n, reads_back=reads_back) for n in (tolerance.atol, tolerance.rtol))
    return f"{{tolerance={{atol={atol},rtol={rtol},ulps={tolerance.ulps}}}}}"


def _bound_text(number: float, *, reads_back: bool) -> str:
    return "inf" if math.isinf(number) else general_text(number, exact=reads_back)


RESULT_ACCURACY = AttributeKind(
    "RESULT_ACCURACY", "kind_result_accuracy", _result_accuracy, result_accuracy_text
)
