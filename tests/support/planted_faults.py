"""Planted faults: programs made wrong in one place, and what compare, bisect and reduce say.

    python -m tests.support.planted_faults SUITE-FOLDER... --count=120      (about 5 minutes)

A fault is planted where it shows: in f64, on the arguments that the commands make up, an output
differs by more than 64 last bits of its type. Then the public commands are asked:

- `hlo-run compare A B` may not call the two programs equal;
- `hlo-opt bisect A` over passes, one of which plants the fault, has to name that pass and to reduce
  the program it leaves to one that shows it, within 60 s.

For faults of kernels an emitter is exchanged for another one's, and compiled code is compared.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np

import hlo
from hlo.attributes.slices import SliceDim
from hlo.backend.emitters import table
from hlo.errors import HloError
from hlo.ir.graph import clone_module
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.passes.catalogue import CATALOGUE
from hlo.tools.cases import arrays
from hlo.tools.cases.case import Case
from hlo.tools.cases.fill import fill_elided
from hlo.tools.cases.inputs import made_up_inputs
from hlo.tools.comparison.widening import exact_leaves
from tests.support.command import call

VISIBLE = 64  # last bits that a fault has to move an output by
LARGEST = 400  # instructions of a program: it is about verdicts, not about time
SLOWEST_S = 1.0  # of a run of the reference
LIMIT_S = 60
PIPELINE = "dce,planted,cse,dce"
Plant = Callable[[Instruction], bool]
TWINS = {"maximum": "minimum", "minimum": "maximum", "tanh": "logistic", "sine": "cosine",
         "cosine": "sine", "floor": "ceil", "and": "or", "or": "and", "exponential": "logistic",
         "add": "subtract"}  # fmt: skip
OPPOSITE = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "EQ": "NE", "NE": "EQ"}
EMITTED = (("tanh", "sine"), ("exponential", "negate"), ("maximum", "minimum"), ("sqrt", "rsqrt"),
           ("rsqrt", "sqrt"), ("subtract", "add"), ("add", "subtract"), ("multiply", "add"),
           ("divide", "multiply"), ("log", "negate"), ("logistic", "tanh"), ("cosine", "sine"),
           ("negate", "abs"), ("minimum", "maximum"))  # fmt: skip


# -- ways to be wrong: each changes an instruction, or says that it cannot ---------------------


def _set(instruction: Instruction, key: str, value: object) -> bool:
    home = instruction.computation
    assert home is not None
    home.set_attributes(instruction, {**instruction.attributes, key: value})
    return True


def _replaced(instruction: Instruction, new: Instruction) -> bool:
    assert instruction.computation is not None
    instruction.computation.replace_uses(instruction, new)
    return True


def swapped_operands(instruction: Instruction) -> bool:
    """f(b, a) of an op that does not commute."""
    if instruction.opcode not in ("subtract", "divide", "power", "atan2", "remainder", "dot"):
        return False
    a, b = instruction.operands
    if a is b or a.shape != b.shape:
        return False
    assert instruction.computation is not None
    instruction.computation.set_operands(instruction, (b, a))
    return True


def swapped_branches(instruction: Instruction) -> bool:
    """select(p, b, a)"""
    if instruction.opcode != "select" or instruction.operands[1] is instruction.operands[2]:
        return False
    p, a, b = instruction.operands
    assert instruction.computation is not None
    instruction.computation.set_operands(instruction, (p, b, a))
    return True


def wrong_direction(instruction: Instruction) -> bool:
    """a > b for a < b"""
    if instruction.opcode != "compare":
        return False
    return _set(instruction, "direction", OPPOSITE[str(instruction["direction"])])


def dropped_term(instruction: Instruction) -> bool:
    """a for a + b"""
    if instruction.opcode != "add" or instruction.shape.dtype.is_integral:
        return False
    if instruction.operands[0].shape != instruction.shape:
        return False
    return _replaced(instruction, instruction.operands[0])


def scaled(instruction: Instruction) -> bool:
    """1.001 x, or the next that the type has"""
    shape = instruction.shape
    if not shape.is_array or not shape.dtype.is_float or instruction.opcode == "constant":
        return False
    home, form = instruction.computation, shape.dtype.float_format
    assert home is not None
    assert form is not None
    factor = 1 + max(1e-3, 2.0 ** (1 - form.mantissa))
    scalar = shape.with_dims(())
    one = home.new("constant", scalar, (), {"literal": Literal.of(np.asarray(factor), scalar)})
    many = one if shape.is_scalar else home.new("broadcast", shape, (one,), {"dimensions": ()})
    return _replaced(instruction, home.new("multiply", shape, (instruction, many)))


def another_function(instruction: Instruction) -> bool:
    """min for max, cosine for sine, .."""
    twin = TWINS.get(instruction.opcode)
    home = instruction.computation
    if twin is None or home is None:
        return False
    if twin == "logistic" and not instruction.shape.dtype.is_float:
        return False
    return _replaced(instruction, home.new(twin, instruction.shape, instruction.operands))


def wrong_constant(instruction: Instruction) -> bool:
    """c + 1 %, or 0.01 for 0"""
    literal = instruction.get("literal")
    if not isinstance(literal, Literal) or not instruction.shape.dtype.is_float:
        return False
    value = literal.array.astype(np.float64)
    changed = np.where(value == 0, 0.01, value * 1.01)
    return _set(instruction, "literal", Literal.of(changed.astype(literal.array.dtype)))


def slice_off_by_one(instruction: Instruction) -> bool:
    """[1:n+1] for [0:n]"""
    if instruction.opcode != "slice":
        return False
    cuts: list[SliceDim] = list(instruction["slice"])  # type: ignore[call-overload]
    for d, cut in enumerate(cuts):
        if cut.limit < instruction.operands[0].shape.dims[d]:
            cuts[d] = SliceDim(cut.start + 1, cut.limit + 1, cut.stride)
            return _set(instruction, "slice", tuple(cuts))
        if cut.start > 0:
            cuts[d] = SliceDim(cut.start - 1, cut.limit - 1, cut.stride)
            return _set(instruction, "slice", tuple(cuts))
    return False


def wrong_axis(instruction: Instruction) -> bool:
    """The other one of two dimensions of the same size."""
    if instruction.opcode == "dot":
        return _other_contraction(instruction)
    if instruction.opcode not in ("transpose", "broadcast", "reduce", "reverse"):
        return False
    operand = instruction.operands[0].shape
    if not operand.is_array or not instruction.shape.is_array:
        return False
    dims = list(instruction["dimensions"])  # type: ignore[call-overload]
    whole = instruction.shape if instruction.opcode == "broadcast" else operand
    for k, d in enumerate(dims):
        for e, size in enumerate(whole.dims):
            if e == d or size != whole.dims[d] or size == 1:
                continue
            if instruction.opcode == "transpose":
                at = dims.index(e)
                dims[k], dims[at] = e, d
            elif e in dims:
                continue
            else:
                dims[k] = e
                if instruction.opcode == "broadcast" and dims != sorted(dims):
                    dims[k] = d
                    continue
            return _set(instruction, "dimensions", tuple(dims))
    return False


def _other_contraction(dot: Instruction) -> bool:
    lhs = dot.operands[0].shape
    dims = dot.get("lhs_contracting_dims")
    if lhs.rank != 2 or lhs.dims[0] != lhs.dims[1] or dims not in ((0,), (1,)):
        return False
    return _set(dot, "lhs_contracting_dims", (1,) if dims == (0,) else (0,))


FAULTS: tuple[Plant, ...] = (
    swapped_operands, swapped_branches, wrong_direction, dropped_term, scaled,
    another_function, wrong_constant, slice_off_by_one, wrong_axis,
)  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """What is planted where; program: the file."""

    program: Path
    plant: Plant
    computation: str
    instruction: str

    def __str__(self) -> str:
        return f"{self.program.stem}: {self.plant.__name__} at %{self.instruction}"

    def into(self, module: Module) -> bool:
        """Plants it wherever an instruction has the name, as a pass does; whether it did."""
        found = [i for c in module.computations for i in c.instructions
                 if i.name == self.instruction]  # fmt: skip
        return sum(map(self.plant, found)) > 0


@dataclass(frozen=True)
class Outcome:
    """verdict: of compare. is_found: by bisect, which left `size` instructions."""

    fault: str
    kind: str
    verdict: str
    is_found: bool
    size: int
    seconds: float


def cases(folders: list[Path]) -> Iterator[tuple[Path, Case]]:
    """The programs that are small, run on made-up arguments and have an answer in f64."""
    for path in sorted(p for folder in folders for p in folder.glob("*.hlo")):
        try:
            module = fill_elided(hlo.parse(path.read_text(), str(path)))
            hlo.verify(module)
            if sum(len(c) for c in module.computations) > LARGEST:
                continue
            case = Case(module, tuple(made_up_inputs(module, "model")))
            start = time.monotonic()
            hlo.evaluate(module, *case.values, max_steps=1000)
            if time.monotonic() - start < SLOWEST_S:
                yield path, case
        except (HloError, UnicodeDecodeError):
            continue


def shows(a: Case, b: Case) -> bool:
    """Whether, in f64, an output moves by more than VISIBLE last bits of its type."""
    try:
        first, second = exact_leaves(a), exact_leaves(b)
    except HloError:
        return False
    shapes = [s for s in a.module.entry.root.shape.leaves() if s.is_array]
    return any(_apart(*leaf) for leaf in zip(first, second, shapes, strict=True))


def _apart(first: np.ndarray, second: np.ndarray, shape: Shape) -> bool:
    if first.shape != second.shape:
        return False
    if first.dtype.kind not in "fc":
        return bool((first != second).any())
    form = shape.dtype.component.float_format
    finite = np.isfinite(first) & np.isfinite(second)
    if not finite.any() or form is None:
        return False
    size = float(np.sqrt(np.mean(np.abs(first[finite]) ** 2)))
    least = VISIBLE * 2.0**-form.mantissa * np.maximum(np.abs(first), size)
    return bool((np.abs(first - second) > least)[finite].any())


def faults(path: Path, case: Case, rng: random.Random, most: int) -> Iterator[Fault]:
    """Some faults of a program that show, each of another kind."""
    kinds = rng.sample(FAULTS, len(FAULTS))
    places = [(c.name, i.name) for c in case.module.computations for i in c.instructions]
    rng.shuffle(places)
    seen: set[Plant] = set()
    tried = 0
    for plant, (computation, name) in itertools.product(kinds, places):
        if len(seen) == most or tried == 20 * most:
            return
        if plant in seen:
            continue
        fault = Fault(path, plant, computation, name)
        wrong = clone_module(case.module)
        try:
            if not fault.into(wrong):
                continue
            tried += 1
            hlo.verify(wrong)
            hlo.evaluate(wrong, *case.values, max_steps=2000)
        except (HloError, ValueError, TypeError):
            continue
        if shows(case, Case(wrong, case.values)):
            seen.add(plant)
            yield fault


def outcome(fault: Fault, case: Case, folder: Path) -> Outcome:
    """What the commands say."""
    wrong = clone_module(case.module)
    fault.into(wrong)
    a, b, small = (str(folder / name) for name in ("a.hlo", "b.hlo", "small.hlo"))
    Path(a).write_text(str(case.module))
    Path(b).write_text(str(wrong))
    Path(small).unlink(missing_ok=True)
    told = call("hlo-run", "compare", a, b, "--random=model")
    verdict = (told.out.splitlines() or [told.err])[-1]

    def planted(module: Module) -> bool:
        """Plant the fault."""
        return fault.into(module)

    start = time.monotonic()
    with mock.patch.dict(CATALOGUE, {"planted": planted}):
        found = call("hlo-opt", "bisect", a, "-p", PIPELINE, "--random=model", "-o", small)
    seconds = time.monotonic() - start
    is_found = "planted, run 1" in found.out and "reduced from" in found.err
    size = _size(small) if is_found else 0
    return Outcome(
        str(fault), fault.plant.__name__, verdict, is_found and seconds <= LIMIT_S, size, seconds
    )


def _size(path: str) -> int:
    return sum(len(c) for c in hlo.parse(Path(path).read_text()).computations)


def kernel_outcomes(found: list[tuple[Path, Case]], most: int, folder: Path) -> Iterator[Outcome]:
    """Compiled code with an emitter exchanged: each of EMITTED in the first programs it is in."""
    for op, other in EMITTED:
        number = 0
        for path, case in found:
            if number == most:
                break
            opcodes = {i.opcode for c in case.module.computations for i in c.instructions}
            if op not in opcodes:
                continue
            file, small = str(folder / "k.hlo"), str(folder / "small.hlo")
            Path(file).write_text(str(case.module))
            with mock.patch.dict(table.EMITTERS, {op: table.EMITTERS[other]}):
                try:
                    ours = hlo.compile(case.module, cache=False)(*case.values)
                except Exception:  # an emitter that cannot take the type of this program
                    continue
                if not _differs(ours, hlo.evaluate(case.module, *case.values)):
                    continue
                number += 1
                told = call("hlo-run", "compare", file, "--random=model")
                verdict = (told.out.splitlines() or [told.err])[-1]
                start = time.monotonic()
                done = call("hlo-opt", "bisect", file, "--random=model", "-o", small)
            seconds = time.monotonic() - start
            is_found = "kernel of" in done.out and "reduced from" in done.err
            size = _size(small) if is_found else 0
            name = f"{path.stem}: {other} for {op} in kernels"
            yield Outcome(name, "emitter", verdict, is_found and seconds <= LIMIT_S, size, seconds)


def _differs(a: object, b: object) -> bool:
    """Whether results differ by a thousandth of an output's size."""
    pairs = zip(arrays.leaves(a), arrays.leaves(b), strict=True)
    for x, y in pairs:
        if x.dtype.kind in "biu":
            continue
        wide = (v.astype(np.complex128 if v.dtype.kind == "c" else np.float64) for v in (x, y))
        first, second = wide
        finite = np.isfinite(first) & np.isfinite(second)
        if finite.any():
            size = float(np.sqrt(np.mean(np.abs(second[finite]) ** 2)))
            if (np.abs(first - second)[finite] > 1e-3 * size).any():
                return True
    return False


def sound_verdicts(found: list[tuple[Path, Case]], folder: Path) -> Counter[str]:
    """What compare says of programs as they are."""
    verdicts: Counter[str] = Counter()
    for path, case in found:
        file = str(folder / "sound.hlo")
        Path(file).write_text(str(case.module))
        told = call("hlo-run", "compare", file, "--random=model")
        verdict = (told.out.splitlines() or [told.err])[-1]
        verdicts[verdict] += 1
        if verdict != "equal":
            print(f"sound, but {verdict}: {path.stem}", flush=True)
    return verdicts


def table_of(outcomes: list[Outcome]) -> str:
    """A row for each kind of fault, and the worst."""
    rows = [f"{'kind':<20}{'planted':>8}{'different':>10}{'undecided':>10}{'equal':>7}{'found':>7}"
            f"{'size':>6}{'s':>7}"]  # fmt: skip
    kinds = dict.fromkeys(o.kind for o in outcomes)
    for kind in (*kinds, "all"):
        of = [o for o in outcomes if kind in (o.kind, "all")]
        said = Counter(o.verdict for o in of)
        sizes = [o.size for o in of if o.is_found]
        rows.append(
            f"{kind:<20}{len(of):>8}{said['different']:>10}{said['undecided']:>10}"
            f"{said['equal']:>7}{sum(o.is_found for o in of):>7}{max(sizes, default=0):>6}"
            f"{max(o.seconds for o in of):>7.1f}"
        )
    for o in outcomes:
        if o.verdict not in ("different", "undecided") or not o.is_found:
            rows.append(f"worst: {o.fault}   {o.verdict}, found {o.is_found}, {o.seconds:.1f} s")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--count", type=int, default=120)
    parser.add_argument("--each", type=int, default=1, help="faults of a program")
    parser.add_argument("--kernels", type=int, default=2, help="programs of an emitter")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sound", action="store_true", help="also compare programs as they are")
    given = parser.parse_args()
    rng = random.Random(given.seed)
    found = list(cases(given.folders))
    rng.shuffle(found)
    print(f"{len(found)} programs", flush=True)
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as name:
        if given.sound:
            print(sound_verdicts(found, Path(name)), flush=True)
        for path, case in found:
            for fault in faults(path, case, rng, given.each):
                if len(outcomes) < given.count:
                    outcomes.append(outcome(fault, case, Path(name)))
                    print(outcomes[-1], file=sys.stderr, flush=True)
        outcomes += kernel_outcomes(found, given.kernels, Path(name))
    if outcomes:
        print(table_of(outcomes))


if __name__ == "__main__":
    main()
