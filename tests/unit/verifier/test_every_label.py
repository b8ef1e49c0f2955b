"""Every constraint C1.. of an op's docstring, and every rule V.., has a test that fails it.

The labels that the cases of tests/ops, tests/golden/verifier and the unit tests fail are collected
by failing them once more; what is left over must stand in ELSEWHERE with its reason.
"""

import re
from pathlib import Path

import pytest

from hlo.driver import parse, verify
from hlo.errors import HloError, HloErrors, Violation
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import ProgramShape, Shape
from hlo.ops.table import OPS
from hlo.parser.parse import parse_shape
from tests.support.op_files import cases
from tests.support.readings import taken
from tests.unit.ops.test_constraints import ADD, CASES, DOT, GATHER, PERMUTE, SCATTER
from tests.unit.ops.test_inference import REFUSED

ROOT = Path(__file__).parents[3]
LABEL = re.compile(r"\bC(\d+)(?:\s*-\s*C?(\d+))?(?=[ :,)(])")
SAID = re.compile(r"^([\w-]+): .*\((\w+)\)$", re.DOTALL)

SCALAR, PAIR = parse_shape("f32[]"), parse_shape("f32[2]")
IDENTITY = ProgramShape((PAIR,), PAIR)
RAGGED = {**DOT, "lhs_ragged_dims": (0,), "rhs_group_dims": (), "shape": None}
PLAIN = {**DOT, "algorithm": "unset", "shape": None}
BATCHED = {"lhs_batch_dims": (0,), "rhs_batch_dims": ()}
ASYNC = {"calls": IDENTITY}

MORE = [
    # (opcode, operand shapes, attributes, label): what tests/ops does not fail
    ("all-gather-start", [], {**GATHER, "shape": parse_shape("(f32[2], f32[4])")}, "C1"),
    ("all-gather-start", ["f32[2]"],
     {**GATHER, "dimensions": (1,), "shape": parse_shape("(f32[2], f32[4])")}, "C2"),
    ("ragged-dot", ["(f32[2])", "f32[2]", "s32[1]"], RAGGED, "C2"),
    ("ragged-dot", ["f32[2,3]", "f32[2,3]", "s32[1]"], {**RAGGED, **BATCHED}, "C6"),
    ("scaled-dot", ["(f32[2])", "f32[2]", "f32[]", "f32[]"], PLAIN, "C2"),
    ("convert", ["(f32[2])"], {"shape": PAIR}, "C1"),
    ("convert", ["f32[2]"], {"shape": parse_shape("(s32[2])")}, "C1"),
    ("bitcast-convert", ["token[]"], {"shape": PAIR}, "C2"),
    ("stochastic-convert", ["f32[2]", "u32[2]"], {"shape": parse_shape("u8[2]")}, "C3"),
    ("conditional", ["u32[]", "f32[2]"], {"branch_computations": (IDENTITY,)}, "C1"),
    ("conditional", [], {"branch_computations": ()}, "C2"),
    ("conditional", ["s32[]", "f32[2]"], {"branch_computations": (IDENTITY, IDENTITY)}, "C2"),
    ("async-start", ["f32[2]"], {**ASYNC, "shape": PAIR}, "C1"),
    ("async-start", ["f32[3]"], {**ASYNC, "shape": parse_shape("((f32[3]), f32[2])")}, "C2"),
    ("async-start", ["f32[2]"], {**ASYNC, "shape": parse_shape("((f32[2]), f32[3])")}, "C3"),
    ("async-update", ["f32[2]"], {}, "C1"),
    ("async-done", ["(f32[2])"], {}, "C1"),
    ("compare", ["f32[2]", "(f32[2])"], {"direction": "EQ"}, "C2"),
    ("clamp", ["f32[]", "(f32[2])", "f32[]"], {}, "C2"),
    ("collective-permute-start", [], {**PERMUTE, "shape": parse_shape("(f32[2], f32[2])")}, "C1"),
    ("collective-permute-start", ["f32[2]"],
     {**PERMUTE, "source_target_pairs": ((0, 1, 2),), "shape": parse_shape("(f32[2], f32[2])")},
     "C2"),
]  # fmt: skip

# Labels whose violation is reported under another name, and the test that demands it.
ELSEWHERE = {
    ("parameter", "C1"): "V5: test_gap_in_parameter_numbers, the parser's own errors",
    ("constant", "C1"): "V20: test_written_shape_is_compared",
    ("fusion", "C2"): "V20: test_written_shape_is_compared",
    ("copy-start", "C1"): "V20: test_written_shape_is_compared",
    ("rng-get-and-update-state", "C1"): "V20: test_written_shape_is_compared",
    ("custom-call", "C1"): "the parser: test_parser_refuses",
    ("rng-bit-generator", "C1"): "the parser: test_parser_refuses",
    ("scatter", "C10"): "R1 to R7, the rules of reducers: test_reducer_rules",
}
# Rules that are the parser's alone, or whose code is another's.
RULES_ELSEWHERE = {
    "V1": "test_structure, with graphs that no text can say",
    "V2": "test_structure, with graphs that no text can say",
    "V3": "test_structure, with graphs that no text can say",
    "V4": "test_structure, with graphs that no text can say",
    "V5": "test_structure, with graphs that no text can say",
    "V51": "test_done_of_no_chain: the parser meets it first",
    "V64": "test_structure, with graphs that no text can say",
    "V8": "test_missing_attribute, test_unknown_opcode",
    "V9": "test_operand_count",
    "V11": "test_call_attribute_on_an_op_that_calls_nothing",
    "V26": "test_constant_without_a_literal",
}


def declared() -> set[tuple[str, str]]:
    """Opcode and label of all constraints that docstrings state."""
    found = {(opcode, label) for opcode, row in OPS.items() for label in row.constraints}
    for opcode, row in OPS.items():
        for first, last in LABEL.findall(row.__doc__ or ""):
            found |= {(opcode, f"C{n}") for n in range(int(first), int(last or first) + 1)}
    return found


def counted() -> set[tuple[str, str]]:
    """Those that only count operands: the verifier's rule V9 for all ops alike."""
    words = r"C1: (?:two|three|four) operands\."
    told = {(o, "C1") for o, row in OPS.items() if re.search(words, row.__doc__ or "")}
    return told | {(o, "C1") for o, row in OPS.items() if row.constraints}


def errors_of(text: str, *, layout_sensitive: bool = False) -> tuple[HloError, ...]:
    try:
        verify(parse(text), layout_sensitive=layout_sensitive)
    except HloErrors as errors:
        return errors.errors
    except HloError as error:
        return (error,)
    return ()


def failed() -> set[tuple[str, str]]:
    """Opcode and label of all constraints that some case of the tests fails."""
    found = {(row[0], row[-1]) for row in (*CASES, *REFUSED, *MORE)}
    texts = [case.text for case in cases() if " " in (case.one("ERROR") or "")]
    for file in sorted((ROOT / "tests/golden/verifier").glob("*.hlo")):
        texts += re.split(r"^// -----.*\n", file.read_text(), flags=re.MULTILINE)
    for text in texts:
        sensitive = "layout-sensitive" in text.split("\n")[0]
        found |= {m.groups() for e in errors_of(text, layout_sensitive=sensitive)
                  if (m := SAID.match(e.message))}  # fmt: skip
    return found  # type: ignore[return-value]  # pairs


def test_every_constraint_fails_somewhere() -> None:
    missing = declared() - failed() - row_failures() - counted() - ELSEWHERE.keys()
    assert not missing, sorted(missing)
    assert declared() >= ELSEWHERE.keys()


def test_every_rule_of_the_verifier_fails_somewhere() -> None:
    code = "".join(f.read_text() for f in (ROOT / "hlo/verifier").glob("*.py"))
    rules = set(re.findall(r'"(V\d+|MP)"', code))
    missing = rules - {label for _, label in failed()} - RULES_ELSEWHERE.keys()
    assert not missing, sorted(missing)


@pytest.mark.parametrize(("opcode", "operands", "attributes", "label"), MORE)
def test_constraint_that_fails(
    opcode: str, operands: list[str], attributes: dict[str, object], label: str
) -> None:
    with pytest.raises(Violation) as raised:
        OPS[opcode].infer(*map(parse_shape, operands), **taken(opcode, **attributes))
    assert raised.value.constraint == label


def module_of(
    opcode: str, operands: int, shape: Shape = PAIR, **attributes: object
) -> tuple[Module, Instruction]:
    """A module with one instruction on equal parameters."""
    entry = Computation("e")
    parameters = [
        entry.new("parameter", PAIR, (), {"parameter_number": k}) for k in range(operands)
    ]
    made = entry.new(opcode, shape, parameters, attributes)
    module = Module("m")
    module.add(entry, entry=True)
    return module, made


def problems(module: Module) -> list[str]:
    with pytest.raises(HloErrors) as raised:
        verify(module)
    return [e.message for e in raised.value.errors]


@pytest.mark.parametrize("opcode", [o for o, row in OPS.items() if row.arity is not None])
@pytest.mark.parametrize("surplus", [-1, 1])
def test_operand_count(opcode: str, surplus: int) -> None:
    arity = OPS[opcode].arity
    assert arity is not None
    if arity + surplus < 0 or opcode == "parameter":
        return
    module, _ = module_of(opcode, arity + surplus)
    expected = f"{opcode}: {arity + surplus} operands, expected {arity} (V9)"
    assert expected in problems(module)


def test_missing_attribute() -> None:
    module, _ = module_of("iota", 0)
    assert problems(module) == ["iota: no attribute iota_dimension, expected it to be given (V8)"]


def test_unknown_opcode() -> None:
    module, made = module_of("negate", 1)
    made.opcode = "negat"
    assert problems(module) == ["negat: no opcode, expected an opcode (V8)"]


def test_constant_without_a_literal() -> None:
    module, _ = module_of("constant", 0)
    assert problems(module) == ["constant: no literal, expected a value (V26)"]


def test_call_attribute_on_an_op_that_calls_nothing() -> None:
    callee = Computation("f")
    callee.new("parameter", PAIR, (), {"parameter_number": 0})
    module, made = module_of("negate", 1)
    module.add(callee)
    made.attributes["to_apply"] = callee
    assert any(m.endswith("(V11)") for m in problems(module))


def test_done_of_no_chain() -> None:
    chain = Shape.tuple((Shape.tuple((PAIR,)), PAIR))
    entry = Computation("e")
    p = entry.new("parameter", chain, (), {"parameter_number": 0})
    made = entry.new("opt-barrier", chain, (entry.new("negate", PAIR, (p,)),))
    entry.new("async-done", PAIR, (made,))
    made.opcode = "negate"
    module = Module("m")
    module.add(entry, entry=True)
    assert any(m.endswith("(V51)") for m in problems(module))


CALLED = "f { a = f32[2] parameter(0)\n ROOT r = f32[2] negate(a) }\n"


@pytest.mark.parametrize(
    "line",
    [
        "f32[3] constant({1, 2})",
        "f32[3] fusion(p), kind=kLoop, calls=f",
        "(f32[2], f32[3], u32[]) copy-start(p)",
        "u64[3] rng-get-and-update-state(), delta=1",
    ],
)
def test_written_shape_is_compared(line: str) -> None:
    text = f"HloModule m\n{CALLED}ENTRY e {{ p = f32[2] parameter(0)\n ROOT r = {line} }}"
    assert errors_of(text)


@pytest.mark.parametrize(
    "line",
    [
        'f32[2]{0} custom-call(p), custom_call_target="x", operand_layout_constraints={}',
        "(u64[2], u32[4]) rng-bit-generator(p), algorithm=rng_mersenne",
    ],
)
def test_parser_refuses(line: str) -> None:
    with pytest.raises(HloError):
        parse(f"HloModule m\nENTRY e {{ p = u64[2]{{0}} parameter(0)\n ROOT r = {line} }}")


F64, S32 = Shape.array("f64"), Shape.array("s32")
WRONG_REDUCERS = {
    "R3": ProgramShape((SCALAR, SCALAR), S32),
    "R1": ProgramShape((SCALAR,), SCALAR),
    "R2": ProgramShape((SCALAR, SCALAR), Shape.tuple((SCALAR, SCALAR))),
    "R5": ProgramShape((SCALAR, S32), SCALAR),
}


@pytest.mark.parametrize("rule", WRONG_REDUCERS)
@pytest.mark.parametrize("opcode", ["reduce", "scatter"])
def test_reducer_rules(opcode: str, rule: str) -> None:
    operands, attributes = {
        "reduce": ((PAIR, SCALAR), {"dimensions": (0,)}),
        "scatter": ((PAIR, parse_shape("s32[4,1]"), parse_shape("f32[4]")), SCATTER),
    }[opcode]
    keywords = taken(opcode, **{**attributes, "to_apply": WRONG_REDUCERS[rule]})
    with pytest.raises(Violation) as raised:
        OPS[opcode].infer(*operands, **keywords)
    assert raised.value.code == "call-signature"


ROWS = [o for o, row in OPS.items() if row.constraints]
KINDS = ("pred", "s32", "u32", "f32", "c64")
ROW_ATTRIBUTES: dict[str, dict[str, object]] = {
    "compare": {"direction": "EQ"},
    "reduce-precision": {"exponent_bits": 5, "mantissa_bits": 5},
}


def row_label(opcode: str, *shapes: str) -> str:
    """Which constraint of an elementwise row operands of these shapes break; empty: none."""
    row, operands = OPS[opcode], [*map(parse_shape, shapes)]
    attributes = taken(opcode, **ROW_ATTRIBUTES.get(opcode, {}))
    try:
        row.check(*operands, shape=row.infer(*operands, **attributes), **attributes)
    except Violation as violation:
        return violation.constraint
    return ""


def row_labels(opcode: str) -> set[str]:
    """The labels that wrong operands of an elementwise row can break, and a right one does not."""
    binary = OPS[opcode].arity == 2
    other = next(f"{k}[2]" for k in KINDS if not row_label(opcode, *[f"{k}[2]"] * (1 + binary)))
    wrong = [["(f32[2])"], ["token[]"], *([f"{k}[2]"] for k in KINDS)]
    if binary:
        wrong = [[other, "(f32[2])"], *([f"{k}[2]"] * 2 for k in KINDS),
                 [other, other.replace("2]", "3]")], [other, "s8[2]"],
                 [other, "f64[3]"]]  # fmt: skip
    return {row_label(opcode, *shapes) for shapes in wrong} - {""}


@pytest.mark.parametrize("opcode", ROWS)
def test_rows_refuse_under_their_labels(opcode: str) -> None:
    """C3 (of one operand) and C5 (of two) cannot fail where every kind has a function."""
    expected = {"C2", "C3", "C4"} if OPS[opcode].arity == 2 else {"C2"}
    assert row_labels(opcode) >= expected
    assert ("C7" in OPS[opcode].constraints) == ("C7" in row_labels(opcode))
    label = "C5" if OPS[opcode].arity == 2 else "C3"
    assert every_kind(opcode) or label in row_labels(opcode)


def row_failures() -> set[tuple[str, str]]:
    """Of the rows, with what no operand can break: result dimensions (V20), a kind without end."""
    can = {(o, label) for o in ROWS for label in row_labels(o)}
    cannot = {(o, "C4") for o in ROWS if OPS[o].arity == 1}
    return can | cannot | {(o, k) for o in ROWS for k in ("C3", "C5") if every_kind(o)}


def every_kind(opcode: str) -> bool:
    """Whether infer takes all kinds of numbers (and check, as C7, refuses what means nothing)."""
    labels = {row_label(opcode, *[f"{k}[2]"] * (OPS[opcode].arity or 1)) for k in KINDS}
    return labels <= {"", "C7"}


def test_sum_is_a_reducer_of_the_cases() -> None:
    attributes = taken("reduce", dimensions=(0,), to_apply=ADD)
    assert OPS["reduce"].infer(PAIR, SCALAR, **attributes) == SCALAR
