"""nans: instructions that make NaNs, infinities or denormals, and which of them reach an output.

    module, arguments --the reference, every value looked at--> findings in the order of the run

*Made* means that no operand has one: what is handed on has its maker's finding. A value that an
output does not get (masks are -inf, `where(p < 1, log(1 - p), 0)` discards by design) is discarded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from hlo import driver
from hlo.analysis.sources import source_of
from hlo.ir.dtype import from_numpy
from hlo.ir.instruction import Instruction
from hlo.tools.cases import arrays
from hlo.tools.cases.case import Case, fits
from hlo.tools.faults.bisect import line_of

MOST = 10_000  # findings that are kept
ARGUMENT = -1  # the number of what an argument has, where that is no finding

Odd = Callable[[np.ndarray], np.ndarray]


class Finding(Struct, frozen=True):
    """An instruction that makes a number that is not wanted.

    kind: nan, inf or denormal. count: elements that have it, the first at `index`; operands: the
    operands' values there, or what they are. loop: the computation, "" for the entry; iteration:
    which of its calls, from 0. source: a line of the program that made the module, or of the text.
    """

    number: int
    kind: str
    instruction: str
    source: str
    loop: str
    iteration: int
    index: tuple[int, ...]
    value: str
    operands: tuple[str, ...]
    count: int
    outputs: tuple[int, ...] = ()

    @property
    def is_discarded(self) -> bool:
        return not self.outputs


class _Watch(Struct):
    """What a run has shown so far."""

    kinds: dict[str, Odd]
    are_arguments_made: bool = True
    findings: list[Finding] = field(default_factory=list)
    latest: dict[Instruction, object] = field(default_factory=dict)
    times: Counter[Instruction] = field(default_factory=Counter)
    # By identity, with the array itself, so that no other one has it: the findings it comes from.
    origins: dict[tuple[str, int], tuple[np.ndarray, frozenset[int]]] = field(default_factory=dict)

    def __call__(self, instruction: Instruction, value: object) -> object:
        self.latest[instruction] = value
        number = self.times[instruction]
        self.times[instruction] += 1
        is_array = isinstance(value, np.ndarray) and fits(instruction, value)
        leaves = list(arrays.leaves(value)) if is_array else []
        for array in leaves:
            for kind, odd in self.kinds.items():
                if (kind, id(array)) in self.origins or not has_kind(array, odd):
                    continue
                before = self._before(kind, instruction)
                if instruction.opcode == "parameter" and not self.are_arguments_made:
                    before = before or frozenset({ARGUMENT})
                if not before and len(self.findings) < MOST:
                    before = frozenset({len(self.findings)})
                    self.findings.append(self._finding(kind, odd, instruction, array, number))
                self.origins[kind, id(array)] = (array, before)
        return value

    def _before(self, kind: str, instruction: Instruction) -> frozenset[int]:
        """The findings that operands come from."""
        found: frozenset[int] = frozenset()
        for operand in instruction.operands:
            for array in arrays.leaves(self.latest.get(operand)):
                found |= self.origins.get((kind, id(array)), (array, frozenset()))[1]
        return found

    def _finding(
        self, kind: str, odd: Odd, instruction: Instruction, array: np.ndarray, number: int
    ) -> Finding:
        mask = odd(array)
        index = tuple(int(i) for i in np.unravel_index(int(np.argmax(mask)), array.shape))
        home = instruction.computation
        is_entry = home is None or home.module is None or home is home.module.entry
        operands = tuple(
            f"%{o.name} = {_at(self.latest.get(o), array.shape, index)}"
            for o in instruction.operands
        )
        return Finding(
            len(self.findings), kind, line_of(instruction), source_of(instruction),
            "" if is_entry or home is None else home.name, 0 if is_entry else number,
            index, str(array[index]), operands, int(np.count_nonzero(mask)),
        )  # fmt: skip


def _at(value: object, shape: tuple[int, ...], index: tuple[int, ...]) -> str:
    """An operand's element at the same place, if it has that shape, else what it is like."""
    if not isinstance(value, np.ndarray):
        return "a tuple" if isinstance(value, tuple) else "nothing"
    if value.shape == shape:
        return str(value[index])
    return str(value[()]) if value.ndim == 0 else arrays.describe(value)


def has_kind(array: np.ndarray, odd: Odd) -> bool:
    """Whether a float or complex array has an element of a kind (one of ODD)."""
    dtype = from_numpy(array.dtype)
    return dtype is not None and (dtype.is_float or dtype.is_complex) and bool(odd(array).any())


def _is_denormal(array: np.ndarray) -> np.ndarray:
    form = from_numpy(array.dtype)
    real = None if form is None else form.component.float_format
    least = 0.0 if real is None else 2.0 ** (1 - real.bias)
    magnitude = np.abs(array).astype(np.float64)
    return np.asarray((magnitude > 0) & (magnitude < least))


ODD: dict[str, Odd] = {"nan": np.isnan, "inf": np.isinf, "denormal": _is_denormal}


def nans(
    case: Case,
    kinds: tuple[str, ...] = ("nan", "inf"),
    *,
    timeout: float | None = None,
    arguments: bool = True,
) -> list[Finding]:
    """What a run of the reference makes, in its order: kinds of nan, inf, denormal.

    `outputs` of a finding are the leaves of the result that it reaches. arguments: whether what an
    argument has is a finding too.
    """
    watch = _Watch({kind: ODD[kind] for kind in kinds}, arguments)
    with np.errstate(all="ignore"):
        driver.evaluate(case.module, *case.values, timeout=timeout, watch=watch)
    reached: dict[int, list[int]] = {}
    root = watch.latest.get(case.module.entry.root)
    for output, array in enumerate(arrays.leaves(root)):
        for kind in kinds:
            _, found = watch.origins.get((kind, id(array)), (array, frozenset()))
            for number in found:
                reached.setdefault(number, []).append(output)
    return [replace(f, outputs=tuple(sorted(reached.get(f.number, ())))) for f in watch.findings]


def same_places(actual: object, expected: object) -> bool:
    """Whether two results have NaNs and infinities in the same elements."""
    pairs = zip(arrays.leaves(actual), arrays.leaves(expected), strict=True)
    return all(
        not _is_float(a) or all(np.array_equal(ODD[k](a), ODD[k](e)) for k in ("nan", "inf"))
        for a, e in pairs
    )


def _is_float(array: np.ndarray) -> bool:
    dtype = from_numpy(array.dtype)
    return dtype is not None and (dtype.is_float or dtype.is_complex)
