"""The printer's own form, equality and limits; XLA's forms are in tests/differential."""

import pytest
from msgspec.structs import replace

from hlo.errors import HloError
from hlo.ir.computation import Computation
from hlo.ir.module import Module
from hlo.ir.names import NameTable, sanitised, unique_names
from hlo.ir.shape import Shape
from hlo.parser.parse import parse
from hlo.printer.equality import difference
from hlo.printer.module_printer import ModulePrinter
from hlo.printer.options import PrintOptions

CALLEE_OF_A_BRANCH = """HloModule m
b { x = f32[] parameter(0) }
a { y = f32[] parameter(0)
  ROOT c = f32[] call(y), to_apply=b }
ENTRY e { p = pred[] parameter(0)
  q = f32[] parameter(1)
  ROOT r = f32[] conditional(p, q, q), true_computation=a, false_computation=b }
"""
LONE_PARAMETER = """HloModule m
g { ROOT x = f32[4] parameter(0) }
ENTRY e { p = f32[4] parameter(0)
  s = ((f32[4]), f32[4]) async-start(p), calls=g
  ROOT d = f32[4] async-done(s) }
"""
RAW_NAME = r"""HloModule m
ENTRY e { ROOT p = f32[] parameter(0), metadata={scheduling_name="a\"b"} }
"""

PADDED_NUMBER = """HloModule m
ENTRY e { x = f32[] parameter(0)
  y = f32[] pad(x, x), padding=
  ROOT z = f32[] pad(y, x), padding=, metadata={op_name="a"} }
"""


def test_the_padding_of_a_number_reads_back() -> None:
    module = parse(PADDED_NUMBER)
    assert difference(module, parse(module.to_text())) is None


@pytest.mark.parametrize("text", [CALLEE_OF_A_BRANCH, LONE_PARAMETER, RAW_NAME])
def test_our_form_reads_back_where_xla_does_not(text: str) -> None:
    module = parse(text)
    assert difference(module, parse(module.to_text())) is None
    with pytest.raises(HloError):
        parse(module.to_text(PrintOptions.xla_default()))


def test_default_form_has_full_constants() -> None:
    numbers = "{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}"
    module = parse(f"HloModule m\nENTRY e {{ c = s32[12] constant({numbers}) }}")
    assert f"constant({numbers})" in str(module)
    assert "constant({...})" in module.to_text(PrintOptions.xla_default())


def test_fingerprint_keeps_essential_constants_only() -> None:
    body = "c = {} constant({})"
    for shape, value, shown in [
        ("f32[3]", "{0, 0, 0}", "0"),
        ("f32[3]", "{0, -0.0, 0}", "{...}"),
        ("c64[1]", "{(1, 0)}", "1"),
        ("s8[2]", "{2, 3}", "{2, 3}"),
        ("(s32[], s32[])", "(0, 0)", "( 0, 0 )"),
    ]:
        module = parse("HloModule m\nENTRY e { " + body.format(shape, value) + " }")
        assert f"constant({shown})" in module.to_text(PrintOptions.fingerprint())


def test_ambiguous_names_are_made_unique_in_the_text_alone() -> None:
    module = Module("m")
    entry = module.add(Computation("e"), entry=True)
    shape = Shape.array("f32", (2,))
    p = entry.new("parameter", shape, attributes={"parameter_number": 0}, name="x")
    entry.new("negate", shape, (p,)).name = "x"
    text = str(module)
    assert "%x = f32[2]{0} parameter(0)" in text
    assert "ROOT %x.1 = f32[2]{0} negate(%x)" in text
    assert [i.name for i in entry.instructions] == ["x", "x"]
    assert difference(module, parse(text)) is None


def test_names_follow_xla() -> None:
    table = NameTable()
    given = ["p.1", "p.1", "p.1", "a.01", "p", "p", "q", "q", "a.99999999999999999999"]
    expected = ["p.1", "p.0", "p.2", "a.1", "p.3", "p.4", "q", "q.1", "a.99999999999999999999"]
    assert [table.unique(name) for name in given] == expected
    names = ["f32", "__x", "__xla_x", "1a", "a b", "tuple"]
    assert list(map(sanitised, names)) == ["f32_", "a_x", "__xla_x", "_a", "a_b", "tuple"]


def test_unique_names_renames_in_module_order() -> None:
    module = parse("HloModule m\na { x = f32[] parameter(0) }\nENTRY e { x = f32[] parameter(0) }")
    module.computations[1].instructions[0].name = "x"
    unique_names(module)
    assert [c.instructions[0].name for c in module.computations] == ["x", "x.1"]


def test_difference_names_the_place() -> None:
    text = "HloModule m\nENTRY e {{ p = f32[3] parameter(0)\n ROOT r = f32[3] {}(p) }}"
    found = difference(parse(text.format("negate")), parse(text.format("abs")))
    assert found == "r = f32[3]{0} negate\nr = f32[3]{0} abs"


def test_equal_up_to_names_and_the_order_of_independent_lines() -> None:
    first = "HloModule m\nENTRY e { p = f32[3] parameter(0)\n a = f32[3] abs(p)\n"
    first += " n = f32[3] negate(p)\n ROOT r = f32[3] add(a, n) }"
    second = "HloModule o\nENTRY main { q = f32[3] parameter(0)\n y = f32[3] negate(q)\n"
    second += " x = f32[3] abs(q)\n ROOT z = f32[3] add(x, y) }"
    assert difference(parse(first), parse(second)) is None
    assert difference(parse(first), parse(second.replace("add(x, y)", "add(y, x)"))) is not None


def test_a_scheduled_module_differs_by_its_order() -> None:
    lines = [" a = f32[3] abs(p)\n", " n = f32[3] negate(p)\n"]
    head = "HloModule m, is_scheduled=true\nENTRY e { p = f32[3] parameter(0)\n"
    tail = " ROOT r = f32[3] add(a, n) }"
    first, second = (parse(head + "".join(order) + tail) for order in (lines, lines[::-1]))
    assert "schedules differ" in str(difference(first, second))


def test_deep_calls_do_not_recurse() -> None:
    depth = 1200
    parts = ["d0 { p = f32[] parameter(0) }"]
    parts += [
        f"d{k} {{ p = f32[] parameter(0)\n ROOT r = f32[] call(p), to_apply=d{k - 1} }}"
        for k in range(1, depth)
    ]
    module = parse("HloModule m\n" + "\n".join(parts))
    assert difference(module, parse(str(module))) is None
    assert module.to_text(PrintOptions.xla_default()).count("to_apply=") == depth - 1


def test_exponential_bodies_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hlo.printer.module_printer.LARGEST_FORM", 100_000)
    parts = ["d0 { p = f32[] parameter(0) }"]
    parts += [
        f"d{k} {{ p = f32[] parameter(0)\n a = f32[] call(p), to_apply=d{k - 1}\n"
        f" ROOT b = f32[] call(a), to_apply=d{k - 1} }}"
        for k in range(1, 20)
    ]
    with pytest.raises(HloError, match="full bodies"):
        parse("HloModule m\n" + "\n".join(parts)).to_text(PrintOptions.canonical())


def test_what_newer_xla_writes_comes_back() -> None:
    text = (
        "HloModule m, entry_computation_layout={(s32[1])->s32[1]},\n"
        'debug_attributes={\n  {"A"}:({log_mode=default,callback_id=1,partitioned=false}),\n'
        '  {"B" {1}}:({op_id=7})\n}\n\n'
        "ENTRY %e (c: s32[1]) -> s32[1] {\n"
        "  ROOT %c = s32[1]{0} parameter(0), "
        "sharding={mesh['x'=2], [{}], unreduced=max{'x'}}\n}\n\n"
    ).replace("s32[1])->s32[1]}", "s32[1]{0})->s32[1]{0}}")
    assert parse(text).to_text(PrintOptions.xla_default()) == text
    assert str(parse(text)) == text


def test_texts_are_cached_by_value() -> None:
    module = parse('HloModule m\nENTRY e { ROOT p = f32[] parameter(0), metadata={op_name="a"} }')
    writer = ModulePrinter(module, replace(PrintOptions(), print_percent=False))
    assert writer.computation(module.entry) == writer.computation(module.entry)


def test_a_number_that_counts_as_none_is_told_from_the_bare_name() -> None:
    module = parse("ENTRY e { c = f32[] constant(1)\n ROOT d = f32[] negate(c) }")
    module.entry.root.name = "c.0"
    text = module.to_text()
    assert parse(text).to_text() == text
