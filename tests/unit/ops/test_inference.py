"""Shapes that text leaves out: dimensions, types, layouts and dynamic flags as XLA infers them."""

import pytest

from hlo.errors import Violation
from hlo.ir.shape import ProgramShape, Shape, shape_text
from hlo.ops.table import OPS
from hlo.parser.parse import parse_shape
from tests.support.readings import taken

CASES = [
    # (opcode, operand shapes, attributes, result): docs/text.md 6.5
    ("negate", ["f32[2,3]{0,1:T(8,128)S(1)}"], {}, "f32[2,3]{0,1:T(8,128)S(1)}"),
    ("is-finite", ["bf16[2,3]{0,1}"], {}, "pred[2,3]{0,1}"),
    ("abs", ["c64[2]"], {}, "f32[2]{0}"),
    ("real", ["c128[<=2]"], {}, "f64[<=2]{0}"),
    ("imag", ["f16[2]"], {}, "f16[2]{0}"),
    ("add", ["f32[2,3]{0,1}", "f32[2,3]{1,0}"], {}, "f32[2,3]{0,1}"),
    ("add", ["f32[2,3]{1,0}", "f32[2,<=3]{0,1}"], {}, "f32[2,<=3]{1,0}"),
    ("add", ["bf16[2,3]{0,1}", "f32[2,3]{1,0}"], {}, "f32[2,3]{0,1}"),
    ("add", ["bf16[4]", "f16[4]"], {}, "bf16[4]{0}"),
    ("add", ["f32[2,3]{0,1}", "f32[]"], {}, "f32[2,3]{1,0}"),
    ("add", ["f32[]", "f32[2,3]{0,1}"], {}, "f32[2,3]{1,0}"),
    ("add", ["f32[2,1]", "f32[1,3]"], {}, "f32[2,3]{1,0}"),
    ("add", ["f32[?,3]", "f32[2,3]"], {}, "f32[2,3]{1,0}"),
    ("complex", ["f64[2]", "f64[2]"], {}, "c128[2]{0}"),
    ("compare", ["s8[2,3]{0,1}", "s8[2,3]"], {"direction": "LT"}, "pred[2,3]{0,1}"),
    ("select", ["pred[2,3]{0,1}", "f32[2,3]", "f32[2,3]"], {}, "f32[2,3]{0,1}"),
    ("select", ["pred[]", "f32[2,3]{0,1}", "f32[2,3]"], {}, "f32[2,3]{0,1}"),
    ("select", ["pred[2]", "bf16[2]", "f32[<=2]"], {}, "f32[<=2]{0}"),
    ("clamp", ["f32[]", "f32[2,<=3]{0,1}", "f32[]"], {}, "f32[2,<=3]{0,1}"),
    ("cholesky", ["f32[4,3,3]{0,1,2}"], {"lower": True}, "f32[4,3,3]{0,1,2}"),
    ("fft", ["f32[2,8]"], {"fft_type": "RFFT", "fft_length": (8,)}, "c64[2,5]{1,0}"),
    ("fft", ["c128[2,5]"], {"fft_type": "IRFFT", "fft_length": (9,)}, "f64[2,9]{1,0}"),
    ("tuple", ["f32[2,3]{0,1}", "token[]"], {}, "(f32[2,3]{0,1}, token[])"),
    ("get-tuple-element", ["(s8[2], f32[2,3]{0,1})"], {"index": 1}, "f32[2,3]{0,1}"),
    ("after-all", ["token[]", "token[]"], {}, "token[]"),
    ("add-dependency", ["f32[2,3]{0,1}", "token[]"], {}, "f32[2,3]{0,1}"),
    ("opt-barrier", ["(s8[2], f32[])"], {}, "(s8[2]{0}, f32[])"),
    ("batch-norm-inference", ["f32[2,3]{0,1}", *["f32[3]"] * 4],
     {"epsilon": 0.1, "feature_index": 1}, "f32[2,3]{0,1}"),
    ("batch-norm-training", ["f32[2,3]", "f32[3]", "f32[3]"],
     {"epsilon": 0.1, "feature_index": 1}, "(f32[2,3]{1,0}, f32[3]{0}, f32[3]{0})"),
]  # fmt: skip


@pytest.mark.parametrize(("opcode", "operands", "attributes", "expected"), CASES)
def test_inferred_shape(
    opcode: str, operands: list[str], attributes: dict[str, object], expected: str
) -> None:
    found = OPS[opcode].infer(*map(parse_shape, operands), **taken(opcode, **attributes))
    assert shape_text(found) == expected


REFUSED = [
    # (opcode, operand shapes, attributes, code, role, label)
    ("add", ["f32[2]", "token[]"], {}, "dtype", "operand 1", "C2"),
    ("add", ["f32[2]", "s32[2]"], {}, "dtype", "operand 1", "C3"),
    ("add", ["f32[2]", "f32[3]"], {}, "shape-mismatch", "operand 1", "C4"),
    ("add", ["f32[2]", "f32[2,1]"], {}, "shape-mismatch", "operand 1", "C4"),
    ("and", ["f32[2]", "f32[2]"], {}, "dtype", "operand 0", "C5"),
    ("negate", ["(f32[2])"], {}, "dtype", "operand 0", "C2"),
    ("negate", ["pred[2]"], {}, "dtype", "operand 0", "C3"),
    ("complex", ["f16[2]", "f16[2]"], {}, "dtype", "operand 0", "C6"),
    ("select", ["pred[2]", "(f32[2])", "(f32[2])"], {}, "dtype", "operand 1", "C2"),
    ("select", ["pred[2]", "f32[2]", "f32[3]"], {}, "shape-mismatch", "operand 2", "C3"),
    ("clamp", ["s32[]", "f32[3]", "f32[]"], {}, "dtype", "operand 1", "C3"),
    ("get-tuple-element", ["(f32[2])"], {"index": -1}, "attribute-value", "index", "C2"),
]


@pytest.mark.parametrize(("opcode", "operands", "attributes", "code", "role", "label"), REFUSED)
def test_refused_shape(
    opcode: str,
    operands: list[str],
    attributes: dict[str, object],
    code: str,
    role: str,
    label: str,
) -> None:
    with pytest.raises(Violation) as caught:
        OPS[opcode].infer(*map(parse_shape, operands), **taken(opcode, **attributes))
    assert (caught.value.code, caught.value.at, caught.value.constraint) == (code, role, label)


def program(*shapes: str) -> ProgramShape:
    *parameters, result = map(parse_shape, shapes)
    return ProgramShape(tuple(parameters), result)


def test_calls_give_their_root_shape() -> None:
    x = parse_shape("f32[2,3]{0,1}")
    call = OPS["call"].infer(x, **taken("call", to_apply=program("f32[2,3]", "s8[4]")))
    assert call == Shape.array("s8", (4,))
    branches = (program("f32[2,3]", "f32[4]"), program("f32[2,3]", "f32[<=4]"))
    chosen = OPS["conditional"].infer(
        Shape.array("s32"), x, x, **taken("conditional", branch_computations=branches)
    )
    assert shape_text(chosen) == "f32[<=4]{0}"
    condition, body = program("f32[2,3]", "pred[]"), program("f32[2,3]", "f32[2,3]")
    loop = OPS["while"].infer(x, **taken("while", condition=condition, body=body))
    assert loop is x


def test_conditional_wants_the_attributes_of_its_form() -> None:
    x = parse_shape("f32[2]")
    branch = program("f32[2]", "f32[2]")
    branches = taken("conditional", branch_computations=(branch, branch))
    with pytest.raises(Violation, match="true_computation and false_computation"):
        OPS["conditional"].infer(Shape.array("pred"), x, x, **branches)
    with pytest.raises(Violation, match="pred\\[\\] or s32\\[\\]"):
        OPS["conditional"].infer(Shape.array("u32"), x, x, **branches)


def test_every_row_explains_itself_and_evaluates() -> None:
    for opcode, row in OPS.items():
        assert row.__doc__, f"{opcode} has no docstring"
        assert hasattr(row, "infer"), f"{opcode} cannot infer"
        if opcode not in ("parameter", "constant"):
            assert hasattr(row, "evaluate"), f"{opcode} cannot evaluate"
    assert len(OPS) == 133
