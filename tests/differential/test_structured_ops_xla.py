"""Random bits, transforms, factors, batch norms and bit casts beside XLA:CPU, in one program.

Each row is one instruction with its operands; rows are numbered, so that a failure names one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
import pytest

from hlo.errors import HloError
from hlo.interpreter.evaluate import evaluate
from hlo.ir.dtype import dtype
from hlo.parser.parse import parse
from hlo.tools.jax import jax_door
from tests.support.xla_child import run_in_child


@dataclass
class Row:
    """result = opcode(operands), attributes; rtol relative to the largest element, 0: equal."""

    opcode: str
    operands: list[tuple[str, np.ndarray]]  # HLO type and value
    result: str
    attributes: str
    rtol: float = 0.0
    part: int | None = None  # which element of a tuple result is compared


def shape(kind: str, dims: tuple[int, ...]) -> str:
    return f"{kind}[{','.join(map(str, dims))}]"


def normal(kind: str, *dims: int, seed: int = 0) -> tuple[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(dims)
    if kind in ("c64", "c128"):
        values = values + 1j * rng.standard_normal(dims)
    return shape(kind, dims), values.astype(dtype(kind).numpy)


def random_bits() -> list[Row]:
    rows = []
    dims = [(5,), (2, 3), (3, 4), (3, 5), (1, 1), (7, 1, 3), (4, 1)]
    for kind, d in product(("u32", "u64", "u8", "u16"), dims):
        state = "u64[2]", np.array([0x0123456789ABCDEF, 2**64 - 4], np.uint64)
        for algorithm in ("rng_three_fry", "rng_philox", "rng_default"):
            result = f"(u64[2], {shape(kind, d)})"
            for part in (0, 1):
                rows.append(
                    Row("rng-bit-generator", [state], result, f"algorithm={algorithm}", 0, part)
                )
    return rows


def transforms() -> list[Row]:
    rows = []
    for lengths in [(1,), (2,), (7,), (12,), (97,), (4, 6), (3, 5, 8)]:
        text = f"fft_length={{{','.join(map(str, lengths))}}}"
        half = (*lengths[:-1], lengths[-1] // 2 + 1)
        for c, r, rtol in (("c64", "f32", 3e-6), ("c128", "f64", 1e-13)):
            for name, source, target, before, after in (
                ("FFT", c, c, lengths, lengths), ("IFFT", c, c, lengths, lengths),
                ("RFFT", r, c, lengths, half), ("IRFFT", c, r, half, lengths),
            ):  # fmt: skip
                operand = normal(source, 2, *before)
                result = shape(target, (2, *after))
                rows.append(Row("fft", [operand], result, f"fft_type={name}, {text}", rtol))
    return rows


def factors() -> list[Row]:
    rows = []
    for kind, rtol in (("f32", 3e-5), ("f64", 1e-12), ("c64", 3e-5)):
        text, root = normal(kind, 2, 4, 4)
        positive = root @ np.conj(np.swapaxes(root, -1, -2)) + 4 * np.eye(4)
        positive = positive.astype(root.dtype)
        for lower in ("true", "false"):
            rows.append(Row("cholesky", [(text, positive)], text, f"lower={lower}", rtol))
        right = normal(kind, 2, 4, 4, seed=1)
        for left, lower, unit, turned in product(
            ("true", "false"), ("true", "false"), ("true", "false"),
            ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"),
        ):  # fmt: skip
            attributes = (
                f"left_side={left}, lower={lower}, unit_diagonal={unit}, transpose_a={turned}"
            )
            rows.append(
                Row("triangular-solve", [(text, positive), right], text, attributes, 10 * rtol)
            )
    return rows


def batch_norms() -> list[Row]:
    rows = []
    for kind, index, rtol in (("f32", 1, 1e-5), ("f64", 0, 1e-13), ("f32", 2, 1e-5)):
        dims = (4, 3, 5)
        x = normal(kind, *dims)
        size = dims[index]
        scale, offset, mean = (normal(kind, size, seed=s) for s in (1, 2, 3))
        variance = (mean[0], np.abs(normal(kind, size, seed=4)[1]) + 1)
        dy = normal(kind, *dims, seed=5)
        at, vector = f"epsilon=0.01, feature_index={index}", shape(kind, (size,))
        three = f"({x[0]}, {vector}, {vector})"
        for part in range(3):
            rows.append(Row("batch-norm-training", [x, scale, offset], three, at, rtol, part))
            rows.append(
                Row("batch-norm-grad", [x, scale, mean, variance, dy], three, at, 10 * rtol, part)
            )
        rows.append(Row("batch-norm-inference", [x, scale, offset, mean, variance], x[0], at, rtol))
    return rows


def casts() -> list[Row]:
    rng = np.random.default_rng(9)
    rows = []
    for source, dims, target, result in [
        ("u32", (3, 2), "u8", (3, 2, 4)), ("u8", (3, 4), "f32", (3,)), ("f64", (3,), "u32", (3, 2)),
        ("u16", (3,), "bf16", (3,)), ("u16", (3, 4), "u64", (3,)), ("s32", (5,), "f32", (5,)),
        ("s4", (3, 2), "u8", (3,)), ("u8", (3,), "s4", (3, 2)), ("u8", (3,), "u2", (3, 4)),
    ]:  # fmt: skip
        numpy = dtype(source).numpy
        if dtype(source).is_float:
            values = rng.standard_normal(dims).astype(numpy)
        else:
            low, high = dtype(source).int_range
            values = rng.integers(low, high, dims, endpoint=True).astype(numpy)
        operand = shape(source, dims), values
        rows.append(Row("bitcast-convert", [operand], shape(target, result), ""))
    for kind, (e, m) in product(("f32", "f64", "bf16", "f16"), [(8, 7), (5, 10), (4, 3), (3, 0)]):
        text, values = normal(kind, 200)
        with np.errstate(over="ignore"):
            values = (values.astype(np.float64) * 10.0 ** rng.integers(-3, 4, 200)).astype(
                values.dtype
            )
        attributes = f"exponent_bits={e}, mantissa_bits={m}"
        rows.append(Row("reduce-precision", [(text, values)], text, attributes))
    for kind in ("f8e4m3fn", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz", "f8e3m4", "f8e4m3", "f4e2m1fn"):
        text, values = normal("f32", 300)
        values = values * np.float32(10) ** rng.integers(-3, 3, 300).astype(np.float32)
        rows.append(Row("convert", [(text, values)], shape(kind, (300,)), ""))
    return rows


FAMILIES = {
    "random bits": random_bits, "transforms": transforms, "factors": factors,
    "batch norms": batch_norms, "casts": casts,
}  # fmt: skip


@cache
def all_rows() -> list[tuple[str, Row]]:
    return [(family, row) for family, make in FAMILIES.items() for row in make()]


@cache
def program() -> tuple[str, list[np.ndarray]]:
    lines, names, shapes, arguments = [], [], [], []
    parameters: dict[int, str] = {}  # of an array, which the rows keep
    made: dict[str, str] = {}  # parts of one result are of one instruction, which XLA compiles once
    for number, (_, row) in enumerate(all_rows()):
        operands = []
        for text, value in row.operands:
            if id(value) not in parameters:
                parameters[id(value)] = f"p{len(arguments)}"
                lines.append(f"  p{len(arguments)} = {text} parameter({len(arguments)})")
                arguments.append(value)
            operands.append(parameters[id(value)])
        extra = f", {row.attributes}" if row.attributes else ""
        computed = f"{row.result} {row.opcode}({', '.join(operands)}){extra}"
        if computed not in made:
            made[computed] = f"v{number}"
            lines.append(f"  v{number} = {computed}")
        if row.part is None:
            names.append(made[computed])
            shapes.append(row.result)
        else:
            element = str(parse_part(row.result, row.part))
            whole = made[computed]
            lines.append(f"  w{number} = {element} get-tuple-element({whole}), index={row.part}")
            names.append(f"w{number}")
            shapes.append(element)
    lines.append(f"  ROOT t = ({', '.join(shapes)}) tuple({', '.join(names)})")
    return "HloModule rows\n\nENTRY e {\n" + "\n".join(lines) + "\n}\n", arguments


def parse_part(result: str, part: int) -> str:
    """The shape of one element of a flat tuple shape."""
    return result[1:-1].split(", ")[part]


@cache
def results() -> tuple[tuple[np.ndarray, ...], list[np.ndarray]]:
    text, arguments = program()
    ours = evaluate(parse(text), *arguments)
    assert isinstance(ours, tuple)
    return ours, run_in_child(text, arguments)


def oracle_is_there() -> bool:
    try:
        jax_door.check_available()
    except HloError:
        return False
    return True


def disagrees(row: Row, ours: np.ndarray, theirs: np.ndarray) -> bool:
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return True
    kind = np.complex128 if np.iscomplexobj(ours) else np.float64
    with np.errstate(all="ignore"):
        left, right = ours.astype(kind), theirs.astype(kind)
        if row.rtol == 0:
            return not bool(np.all((ours == theirs) | (np.isnan(left) & np.isnan(right))))
        scale = float(np.max(np.abs(right), initial=1e-30))
        return not bool(np.all(np.abs(left - right) <= row.rtol * scale))


@pytest.mark.oracle
@pytest.mark.skipif(not oracle_is_there(), reason="the oracle extra is not installed")
@pytest.mark.parametrize("family", FAMILIES)
def test_structured_ops_agree_with_xla(family: str) -> None:
    ours, theirs = results()
    wrong = [
        f"row {i}: {row.opcode} {row.attributes} -> {row.result} part {row.part}: "
        f"{ours[i].ravel()[:4]}, XLA {theirs[i].ravel()[:4]}"
        for i, (own, row) in enumerate(all_rows())
        if own == family and disagrees(row, ours[i], theirs[i])
    ]
    assert wrong == []
