"""Programs with their inputs and results in one file: tests/ops/<opcode>.hlo, and their runner.

A file holds cases, separated by a line `// -----`. A case is one module, with comment lines:

    // wraps in s8                        any other comment: the first one names the case
    // INPUT: s8[2] {127, -128}           one per entry parameter, in order; none: no parameters
    // EXPECT: s8[2] {-128, 127}          the result: shape, then a literal as in `constant(...)`
    // ULP: 2                             how far floats may be off; without it bits must agree,
                                          signs of zero too (any NaN equals any NaN)
    // ERROR: shape-mismatch C4           instead of EXPECT: what parsing or verifying must report
    // RUN-ERROR: unsupported             instead of EXPECT: what running must report
    // ONLY: interpreter                  engines that run the case (default: all)
    HloModule m
    ENTRY e { ... }

A line that starts with `//` and three spaces or more continues the literal above it. Shapes have no
layout here; a tuple is `(f32[2], s32[]) ({1, 2}, 3)`. `run_case` serves any engine: a function
(module, *arguments) -> result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hlo.errors import HloError, Violation
from hlo.interpreter.evaluate import evaluate
from hlo.interpreter.run import literal_value
from hlo.ir.dtype import from_numpy
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import compatible
from hlo.ops.making import inferred_shape, signature
from hlo.ops.table import OPS, attribute_keywords
from hlo.parser.parse import parse
from hlo.tools.comparison.ulp import ulp_distance

OPS_FOLDER = Path(__file__).parent.parent / "ops"
Engine = Callable[..., object]
KEYS = ("INPUT", "EXPECT", "ULP", "ERROR", "RUN-ERROR", "ONLY")
KEY_LINE = re.compile(rf"// ({'|'.join(KEYS)}): (.*)")


@dataclass
class Case:
    """One module of a file with what it should give."""

    file: Path
    number: int
    title: str = ""
    text: str = ""
    values: dict[str, list[str]] = field(default_factory=dict)

    def __str__(self) -> str:
        title = re.sub(r"[^A-Za-z0-9]+", "-", self.title).strip("-")[:40]
        return f"{self.file.stem}:{self.number}:{title}"

    @property
    def ulp(self) -> float | None:
        return float(self.values["ULP"][0]) if "ULP" in self.values else None

    def one(self, key: str) -> str | None:
        return self.values[key][0] if key in self.values else None

    def runs_on(self, engine: str) -> bool:
        return engine in self.values.get("ONLY", [engine])[0].split()


def cases(folder: Path = OPS_FOLDER) -> list[Case]:
    """Every case of every file in a folder."""
    return [case for file in sorted(folder.glob("*.hlo")) for case in file_cases(file)]


def file_cases(file: Path) -> Iterator[Case]:
    """The cases of one file."""
    parts = re.split(r"^// -----.*\n", file.read_text(), flags=re.MULTILINE)
    for number, part in enumerate(parts, start=1):
        if part.strip():
            yield _case(file, number, part)


def _case(file: Path, number: int, part: str) -> Case:
    case = Case(file, number, text=part)
    entry: list[str] | None = None
    for line in part.splitlines():
        if found := KEY_LINE.match(line):
            entry = case.values.setdefault(found[1], [])
            entry.append(found[2].strip())
        elif line.startswith("//   ") and entry:
            entry[-1] += " " + line[2:].strip()
        else:
            if line.startswith("// ") and not case.title:
                case.title = line[3:]
            entry = None
    assert case.values.keys() & {"EXPECT", "ERROR", "RUN-ERROR"}, f"{case}: nothing expected"
    return case


def value_of(text: str) -> object:
    """The value of `shape literal`, read by the parser itself."""
    shape, literal = _split(text)
    module = parse(f"HloModule v\nENTRY e {{ ROOT c = {shape} constant({literal}) }}")
    return literal_value(module.entry.root["literal"])  # type: ignore[arg-type]  # a literal


def _split(text: str) -> tuple[str, str]:
    """Shape and literal: a tuple shape ends at its bracket, any other at the first blank."""
    if not text.startswith("("):
        shape, _, literal = text.partition(" ")
        return shape, literal
    depth = 0
    for at, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth == 0:
            return text[: at + 1], text[at + 1 :].strip()
    raise AssertionError(f"unbalanced: {text}")


def interpreter(module: Module, *arguments: object) -> object:
    """The reference as an engine."""
    return evaluate(module, *arguments)


def run_case(case: Case, engine: Engine = interpreter) -> list[str]:
    """What is wrong with the engine's answer; empty when all is well."""
    if "ERROR" in case.values:
        return _check_error(case)
    module = parse(case.text, str(case.file))
    inputs = [value_of(text) for text in case.values.get("INPUT", [])]
    if wanted := case.one("RUN-ERROR"):
        return _check_run_error(module, inputs, engine, wanted)
    problems = [f"does not verify: {p}" for p in broken_rules(module)]
    result = engine(module, *inputs)
    return problems + differences(result, value_of(case.values["EXPECT"][0]), case.ulp)


def _check_run_error(
    module: Module, inputs: list[object], engine: Engine, wanted: str
) -> list[str]:
    try:
        engine(module, *inputs)
    except HloError as error:
        return [] if error.code == wanted else [f"error {error.code}, expected {wanted}"]
    return [f"no error, expected {wanted}"]


def _check_error(case: Case) -> list[str]:
    code, _, label = case.values["ERROR"][0].partition(" ")
    try:
        module = parse(case.text, str(case.file))
    except HloError as error:
        return [] if error.code == code else [f"parsing gives {error}, expected {code}"]
    found = broken_rules(module)
    if any(v.code == code and v.constraint.startswith(label) for v in found):
        return []
    return [f"{[f'{v.code} {v.constraint}' for v in found]}, expected {code} {label}"]


def broken_rules(module: Module) -> list[Violation]:
    """Violations of infer and check, and shapes that are not the inferred ones."""
    found = []
    for computation in module.computations:
        for instruction in computation.instructions:
            try:
                _check_instruction(instruction)
            except Violation as violation:
                found.append(violation)
    return found


def _check_instruction(instruction: Instruction) -> None:
    row = OPS[instruction.opcode]
    attributes = instruction.attributes
    shape = instruction.shape
    inferred = inferred_shape(instruction.opcode, instruction.operands, attributes, shape)
    if not compatible(inferred, shape):
        raise Violation("shape-mismatch", "result", str(shape), str(inferred), "result")
    if hasattr(row, "check"):
        keywords = attribute_keywords(instruction.opcode, attributes, signature)
        row.check(*(o.shape for o in instruction.operands), shape=shape, **keywords)


def differences(actual: object, expected: object, ulp: float | None, path: str = "") -> list[str]:
    """What distinguishes two values: structure, types, and elements beyond the budget."""
    if isinstance(expected, tuple):
        if not isinstance(actual, tuple) or len(actual) != len(expected):
            return [
                f"{path or 'result'} is {type(actual).__name__}, expected a {len(expected)}-tuple"
            ]
        pairs = zip(actual, expected, strict=True)
        return [d for i, (a, e) in enumerate(pairs) for d in differences(a, e, ulp, f"{path}.{i}")]
    if expected is None:
        return [] if actual is None else [f"{path}: a value, expected a token"]
    assert isinstance(expected, np.ndarray), "a literal's value"
    if not isinstance(actual, np.ndarray):
        return [f"{path}: {type(actual).__name__}, expected an array"]
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return [f"{path}: {actual.dtype}{actual.shape}, expected {expected.dtype}{expected.shape}"]
    return _element_differences(actual, expected, ulp, path)


def _element_differences(
    actual: np.ndarray, expected: np.ndarray, ulp: float | None, path: str
) -> list[str]:
    wrong = differing(actual, expected, ulp)
    where = np.argwhere(wrong)[:5]
    return [
        f"{path}[{','.join(map(str, i))}] = {actual[tuple(i)]}, expected {expected[tuple(i)]}"
        for i in where
    ]


def differing(actual: np.ndarray, expected: np.ndarray, ulp: float | None) -> np.ndarray:
    """Where elements differ by more than the budget (None: where bits differ, NaNs aside)."""
    if actual.dtype.kind == "c" or _is_float(actual):
        far = ulp_distance(actual, expected) > (ulp or 0)
        return far if ulp is not None else far | _other_zero(actual, expected)
    return np.asarray(actual != expected)


def _is_float(array: np.ndarray) -> bool:
    dtype = from_numpy(array.dtype)
    return dtype is not None and dtype.is_float


def _other_zero(actual: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Zeros of different signs."""
    if actual.dtype.kind == "c":
        real = _other_zero(actual.real.copy(), expected.real.copy())
        return real | _other_zero(actual.imag.copy(), expected.imag.copy())
    left, right = actual.astype(np.float64), expected.astype(np.float64)
    return (left == 0) & (right == 0) & (np.signbit(left) != np.signbit(right))
