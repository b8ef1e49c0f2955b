"""What patterns read of a line is what the grammar reads of it."""

from __future__ import annotations

import numpy as np
import pytest

from hlo.attributes.metadata import Metadata
from hlo.errors import Violation
from hlo.parser.actions import reading
from hlo.parser.build import ModuleBuilder
from hlo.parser.engine import Fault, Machine
from hlo.parser.parse import fast, parse_shape, precise
from hlo.parser.pieces import Declined, literal_piece
from hlo.parser.printed import printed_literal, printed_metadata, printed_tables
from hlo.printer.options import PrintOptions
from hlo.printer.printer import print_module
from hlo.source import Source

MODULE = """HloModule m

sum {{
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y)
}}

ENTRY main {{
  p = f32[4,4]{{1,0}} parameter(0), metadata={{op_name="p"}}
  c = f32[] constant(0)
  ROOT r = f32[4]{{0}} reduce(p, c){listed}
}}
"""


def _read(listed: str) -> tuple[str | None, str | None]:
    """What fast reading says, None where it declines; and what reading by the grammar says."""
    source = Source("listed", MODULE.format(listed=listed))
    try:
        quick = print_module(fast(source, "module_text"), PrintOptions())
    except Declined:
        quick = None
    try:
        exact = print_module(precise(source, "module_text"), PrintOptions())
    except Exception:  # any error is a verdict
        exact = None
    return quick, exact


CALL = ", dimensions={1}, to_apply=%sum"
METADATA = ', metadata={op_name="a/b" source_line=3}'


@pytest.mark.parametrize(
    "listed",
    [
        CALL,
        CALL + METADATA,
        ", dimensions={1}" + METADATA + ", to_apply=sum",
        ", dimensions={1}, to_apply=sum" + METADATA,
        ", dimensions={1}, to_apply=%sum, to_apply=%sum",
        ", to_apply=%sum, dimensions={1}, to_apply=%sum",
        ", dimensions={1}, to_apply=%none",
        ", dimensions={1}, to_apply=f32",
        ", dimensions={1} // , to_apply=%sum",
        ", dimensions={1} /* , to_apply=%sum",
        ", dimensions={1} /* */, to_apply=%sum",
        CALL + " // , metadata={}",
        CALL + ' // , metadata={op_name="x"}',
        CALL + METADATA + METADATA,
        CALL + METADATA + " ",
        CALL + METADATA + ', frontend_attributes={a="b"}',
        CALL + ', frontend_attributes={a="b, to_apply=%sum',
        CALL + ', frontend_attributes={a=", metadata={op_name="}',
        CALL + ', frontend_attributes={a=", metadata={op_name=\\"b\\"}"}',
        CALL + ', metadata={op_name="a" op_name="b"}',
        CALL + ', metadata={source_line=3 op_name="b"}',
        CALL + ', metadata={op_name="\\q"}',
        CALL + ", metadata={op_name='a'}",
        METADATA + ', backend_config={"a":"}, b=1"}',
        METADATA + ', backend_config={"a":1}, to_apply=%sum, dimensions={1}',
        ", backend_config={a's}, dimensions={1}, to_apply=%sum",
        ", backend_config={a's}, dimensions={1}, to_apply=%sum, frontend_attributes={b='x'}",
        ", dimensions={1}, dimensions={1}, to_apply=%sum",
        ", dimensions={1 /* , to_apply=%sum */}, to_apply=%sum",
        ", dimensions={1},\n  to_apply=%sum",
        ", dimensions={1} , to_apply=%sum",
        ", dimensions={(1)}, to_apply=%sum",
        ", dimensions={1], to_apply=%sum",
        ", dimensions=[1}, to_apply=%sum",
    ],
)
def test_a_list_of_attributes_reads_the_same_both_ways(listed: str) -> None:
    quick, exact = _read(listed)
    assert quick is None or quick == exact


FIELDS = 'op_type="Add", op_name="a/b", source_file="/x.py" source_line=3 source_end_line=4'


@pytest.mark.parametrize(
    ("inside", "found"),
    [
        ("", Metadata()),
        ('op_name="a"', Metadata(op_name="a")),
        (' op_name="a" ', None),
        ('op_name="a\\"b\\\'c"', Metadata(op_name="a\"b'c")),
        ('op_name="a\\"', None),
        ('op_name="\\q"', None),
        (FIELDS, Metadata("Add", "a/b", "/x.py", 3, 4)),
        (FIELDS.replace(",", ""), Metadata("Add", "a/b", "/x.py", 3, 4)),
        ('scheduling_name="s" stack_frame_id=7', Metadata(scheduling_name="s", stack_frame_id=7)),
        ('stack_frame_id=7 op_name="late"', Metadata(op_name="late", stack_frame_id=7)),
        ("stack_frame_id=1234567890", None),
        ("source_line=1e5=3", None),
        ("source_line=-1", Metadata(source_line=-1)),
        ('source_line="1"', None),
        ('op_name="a" op_name="b"', None),
        ("op_name=3", None),
        ("profile_type={1}", None),
    ],
)
def test_metadata_by_a_pattern(inside: str, found: Metadata | None) -> None:
    assert printed_metadata(f", metadata={{{inside}}}") == found


TABLES = """FileNames
1 "a.py"
2 "b\\".py"
FunctionNames
1 "f"
FileLocations
1 {file_name_id=1 function_name_id=1 line=3 end_line=3 column=1 end_column=9}
StackFrames
1 {file_location_id=1 parent_frame_id=1}
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ('1 "a.py"', '1 2 "a.py"'),
        ('1 "a.py"', '"a.py"'),
        ('"a.py"', '"a\n.py"'),
        ('"a.py"', '"\\q"'),
        ("line=3 end_line", "end_line=3 line"),
        ("line=3", "line=12345678901"),
        ("line=3", "line=1e5=3"),
        ("1 {file_l", "1 1 {file_l"),
        ("=9}", "=9} 2 {}"),
        ("FunctionNames", "FunctionName"),
    ],
)
def test_tables_by_patterns_say_what_the_grammar_says(old: str, new: str) -> None:
    tables = TABLES.replace(old, new, 1) if old else TABLES
    found = printed_tables(tables, 0)
    text = f"HloModule m\n\n{tables}\nENTRY e {{\n  ROOT r = f32[] parameter(0)\n}}\n"
    builder = ModuleBuilder(Source("tables", text))
    try:
        with reading(builder) as (actions, callbacks):
            Machine("module_text", text, 0, actions, callbacks).run()
            exact = None if actions.errors else builder.tables
    except Fault:
        exact = None
    assert found is None or found == (exact, len(tables))
    assert found is not None or old


@pytest.mark.parametrize(
    "text",
    ["{1, 2, -0}", "{ 1., 2e5, 1E+2 }", "{-.5, 007, 123456789012345678}", "{1, 2}", "{1, 2 3}",
     "{1, nan, 2}", "{nan(0x5), 1, 2}", "{1,, 2, 3}", "{+1, 2, 3}", "{.5, 1, 2}", "{1e999, 1, 2}",
     "{12345678901234567890, 1, 2}", "{1_0, 2, 3}", "{1x2, 2, 3}"],
)  # fmt: skip
def test_literals_by_a_pattern_say_what_the_grammar_says(text: str) -> None:
    shape = parse_shape("f64[3]{0}")
    quick = printed_literal(text, shape)
    try:
        exact = literal_piece(text, shape)
    except (Fault, Violation):
        exact = None
    assert quick is None or (exact is not None and quick.array.tobytes() == exact.array.tobytes())
    assert quick is not None or text not in ("{1, 2, -0}", "{ 1., 2e5, 1E+2 }")


@pytest.mark.parametrize(
    ("text", "is_quick"),
    [("{{1, 2}, {-3, 4}}", True), ("{ {1,2}, { 3, 4 } }", True), ("{{1, 2}, 3, {4}}", False),
     ("{{1}2, {3, 4}}", False), ("{{1, 2}, 3{, 4}}", False), ("{{1, 2}{3, 4}}", False),
     ("{{1, 2}, {3, 300}}", False), ("{{1, 2}, {3, 4}} 5", False), ("{{1, 2}, {3, ４}}", False)],
)  # fmt: skip
def test_braces_by_a_pattern_say_what_the_grammar_says(text: str, *, is_quick: bool) -> None:
    shape = parse_shape("s8[2,2]{1,0}")
    try:
        quick = printed_literal(text, shape)
    except Violation:
        quick = None
    assert (quick is not None) == is_quick
    if is_quick:
        assert quick.array.tobytes() == literal_piece(text, shape).array.tobytes()


def test_numbers_by_a_pattern_are_what_python_reads() -> None:
    shape = parse_shape("f64[4000]{0}")
    bits = np.random.default_rng(0).integers(0, 1 << 64, shape.size, np.uint64)
    numbers = [x if np.isfinite(x) else 0.0 for x in bits.view(np.float64).tolist()]
    texts = [("%r", "%.9g", "%.17e", "%.3f")[n % 4] % x for n, x in enumerate(numbers)]
    texts = [text if len(text) < 320 else "-0.0" for text in texts]
    found = printed_literal("{" + ", ".join(texts) + "}", shape)
    wanted = [0.0 if text == "-0" else float(text) for text in texts]
    assert found is not None
    assert found.array.tobytes() == np.array(wanted).tobytes()
