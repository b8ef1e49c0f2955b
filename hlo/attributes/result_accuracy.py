"""result_accuracy: `{mode=highest}` or `{tolerance={atol=0.1,rtol=0.5,ulps=2}}`."""

from __future__ import annotations

from dataclasses import dataclass

from hlo.attributes.kind import AttributeKind
from hlo.attributes.scalars import general_text
from hlo.attributes.tree import Tree, double, fields, tokens, unknown_field
from hlo.errors import Violation

_MODES = ("default", "highest")
_TOLERANCES = ("atol", "rtol", "ulps")


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Largest errors allowed: absolute, relative, in units of the last place."""

    atol: float = 0.0
    rtol: float = 0.0
    ulps: int = 0


@dataclass(frozen=True, slots=True)
class ResultAccuracy:
    """A mode, or a tolerance."""

    mode: str = "default"
    tolerance: Tolerance | None = None

    @property
    def is_shown(self) -> bool:
        return self.mode != "default" or self.tolerance is not None


def _result_accuracy(tree: Tree) -> ResultAccuracy:
    found = ResultAccuracy()
    for key, field in fields(tree, "accuracy_field"):
        if key == "mode" and tokens(field, "IDENT"):
            found = ResultAccuracy(_mode(tokens(field, "IDENT")[0]))
        elif key == "tolerance" and not tokens(field, "IDENT"):
            found = ResultAccuracy(tolerance=_tolerance(field))
        else:
            raise unknown_field(key, ("mode=default|highest", "tolerance={...}"))
    return found


def _mode(text: str) -> str:
    if text.lower() not in _MODES:
        raise Violation("attribute-value", "", text, "default or highest")
    return text.lower()


def _tolerance(field: Tree) -> Tolerance:
    numbers: dict[str, float] = {}
    for key, part in fields(field, "tolerance_field"):
        if key not in _TOLERANCES:
            raise unknown_field(key, _TOLERANCES)
        numbers[key] = double(tokens(part, "INT", "DECIMAL", "INF", "NEG_INF")[0])
    if any(n < 0 for n in numbers.values()):
        raise Violation("attribute-value", "", "a negative tolerance", "0 or more")
    return Tolerance(
        numbers.get("atol", 0.0), numbers.get("rtol", 0.0), int(numbers.get("ulps", 0.0))
    )


def result_accuracy_text(accuracy: ResultAccuracy) -> str:
    """A tolerance with all three numbers, or the mode."""
    tolerance = accuracy.tolerance
    if tolerance is None:
        return f"{{mode={accuracy.mode}}}"
    atol, rtol = general_text(tolerance.atol), general_text(tolerance.rtol)
    return f"{{tolerance={{atol={atol},rtol={rtol},ulps={tolerance.ulps}}}}}"


RESULT_ACCURACY = AttributeKind(
    "RESULT_ACCURACY", "kind_result_accuracy", _result_accuracy, result_accuracy_text
)
