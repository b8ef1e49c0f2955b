"""Every rule V1 to V84 of docs/control.md 6 is enforced: by a program that breaks it.

Rules whose label stands in hlo/verifier fail in test_every_label; here are those that the parser or
an op's own constraints enforce, under their codes.
"""

import re
from pathlib import Path

import pytest

from hlo.verifier.rules import rule_pages
from tests.support.command import call
from tests.unit.verifier.test_every_label import errors_of

ROOT = Path(__file__).parents[3]
HEAD = "HloModule m\n"
F = "f { a = f32[2] parameter(0)\n ROOT n = f32[2] negate(a) }\n"
G = "g { a = s32[2] parameter(0)\n ROOT n = s32[2] negate(a) }\n"
SUM = "sum { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] add(a, b) }\n"
P = "p = f32[2] parameter(0)\n"


def entry(body: str, computations: str = "") -> str:
    return f"{HEAD}{computations}ENTRY e {{ {body} }}"


# Where what follows from operands is asked first.
OTHERWISE = {"V26": "V20"}

# rule: (code, program). Rules with several clauses have one row each.
PROGRAMS = [
    ("V1", "syntax", HEAD + "ENTRY e { ROOT p = f32[] parameter(0) }\nENTRY d { ROOT p = f32[] parameter(0) }"),
    ("V2", "duplicate-name", entry(P + "p = f32[2] negate(p)")),
    ("V2", "duplicate-name", HEAD + F + F + "ENTRY e { ROOT p = f32[] parameter(0) }"),
    ("V3", "unknown-name", entry("ROOT r = f32[2] negate(q)")),
    ("V3", "unknown-name", entry(P + "ROOT r = f32[2] call(p), to_apply=g")),
    ("V3", "unknown-name", entry(P + "ROOT r = f32[2] negate(p), control-predecessors={q}")),
    ("V4", "", entry(P + "ROOT q = f32[2] negate(p)\n ROOT r = f32[2] negate(p)")),
    ("V4", "", HEAD + "ENTRY e { }"),
    ("V5", "", entry("ROOT p = f32[2] parameter(-1)")),
    ("V5", "", entry(P + "ROOT q = f32[2] parameter(0)")),
    ("V5", "", entry("ROOT q = f32[2] parameter(1000000)")),
    ("V6", "", HEAD + "ENTRY e (p: f32[2]) -> f32[3] { " + P + "ROOT q = f32[2] negate(p) }"),
    ("V7", "", entry(P + "ROOT r = f32[2] negate(f32[3] p)")),
    ("V8", "attribute-unknown", entry(P + "ROOT r = f32[2] negate(p), dimensions={0}")),
    ("V8", "attribute-missing", entry(P + "ROOT r = f32[2] transpose(p)")),
    ("V8", "", entry(P + "ROOT r = f32[2] transpose(p), dimensions={0}, dimensions={0}")),
    ("V9", "arity", entry(P + "ROOT r = f32[2] add(p, p, p)")),
    ("V9", "arity", entry(P + "ROOT r = f32[] reduce(p), dimensions={0}, to_apply=sum", SUM)),
    ("V12", "nesting", entry("ROOT p = " + "(" * 700 + "f32[]" + ")" * 700 + " parameter(0)")),
    ("V21", "mixed-precision", entry(P + "q = bf16[2] parameter(1)\n ROOT r = f32[2] add(p, q)")),
    ("V22", "shape-mismatch", entry(P + "q = f32[1] parameter(1)\n ROOT r = f32[2] add(p, q)")),
    ("V22", "attribute-value", entry(P + "ROOT r = pred[2] compare(p, p), direction=LT, type=SIGNED")),
    ("V23", "", entry("p = (f32[2]) parameter(0)\n ROOT r = f32[2] get-tuple-element(p), index=3")),
    ("V23", "", entry("p = (f32[2]) parameter(0)\n ROOT r = f32[2] get-tuple-element(p), index=-1")),
    ("V23", "", entry(P + "ROOT r = f32[2] get-tuple-element(p), index=0")),
    ("V24", "shape-mismatch", entry(P + "ROOT r = f32[3] broadcast(p), dimensions={0}")),
    ("V24", "", entry("p = f32[2,2] parameter(0)\n ROOT r = f32[2,2] broadcast(p), dimensions={0,0}")),
    ("V24", "", entry(P + "ROOT r = s32[2] broadcast(p), dimensions={0}")),
    ("V25", "", entry(P + "ROOT r = f32[3] reshape(p)")),
    ("V25", "", entry(P + "ROOT r = f32[<=2] dynamic-reshape(p)")),
    ("V25", "", entry(P + "ROOT r = s32[2] reshape(p)")),
    ("V26", "", entry("p = f32[2,3] parameter(0)\n ROOT r = f32[2,3] transpose(p), dimensions={1,0}")),
    ("V26", "", entry("ROOT r = pred[2] iota(), iota_dimension=0")),
    ("V26", "", entry("ROOT r = f32[2] constant({1, 2, 3})")),
    ("V27", "attribute-unknown", entry(P + "ROOT r = f32[2] negate(p), result_accuracy={mode=highest}")),
    ("V27", "", entry("ROOT p = f32[2,3]{0} parameter(0)")),
    ("V31", "", entry(P + "ROOT r = f32[2] all-reduce(p), use_global_device_ids=true, to_apply=sum", SUM)),
    ("V33", "", entry(P + "ROOT r = f32[4] all-gather(p), dimensions={1}")),
    ("V33", "", entry(P + "ROOT r = (f32[2], f32[2], f32[4]) all-gather-start(p), dimensions={0}")),
    ("V34", "", entry(P + "ROOT r = f32[2] reduce-scatter(p), dimensions={1}, to_apply=sum", SUM)),
    ("V35", "", entry("p = f32[<=4] parameter(0)\n ROOT r = f32[<=4] all-to-all(p), dimensions={0}")),
    ("V35", "", entry(P + "q = f32[3] parameter(1)\n ROOT r = (f32[2], f32[3]) all-to-all(p, q)")),
    ("V36", "", entry(P + "ROOT r = f32[2] collective-permute(p), source_target_pairs={{0,1,2}}")),
    ("V36", "", entry(P + "ROOT r = f32[2] collective-permute(p), source_target_pairs={{0,1},{0,2}}")),
    ("V36", "", entry(P + "ROOT r = f32[2] collective-permute(p), source_target_pairs={{-1,1}}")),
    ("V37", "", entry("p = token[] after-all()\n ROOT r = token[] collective-broadcast(p), replica_groups={}")),
    ("V39", "call-signature", entry(P + "ROOT r = f32[2] all-reduce(p), to_apply=f", F)),
    ("V40", "call-signature", entry(P + "ROOT r = f32[2] call(p, p), to_apply=f", F)),
    ("V40", "attribute-unknown", entry(P + "ROOT r = f32[2] call(p), to_apply=f, output_to_operand_aliasing={{}: (0, {})}", F)),
    ("V41", "call-signature", entry(P + "ROOT r = f32[2] while(p), condition=f, body=f", F)),
    ("V42", "", entry("i = s64[] parameter(1)\n" + P + "ROOT r = f32[2] conditional(i, p), branch_computations={f}", F)),
    ("V42", "", entry("i = pred[] parameter(1)\n" + P + "ROOT r = f32[2] conditional(i, p), branch_computations={f}", F)),
    ("V42", "", entry("i = s32[] parameter(1)\n" + P + "ROOT r = f32[2] conditional(i, p, p), branch_computations={f}", F)),
    ("V42", "call-signature", entry("i = s32[] parameter(1)\n" + P + "ROOT r = f32[2] conditional(i, p), branch_computations={g}", G)),
    ("V43", "call-signature", entry(P + "ROOT r = f32[2] sort(p), dimensions={0}, to_apply=sum", SUM)),
    ("V43", "", entry(P + "ROOT r = f32[2] sort(p), dimensions={0,0}, to_apply=sum", SUM)),
    ("V43", "", entry(P + "z = f32[] parameter(1)\n ROOT r = f32[] reduce(p, z), dimensions={0,0}, to_apply=sum", SUM)),
    ("V44", "", entry(P + "ROOT r = f32[2] fusion(p), kind=kFoo, calls=f", F)),
    ("V44", "call-signature", entry(P + "ROOT r = f32[2] fusion(p, p), kind=kLoop, calls=f", F)),
    ("V45", "", entry("p = f32[3] parameter(0)\n i = s32[1] parameter(1)\n ROOT r = f32[1] gather(p, i), offset_dims={0}, collapsed_slice_dims={}, start_index_map={7}, index_vector_dim=0, slice_sizes={1}")),
    ("V46", "", entry(P + "s = ((f32[2]), f32[2]) async-start(p), calls=f, async_execution_thread=\"t\"\n ROOT d = f32[2] async-done(s), async_execution_thread=\"u\"", F)),
    ("V48", "attribute-missing", entry(P + "ROOT r = f32[2] custom-call(p)")),
    ("V48", "", entry(P + 'ROOT r = f32[2] custom-call(p), custom_call_target="x", api_version=API_VERSION_UNSPECIFIED')),
    ("V50", "shape-mismatch", entry(P + "s = (f32[2], f32[2]) async-start(p), calls=f\n ROOT d = f32[2] async-done(s)", F)),
    ("V51", "async-chain", entry(P + "ROOT d = f32[2] async-done(p)")),
    ("V51", "async-chain", entry(P + "s = ((f32[2]), f32[2]) async-start(p), calls=f\n d = f32[2] async-done(s)\n ROOT c = f32[2] async-done(d)", F)),
    ("V54", "", entry(P + "s = ((f32[2]), f32[2]) negate-start(p)\n ROOT d = f32[2] sine-done(s)")),
    ("V54", "unknown-opcode", entry(P + "ROOT d = f32[2] all-reduce-update(p)")),
    ("V56", "", entry("k = token[] after-all()\n ROOT s = f32[2] recv(k), channel_id=1")),
    ("V56", "", entry("k = token[] after-all()\n ROOT s = () recv(k), channel_id=1")),
    ("V56", "", entry("k = token[] after-all()\n ROOT s = f32[2] infeed(k)")),
    ("V59", "", entry(P + "ROOT r = (f32[2], token[]) infeed(p)")),
    ("V59", "", entry(P + "ROOT r = token[] outfeed(p, p), outfeed_shape=f32[2]")),
    ("V59", "", entry(P + "ROOT r = f32[2] add-dependency(p, p)")),
    ("V59", "", entry(P + "ROOT r = token[] after-all(p)")),
    ("V60", "unknown-name", entry(P + "ROOT r = f32[2] negate(p), control-predecessors={n}", F)),
    ("V62", "", "HloModule m, input_output_alias={ {}: (0, {}, maybe-alias) }\nENTRY e { ROOT p = f32[2] parameter(0) }"),
    ("V62", "", "HloModule m, input_output_alias={ {3}: (0, {}) }\nENTRY e { ROOT p = f32[2] parameter(0) }"),
    ("V62", "", "HloModule m, input_output_alias={ {}: (-1, {}) }\nENTRY e { ROOT p = f32[2] parameter(0) }"),
    ("V65", "", entry(P + "ROOT r = f32[2] negate(p), sharding={devices=[3]0,1}")),
    ("V66", "", entry('ROOT p = f32[2] parameter(0), origin={{"x"},{"y"}}')),
    ("V68", "", entry("ROOT p = (f32[2], f32[2]) parameter(0), parameter_replication={true}")),
    ("V69", "", entry(P + "ROOT r = f32[2] all-reduce(p), mode=whatever, to_apply=sum", SUM)),
# ruff: noqa: E501  # programs in one line
]  # fmt: skip
# No rule of the text, or of other machines: not enforced, and why.
NOT_OURS = {
    "V81": "scans are compiled as they are: no pass has to expand them first",
    "V82": "an option of XLA's that no backend of ours asks for",
    "V83": "an option of XLA's: unsorted dimensions are legal, and transpose (docs/semantics.md 7)",
}


@pytest.mark.parametrize(("rule", "code", "text"), PROGRAMS)
def test_rule_is_enforced(rule: str, code: str, text: str) -> None:
    found = errors_of(text)
    assert found, f"{rule} is not enforced"
    assert not code or code in {e.code for e in found}, [str(e) for e in found]


def test_every_rule_of_the_reference_has_a_program() -> None:
    code = "".join(f.read_text() for f in (ROOT / "hlo/verifier").glob("*.py"))
    enforced = set(re.findall(r'"(V\d+)"', code)) | {rule for rule, *_ in PROGRAMS}
    every = {f"V{n}" for first, last in ((1, 12), (20, 48), (50, 70), (80, 84))
             for n in range(first, last + 1)}  # fmt: skip
    assert every - enforced == NOT_OURS.keys()


@pytest.mark.parametrize("label", rule_pages())
def test_pages_show_what_breaks_the_rule(label: str) -> None:
    page = rule_pages()[label]
    assert page.meaning.endswith((".", "how."))
    if not page.program:
        assert label in ("V11", "V12", "V64")
        return
    found = errors_of(page.program, layout_sensitive=label in ("V29", "V80", "V84"))
    assert found, page.program
    # The parser and the ops' own constraints, which come first, name other labels or none.
    said = {name for e in found for name in re.findall(r"\((V\d+)\)", str(e))}
    assert said <= {label, OTHERWISE.get(label, label)}, said


def test_every_rule_has_a_page() -> None:
    every = set(re.findall(r'"(V\d+)"', "".join(
        f.read_text() for f in (ROOT / "hlo/verifier").glob("*.py")
    )))  # fmt: skip
    assert every | {rule for rule, *_ in PROGRAMS} <= set(rule_pages())
    assert "A program that breaks it" in call("hlo-opt", "explain", "v20").out
