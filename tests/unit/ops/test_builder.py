"""hlo.Builder: its vocabulary, implicit broadcasting written out, errors at the caller's line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hlo
from hlo.ir.instruction import Instruction
from hlo.ops.table import OPS

Shape = hlo.Shape
RAMP = np.arange(6, dtype=np.float32).reshape(2, 3)


def vector(*dims: int, dtype: str = "f32") -> Shape:
    return Shape.array(dtype, dims)


def opcodes(b: hlo.Builder) -> list[str]:
    return [i.opcode for i in b.computation.instructions if i.opcode != "parameter"]


def run(b: hlo.Builder, root: Instruction, *arguments: object) -> object:
    """Built, verified, printed, parsed again, evaluated."""
    module = hlo.parse(str(b.build(root)))
    hlo.verify(module)
    return hlo.evaluate(module, *arguments)


def test_every_opcode_is_a_method() -> None:
    b = hlo.Builder()
    missing = [
        opcode
        for opcode in OPS
        if not any(hasattr(b, opcode.replace("-", "_") + end) for end in ("", "_"))
    ]
    assert missing == []


def test_no_method_for_what_is_no_opcode() -> None:
    with pytest.raises(AttributeError, match="no opcode frobnicate"):
        hlo.Builder().frobnicate  # noqa: B018  # the look-up is what is tested


def test_scalars_are_broadcast() -> None:
    b = hlo.Builder()
    x = b.parameter("x", vector(2, 3))
    root = b.add(x, 1)
    assert opcodes(b) == ["constant", "broadcast", "add"]
    assert np.array_equal(run(b, root, RAMP), RAMP + 1)


def test_broadcast_dimensions_place_the_smaller_operand() -> None:
    b = hlo.Builder()
    x, y = b.parameter("x", vector(2, 3)), b.parameter("y", vector(2))
    root = b.sub(y, x, [0])
    assert root.operands[0].opcode == "broadcast"
    assert root.operands[0]["dimensions"] == (0,)
    column = np.array([10, 20], np.float32)
    assert np.array_equal(run(b, root, RAMP, column), column[:, None] - RAMP)


def test_degenerate_dimensions_are_reshaped_and_broadcast_on_both_sides() -> None:
    b = hlo.Builder()
    x, y = b.parameter("x", vector(2, 1)), b.parameter("y", vector(1, 3))
    root = b.mul(x, y)
    assert opcodes(b) == ["reshape", "broadcast", "reshape", "broadcast", "multiply"]
    left, right = np.float32([[2], [3]]), np.float32([[5, 7, 11]])
    assert np.array_equal(run(b, root, left, right), left * right)


def test_degenerate_and_smaller_rank_together() -> None:
    b = hlo.Builder()
    x, y = b.parameter("x", vector(2, 1, 4)), b.parameter("y", vector(1, 3))
    root = b.add(x, y, broadcast_dimensions=(0, 1))
    assert root.shape.dims == (2, 3, 4)
    left = np.arange(8, dtype=np.float32).reshape(2, 1, 4)
    right = np.float32([[10, 20, 30]])
    assert np.array_equal(run(b, root, left, right), left + right[:, :, None])


def test_equal_shapes_need_no_broadcast() -> None:
    b = hlo.Builder()
    x = b.parameter("x", vector(2, 3))
    b.maximum(x, x)
    assert opcodes(b) == ["maximum"]


def test_scalars_beside_dynamic_dimensions_take_their_size() -> None:
    b = hlo.Builder()
    x = b.parameter("x", Shape.array("f32", [5], dynamic=[True]))
    root = b.add(x, 1.0)
    assert root.shape.dynamic == (True,)
    assert opcodes(b)[-3:] == ["get-dimension-size", "set-dimension-size", "add"]


def test_clamp_and_select_broadcast_scalars() -> None:
    b = hlo.Builder()
    x = b.parameter("x", vector(2, 3))
    clamped = b.clamp(1.0, x, 4.0)
    root = b.select(b.gt(clamped, 2), clamped, 0)
    held = np.clip(RAMP, 1, 4)
    assert np.array_equal(run(b, root, RAMP), np.where(held > 2, held, 0))


def test_comparisons_by_name() -> None:
    b = hlo.Builder()
    x, y = b.parameter("x", vector(3)), b.parameter("y", vector(3))
    both = b.tuple(b.eq(x, y), b.ne(x, y), b.ge(x, y), b.gt(x, y), b.le(x, y), b.lt(x, y))
    p, q = np.float32([1, 2, 3]), np.float32([3, 2, 1])
    expected = [p == q, p != q, p >= q, p > q, p <= q, p < q]
    assert np.array_equal(run(b, both, p, q), expected)


def test_conversions() -> None:
    b = hlo.Builder()
    x = b.parameter("x", vector(2, dtype="f32"))
    root = b.tuple(b.convert(x, "s8"), b.bitcast_convert(x, "u16"), b.bitcast_convert(x, "s32"))
    assert [e.dims for e in root.shape.elements] == [(2,), (2, 2), (2,)]
    result = run(b, root, np.float32([1.5, -2.5]))
    assert result[0].tolist() == [1, -2]
    assert result[2].tolist() == np.float32([1.5, -2.5]).view(np.int32).tolist()


def test_movement_vocabulary() -> None:
    b = hlo.Builder()
    x = b.parameter("x", vector(2, 3, 4))
    parts = {
        "collapse": b.collapse(x, [1, 2]),
        "concat": b.concat_in_dim([x, x], 1),
        "in_dim": b.broadcast_in_dim(b.slice_in_dim(x, 0, 1, dimension=0), (5, 3, 4), (0, 1, 2)),
        "slice": b.slice(x, [0, 1, 0], [2, 3, 4], [1, 1, 2]),
        "slice_in_dim": b.slice_in_dim(x, 1, 4, 2, dimension=2),
        "pad": b.pad(x, 7, [(1, 0), (0, 0, 1), (-1, 0)]),
        "pad_in_dim": b.pad_in_dim(x, 7.0, 1, 0, 2),
        "transpose": b.transpose(x, (2, 0, 1)),
        "reverse": b.rev(x, [0, 2]),
        "broadcast": b.broadcast(x, [2]),
        "reshape": b.reshape(x, (4, 6)),
        "dynamic_slice": b.dynamic_slice(x, [0, 5, 1], [2, 1, 2]),
        "update": b.dynamic_update_slice(x, np.zeros((1, 1, 1), np.float32), [1, 0, 0]),
        "iota": b.iota("s32", size=3),
    }
    data = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    result = dict(zip(parts, run(b, b.tuple(*parts.values()), data), strict=True))
    padded = np.full((3, 5, 3), 7, np.float32)
    padded[1:, ::2] = data[:, :, 1:]
    updated = data.copy()
    updated[1, 0, 0] = 0
    expected = {
        "collapse": data.reshape(2, 12),
        "concat": np.concatenate([data, data], 1),
        "in_dim": np.broadcast_to(data[:1], (5, 3, 4)),
        "slice": data[:, 1:3, ::2],
        "slice_in_dim": data[:, :, 1:4:2],
        "pad": padded,
        "pad_in_dim": np.pad(data, ((0, 0), (0, 2), (0, 0)), constant_values=7),
        "transpose": data.transpose(2, 0, 1),
        "reverse": data[::-1, :, ::-1],
        "broadcast": np.stack([data, data]),
        "reshape": data.reshape(4, 6),
        "dynamic_slice": data[:, 2:3, 1:3],
        "update": updated,
        "iota": np.arange(3),
    }
    for name, value in expected.items():
        assert np.array_equal(result[name], value), name


def test_collapse_of_one_dimension_changes_nothing() -> None:
    b = hlo.Builder()
    x = b.parameter("x", vector(2, 3))
    assert b.collapse(x, [1]) is x


def test_dots() -> None:
    b = hlo.Builder()
    x, y = b.parameter("x", vector(2, 3)), b.parameter("y", vector(3, 4))
    z = b.dot_general(x, y, (((1,), (0,)), ((), ())), preferred_element_type="f64")
    batched = b.dot_general(b.broadcast(x, [5]), b.broadcast(y, [5]), (((2,), (1,)), ((0,), (0,))))
    root = b.tuple(b.dot(x, y), z, batched)
    right = np.arange(12, dtype=np.float32).reshape(3, 4)
    product, wide, stacked = run(b, root, RAMP, right)
    assert np.array_equal(product, RAMP @ right)
    assert wide.dtype == np.float64
    assert np.array_equal(stacked, np.stack([RAMP @ right] * 5))


def test_convolutions() -> None:
    b = hlo.Builder()
    x, k = b.parameter("x", vector(1, 1, 5)), b.parameter("k", vector(1, 1, 3))
    root = b.tuple(
        b.conv(x, k, [2], "SAME"),
        b.conv(x, k, [1], "VALID"),
        b.conv_with_general_padding(x, k, [1], [(1, 0)]),
        b.conv_general_dilated(x, k, [1], [(0, 0)], rhs_dilation=[2]),
        b.conv_general_dilated(b.reshape(x, (1, 5, 1)), k, dimension_numbers="b0f_oi0->b0f"),
    )
    signal, kernel = np.arange(1, 6, dtype=np.float32), np.float32([1, 10, 100])
    same, valid, padded, dilated, labelled = run(b, root, signal[None, None], kernel[None, None])
    whole = np.correlate(signal, kernel, "valid")
    around = np.correlate(np.pad(signal, 1), kernel, "valid")
    assert np.array_equal(same[0, 0], around[::2])
    assert np.array_equal(valid[0, 0], whole)
    assert np.array_equal(padded[0, 0], around[:-1])
    assert dilated[0, 0].tolist() == [1 + 30 + 500]
    assert np.array_equal(labelled[0, :, 0], whole)


def test_same_padding_puts_the_odd_element_at_the_high_end() -> None:
    b = hlo.Builder()
    x, k = b.parameter("x", vector(1, 1, 4)), b.parameter("k", vector(1, 1, 2))
    window = b.conv(x, k, [1], "SAME")["window"].dims[0]  # type: ignore[attr-defined]  # a Window
    assert (window.pad_low, window.pad_high) == (0, 1)


def test_reductions() -> None:
    b = hlo.Builder()
    x = b.parameter("x", vector(2, 3))
    add = b.scalar_computation("add", "f32")
    root = b.tuple(
        b.reduce(x, 0, add, [1]),
        b.reduce(x, 0.0, add),
        b.reduce_window(x, 0, add, [1, 2], [1, 1], "VALID"),
        b.map([x, x], add),
    )
    rows, all_, windows, twice = run(b, root, RAMP)
    assert np.array_equal(rows, RAMP.sum(1))
    assert all_ == RAMP.sum()
    assert np.array_equal(windows, RAMP[:, 1:] + RAMP[:, :-1])
    assert np.array_equal(twice, 2 * RAMP)


def test_sort_with_a_comparator_of_the_caller() -> None:
    b = hlo.Builder()
    f = b.subcomputation("descending")
    p, q = f.parameter("p", vector()), f.parameter("q", vector())
    descending = f.finish(f.gt(p, q))
    x = b.parameter("x", vector(2, 3))
    assert np.array_equal(run(b, b.sort(x, descending), RAMP), RAMP[:, ::-1])


def test_while_counts() -> None:
    b = hlo.Builder()
    scalar = vector(dtype="s32")
    c = b.subcomputation("below_ten")
    condition = c.finish(c.lt(c.parameter("n", scalar), 10))
    d = b.subcomputation("by_three")
    body = d.finish(d.add(d.parameter("n", scalar), 3))
    start = b.parameter("start", scalar)
    assert run(b, b.while_(condition, body, start), np.int32(0)) == 12


def test_conditionals() -> None:
    b = hlo.Builder()
    computations = []
    for opcode in ("negate", "abs", "sign"):
        f = b.subcomputation(opcode)
        computations.append(f.finish(f.emit(opcode, f.parameter("x", vector()))))
    p, k = b.parameter("p", vector(dtype="pred")), b.parameter("k", vector(dtype="s32"))
    x = b.parameter("x", vector())
    root = b.tuple(
        b.conditional(p, x, computations[0], x, computations[1]),
        b.conditional_indexed(k, computations, [x, x, x]),
        b.call(computations[0], x),
    )
    assert run(b, root, np.bool_(True), np.int32(2), np.float32(-4)) == (4, -1, 4)


def test_tuples() -> None:
    b = hlo.Builder()
    x = b.parameter("x", vector(2))
    pair = b.tuple([x, b.neg(x)])
    second = b.get_tuple_element(pair, 1)
    assert run(b, second, np.float32([1, 2])).tolist() == [-1, -2]


def test_random_numbers_have_the_shape_asked_for() -> None:
    b = hlo.Builder()
    root = b.tuple(
        b.rng_uniform(2, 3, vector(7)),
        b.rng_normal(0.0, 1.0, vector(5)),
        b.rng_bit_generator("rng_philox", np.uint64([1, 2, 3]), vector(4, dtype="u32")),
    )
    uniform, normal, (state, bits) = run(b, root)
    assert ((uniform >= 2) & (uniform < 3)).all()
    assert (normal.shape, state.shape, bits.shape) == ((5,), (3,), (4,))


def test_cross_replica_sum_on_one_device_is_the_operand() -> None:
    b = hlo.Builder()
    x = b.parameter("x", vector(2, 3))
    assert np.array_equal(run(b, b.cross_replica_sum(x, [[0]]), RAMP), RAMP)


def test_attributes_as_python_writes_them() -> None:
    b = hlo.Builder()
    x = b.parameter("x", vector(2, 3))
    made = b.emit(
        "dot", x, x, lhs_contracting_dims=[1], rhs_contracting_dims=1, operand_precision="HIGH",
        frontend_attributes={"b": "2", "a": "1"},
    )  # fmt: skip
    assert made["rhs_contracting_dims"] == (1,)
    assert made["operand_precision"] == ("high", "high")
    assert made["frontend_attributes"] == (("a", "1"), ("b", "2"))


def test_constants_take_pythons_types() -> None:
    b = hlo.Builder()
    values = (True, 3, 1.5, 1j, [[1, 2], [3, 4]], np.float16(2))
    types = [str(b.constant(v).shape.dtype) for v in values]
    assert types == ["pred", "s32", "f32", "c64", "s32", "f16"]


def test_names_are_made_legal_and_unique() -> None:
    b = hlo.Builder()
    x = b.parameter("my x", vector())
    names = [b.negate(x, name="y").name, b.negate(x, name="y").name]
    assert x.name == "my_x"
    assert len(set(names)) == 2


VIOLATIONS = {
    "shape-mismatch": lambda b, x, y: b.add(x, y),
    "attribute-value": lambda b, x, y: b.add(x, y, [2]),
    "arity": lambda b, x, y: b.emit("negate", x, y),
    "attribute-missing": lambda b, x, y: b.emit("transpose", x),
    "attribute-unknown": lambda b, x, y: b.negate(x, colour="red"),
    "unknown-opcode": lambda b, x, y: b.emit("frobnicate", x),
    "arguments": lambda b, x, y: b.add(x, "one"),
    "dtype": lambda b, x, y: b.convert(x, "f33"),
    "mixed-precision": lambda b, x, y: b.add(y, np.ones(5, np.float64)),
    "literal": lambda b, x, y: b.constant([[1], [2, 3]]),
    "structure": lambda b, x, y: b.subcomputation("f").negate(x),
}


@pytest.mark.parametrize("code", VIOLATIONS)
def test_violations_name_the_callers_line(code: str) -> None:
    b = hlo.Builder()
    x, y = b.parameter("x", vector(2, 3)), b.parameter("y", vector(5))
    with pytest.raises(hlo.HloError) as caught:
        VIOLATIONS[code](b, x, y)
    rows = Path(__file__).read_text().splitlines()
    assert caught.value.code == code
    assert f'"{code}": lambda' in rows[(caught.value.line or 0) - 1]
    assert f"{Path(__file__).name}:{caught.value.line}" in str(caught.value)


MORE_VIOLATIONS = {
    "collapse apart": lambda b, x: b.collapse(x, [0, 2]),
    "slice out of range": lambda b, x: b.slice_in_dim(x, 0, 9, dimension=1),
    "no such dimension": lambda b, x: b.slice_in_dim(x, 0, 1, dimension=-1),
    "reshape to another count": lambda b, x: b.reshape(x, (5, 5)),
    "bad padding word": lambda b, x: b.conv(x, x, [1], "EVEN"),
    "bad strides": lambda b, x: b.conv(x, x, [1, 1], "SAME"),
    "bad dimension numbers": lambda b, x: b.dot_general(x, x, ((1, 2, 3),)),
    "bad labels": lambda b, x: b.conv_general_dilated(x, x, dimension_numbers="bf0"),
    "bad direction": lambda b, x: b.compare(x, x, "ALMOST"),
    "dot of rank 3": lambda b, x: b.dot(x, x),
    "element of no tuple": lambda b, x: b.get_tuple_element(x, 0),
    "init values missing": lambda b, x: b.reduce([x, x], [0.0], None, [0]),
    "computation of another module": lambda b, x: b.call(
        hlo.Builder().scalar_computation("add", "f32"), x, x  # lambda b, x
    ),
    "out of range": lambda b, x: b.constant(300, "s8"),
    "fraction of an integer": lambda b, x: b.add(b.iota("s32", size=3), 0.5),
    "no shape": lambda b, x: b.emit("iota", iota_dimension=0),
    "wrong shape": lambda b, x: b.emit("negate", x, shape=vector(4)),
    "no root": lambda b, x: b.build(None),
    "broadcast to less": lambda b, x: b.broadcast_in_dim(x, (2, 3), (0, 1)),
    "bits of no array": lambda b, x: b.bitcast_convert(x, "token"),
    "windows of nothing": lambda b, x: b.reduce_window([], [], None, [1]),
    "interior of too many": lambda b, x: b.pad(x, 0, [(1, 1, 1, 1)] * 3),
}  # fmt: skip


@pytest.mark.parametrize("case", MORE_VIOLATIONS)
def test_bad_calls_are_hlo_errors_at_this_file(case: str) -> None:
    b = hlo.Builder()
    x = b.parameter("x", vector(2, 3, 4))
    with pytest.raises(hlo.HloError) as caught:
        MORE_VIOLATIONS[case](b, x)
    assert caught.value.span is not None
    assert caught.value.span.source.name == __file__
    assert "lambda b, x" in caught.value.span.source.line_at(caught.value.span.start)


def test_a_finished_computation_takes_no_more_instructions() -> None:
    b = hlo.Builder()
    x = b.parameter("x", vector())
    b.build(x)
    with pytest.raises(hlo.HloError, match="is finished"):
        b.negate(x)


def test_code_without_source_text_is_named_all_the_same() -> None:
    with pytest.raises(hlo.HloError) as caught:
        exec(compile("\n\nb.emit('nothing')", "<typed in>", "exec"), {"b": hlo.Builder()})
    assert "<typed in>:3" in str(caught.value)
