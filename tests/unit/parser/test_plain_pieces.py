"""What patterns read of a line is what the grammar reads of it."""

from __future__ import annotations

import gc

import pytest

import hlo.garbage
from hlo.attributes.metadata import Metadata
from hlo.garbage import uncollected
from hlo.parser.parse import fast, precise
from hlo.parser.pieces import Declined
from hlo.parser.plain_metadata import plain_metadata
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
        (FIELDS.replace(",", ""), Metadata("Add", "a/b", "/x.py", 3, 4)),
        (FIELDS, None),
        ('scheduling_name="s" stack_frame_id=7', Metadata(scheduling_name="s", stack_frame_id=7)),
        ("stack_frame_id=1234567890", None),
        ("source_line=-1", None),
        ('stack_frame_id=7 op_name="late"', None),
    ],
)
def test_plain_metadata_reads_the_printed_form_only(inside: str, found: Metadata | None) -> None:
    assert plain_metadata(f", metadata={{{inside}}}") == found


def test_dead_graphs_of_many_readings_are_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hlo.garbage, "LARGE", 100)
    monkeypatch.setattr(hlo.garbage, "MOST_PENDING", 10_000)
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(50):
        with uncollected():
            cycle: list[object] = [[] for _ in range(1000)]
            cycle.append(cycle)
        del cycle
    assert len(gc.get_objects()) - before < 25_000
    assert gc.get_freeze_count() == 0
