"""Random instructions of every family beside XLA:CPU: equal bits, floats within budget.

One child process answers for all modules of a test; each holds many results, since starting XLA and
compiling cost more than any of them. Sums and products are of small whole numbers, exact in any
order. Where XLA:CPU computes something else by design, a draw is not compared: see comparable.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator

import numpy as np
import pytest

import hlo
from hlo.attributes.window import Window
from hlo.ir.computation import Computation
from hlo.ir.dtype import DType
from hlo.ir.graph import clone_module, reachable_computations
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ops.table import OPS, Trait
from hlo.tools.comparison.compare import Budget, compare
from tests.support import oracle
from tests.support.op_draws import FAMILIES, Draw, drawn
from tests.support.xla_child import Xla

PER_MODULE = 40
BITWISE = {name for name, row in OPS.items() if row.traits & Trait.MOVEMENT} | {"sort", "iota"}


@pytest.fixture(scope="module")
def xla() -> Iterator[Xla]:
    if not oracle.available():
        pytest.skip("jaxlib is not here")
    server = Xla()
    yield server
    server.close()


def answers(
    server: Xla, made: list[Instruction], d: Draw
) -> Iterator[tuple[Instruction, list[np.ndarray] | str, object]]:
    """Each instruction with XLA's answer (or refusal) and ours; halves modules that it refuses."""
    with_identities(made, d)
    d.arguments = [flushed(a) for a in d.arguments]
    module = d.b.build(d.b.tuple(made))
    ours = hlo.evaluate(module, *d.arguments)
    assert isinstance(ours, tuple), "a tuple of results"
    pending = [list(range(len(made)))]
    while pending:
        chosen = pending.pop()
        part, kept = reduced(module, chosen)
        theirs = server.run(str(part), [d.arguments[k] for k in kept])
        if isinstance(theirs, str) and len(chosen) > 1:
            half = len(chosen) // 2
            pending += [chosen[half:], chosen[:half]]
            continue
        for k in chosen:
            if isinstance(theirs, str):
                yield made[k], theirs, ours[k]
                continue
            count = sum(1 for _ in made[k].shape.leaves())
            yield made[k], theirs[:count], ours[k]
            theirs = theirs[count:]


def reduced(module: Module, chosen: list[int]) -> tuple[Module, list[int]]:
    """The module with some of its results, and the numbers of the parameters that are left."""
    copy = clone_module(module)
    entry = copy.entry
    root = entry.root
    results = [root.operands[k] for k in chosen]
    shape = hlo.Shape.tuple(r.shape for r in results)
    entry.root = entry.new("tuple", shape, results)
    needed, stack = set(), [entry.root]
    while stack:
        instruction = stack.pop()
        if instruction not in needed:
            needed.add(instruction)
            stack += instruction.operands
    kept = []
    for instruction in reversed(entry.instructions):
        if instruction not in needed:
            entry.remove(instruction)
    for parameter in list(entry.parameters):
        number = parameter.attributes["parameter_number"]
        parameter.attributes = {**parameter.attributes, "parameter_number": len(kept)}
        kept.append(number)
    copy.attributes = {}
    reached = reachable_computations(copy)
    for computation in list(copy.computations):
        if computation not in reached:
            copy.remove(computation)
    return copy, kept  # type: ignore[return-value]  # numbers


def with_identities(made: list[Instruction], d: Draw) -> None:
    """Reductions start from an identity: XLA:CPU drops or repeats other initial values
    (docs/semantics.md 5).

    A reduce of dimensions of size 1 becomes a reshape there, one in two steps adds them twice.
    """
    for instruction in made:
        if instruction.opcode not in ("reduce", "reduce-window", "select-and-scatter"):
            continue
        reducing = instruction.get("to_apply") or instruction.get("scatter")
        assert isinstance(reducing, Computation), "a computation"
        opcode = reducing.root.opcode
        init = instruction.operands[-1]
        d.arguments[number_of(init)] = _identity(opcode, init.shape.dtype)
        if instruction.opcode == "select-and-scatter":
            x = instruction.operands[0].shape
            values = d.rng.permutation(x.size).reshape(x.dims)
            d.arguments[number_of(instruction.operands[0])] = values.astype(x.dtype.numpy)


def number_of(parameter: Instruction) -> int:
    number = parameter["parameter_number"]
    assert isinstance(number, int), "a parameter"
    return number


def _identity(opcode: str, dtype: DType) -> np.ndarray:
    assert dtype.numpy is not None, "an array"
    if opcode in ("add", "or", "xor") or (opcode == "maximum" and dtype.is_pred):
        return np.zeros((), dtype.numpy)
    if opcode == "multiply":
        return np.ones((), dtype.numpy)
    if opcode == "and":
        ones = 1 if dtype.is_pred else -1 if dtype.is_signed else dtype.int_range[1]
        return np.array(ones).astype(dtype.numpy)
    if dtype.is_float:
        return np.array(-7 if opcode == "maximum" else 7).astype(dtype.numpy)
    low, high = dtype.int_range
    return np.array(low if opcode == "maximum" else high).astype(dtype.numpy)


ABSENT = frozenset(["s1", "u1", "s2", "u2", "f6e2m3fn", "f6e3m2fn", "f4e2m1fn", "f8e8m0fnu"])


REDUCTIONS = frozenset(
    {"reduce", "reduce-window", "select-and-scatter", "dot", "convolution", "scatter"}
)
# XLA:CPU has no code for some functions and types.
REFUSED = re.compile("UNIMPLEMENTED|StableHLO|not support|[Uu]nsupported|Invalid XLA", re.DOTALL)


def comparable(made: Instruction) -> bool:
    """Whether XLA:CPU means the same by an instruction: KNOWN differences are left out.

    - types that XLA:CPU lacks, and `padding=` of a scalar, which its parser refuses
    - a sum or product in 8 bits: XLA rounds each step, we once
    - a total order of fnuz types: XLA converts them, so that their NaN, whose bits are those of a
      negative zero elsewhere, comes first
    - a reduction of pairs over no elements but one: XLA drops the initial pair (see
    with_identities)
    - select-and-scatter in types too narrow for distinct numbers: XLA's scan breaks ties otherwise
    - integer power and complex order: docs/semantics.md 4 and 5
    - popcnt of s4: XLA counts the byte's bits (docs/semantics.md 1)
    - windows of single elements with negative padding: XLA dies of them
    """
    dtypes = {leaf.dtype for s in (made.shape, *(o.shape for o in made.operands))
              for leaf in s.leaves()}  # fmt: skip
    if any(t.name in ABSENT for t in dtypes) or (made.opcode == "pad" and made.shape.rank == 0):
        return False
    if made.opcode in REDUCTIONS and any(t.is_float and t.bits == 8 for t in dtypes):
        return False
    if made.opcode in ("sort", "compare", "topk") and any("fnuz" in t.name for t in dtypes):
        return False
    if made.opcode == "reduce" and len(made.operands) > 2:
        return False
    window = made.get("window")
    if isinstance(window, Window) and made.opcode == "reduce-window":
        cropped = any(min(d.pad_low, d.pad_high) < 0 for d in window.dims)
        if cropped and all(d.size == 1 for d in window.dims):
            return False
    if made.opcode == "popcnt" and "s4" in {t.name for t in dtypes}:
        return False
    if made.opcode == "select-and-scatter":
        return made.shape.dtype.bits >= 32
    complex_order = made.opcode == "compare" and made["direction"] not in ("EQ", "NE")
    return not (complex_order and any(t.is_complex for t in dtypes))


def disagreement(made: Instruction, theirs: list[np.ndarray], ours: object) -> str:
    """What distinguishes XLA's result from ours; empty where they agree."""
    mine = list(leaves(ours))
    if made.opcode == "rng-bit-generator":  # on JAX's path always unsigned bits
        theirs = [a.view(b.dtype) for a, b in zip(theirs, mine, strict=True)]
    if any(a.shape != b.shape or a.dtype != b.dtype for a, b in zip(theirs, mine, strict=True)):
        return f"XLA gives {[f'{a.dtype}{a.shape}' for a in theirs]}"
    if made.opcode in BITWISE and all(map(same_bits, theirs, mine)):
        return ""
    budget = Budget(2 * OPS[made.opcode].ulp, *tolerances(made))
    report = compare(tuple(map(flushed, theirs)), tuple(map(flushed, mine)), budget)
    return "" if report.passed else report.text


def flushed(array: np.ndarray) -> np.ndarray:
    """Subnormal numbers as zeros: XLA:CPU flushes arguments and results (docs/semantics.md 1)."""
    if array.dtype.name not in ("float32", "float64", "bfloat16"):
        return array
    least = {"float64": 2.0**-1022}.get(array.dtype.name, 2.0**-126)
    with np.errstate(all="ignore"):
        return np.where(np.abs(array) < least, np.zeros_like(array), array)


def same_bits(theirs: np.ndarray, ours: np.ndarray) -> bool:
    """Equal bits; narrow floats' signalling NaNs may have become quiet on the way through f32."""
    return theirs.tobytes() == ours.tobytes()


def leaves(value: object) -> Iterator[np.ndarray]:
    if isinstance(value, tuple):
        for element in value:
            yield from leaves(element)
    else:
        yield np.asarray(value)


def tolerances(made: Instruction) -> tuple[float, float]:
    """Relative and absolute: complex numbers are close where their distance is, sums round."""
    dtype = next(made.shape.leaves()).dtype
    if dtype.is_complex and OPS[made.opcode].ulp:
        return {"c64": (4e-6, 0.0), "c128": (1e-14, 0.0)}[dtype.name]
    if made.opcode in REDUCTIONS and dtype.is_float and dtype.bits == 16:
        return 0.02, 2.0
    return 0.0, 0.0


def disagreements(server: Xla, family: str, seed: int) -> tuple[int, list[str]]:
    """How many results XLA gave, and which of them are not ours."""
    d = Draw(seed)
    made = [m for _ in range(PER_MODULE) if comparable(m := drawn(d, FAMILIES[family]))]
    found, count = [], 0
    for instruction, theirs, ours in answers(server, made, d):
        if isinstance(theirs, str):
            assert REFUSED.search(theirs), f"{describe(instruction)}: {theirs}"
            continue
        count += 1
        text = disagreement(instruction, theirs, ours)
        if text:
            found.append(f"{describe(instruction)}\n{text}")
    return count, found


def describe(made: Instruction) -> str:
    shapes = ", ".join(str(o.shape) for o in made.operands)
    attributes = ", ".join(f"{k}={v}" for k, v in made.attributes.items())
    return f"{made.shape} {made.opcode}({shapes}), {attributes}"


@pytest.mark.oracle
@pytest.mark.parametrize("family", FAMILIES)
def test_ops_agree_with_xla(xla: Xla, family: str) -> None:
    count, found = disagreements(xla, family, 1)
    assert found == []
    assert count > PER_MODULE // 4


@pytest.mark.slow
@pytest.mark.oracle
@pytest.mark.parametrize("seed", range(2000, 2020))
@pytest.mark.parametrize("family", FAMILIES)
def test_many_ops_agree_with_xla(xla: Xla, family: str, seed: int) -> None:
    assert disagreements(xla, family, seed)[1] == []


if __name__ == "__main__":  # FIRST LAST [FAMILY...]: counts cases and says what disagrees
    first, last = map(int, sys.argv[1:3])
    with contextlib.closing(Xla()) as child:
        for name in sys.argv[3:] or FAMILIES:
            rows = [disagreements(child, name, seed) for seed in range(first, last)]
            wrong = [text for _, texts in rows for text in texts]
            count = sum(n for n, _ in rows)
            sys.stdout.write(f"{name}: {count} cases, {len(wrong)} disagree\n" + "\n".join(wrong))
