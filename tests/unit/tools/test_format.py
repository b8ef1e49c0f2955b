"""fmt keeps comments with what they stood over or behind, and is stable."""

from __future__ import annotations

import textwrap

from hlo.parser.comments import comments
from hlo.parser.parse import parse
from hlo.printer.equality import difference
from hlo.tools.editors.format import formatted

WRITTEN = """\
// top
HloModule m, entry_computation_layout={(f32[2])->f32[2]} // on the header

// about add
add { // head
  a = f32[] parameter(0) /* one */ // two
  // over b
  b = f32[] parameter(1)

  /* two
     lines */
  ROOT r = f32[] add(a, // inside
     b)
  // at the end
} // closing

/* the entry */
ENTRY e {
  p = f32[2]{0} parameter(0), backend_config={"url":"http://x"}
  // CHECK: tuple
  t = (f32[2]{0}, /*index=1*/f32[2]{0}) tuple(p, p)
  ROOT g = f32[2]{0} get-tuple-element(t), index=0
}
// bottom
"""
KEPT = """\
// top
HloModule m, entry_computation_layout={(f32[2]{0})->f32[2]{0}}  // on the header

// about add
%add (a: f32[], b: f32[]) -> f32[] {  // head
  %a = f32[] parameter(0)  /* one */  // two
  // over b
  %b = f32[] parameter(1)
  /* two
     lines */
  ROOT %r = f32[] add(%a, %b)  // inside
  // at the end
}  // closing

/* the entry */
ENTRY %e (p: f32[2]) -> f32[2] {
  %p = f32[2]{0} parameter(0), backend_config={"url":"http://x"}
  // CHECK: tuple
  %t = (f32[2]{0}, f32[2]{0}) tuple(%p, %p)
  ROOT %g = f32[2]{0} get-tuple-element(%t), index=0
}

// bottom
"""


def test_comments_stay_with_their_lines() -> None:
    module = parse(WRITTEN)
    text, dropped = formatted(module)
    assert text.rstrip("\n") == KEPT.rstrip("\n")
    assert dropped == []
    again = parse(text)
    assert difference(module, again) is None
    assert formatted(again) == (text, [])


def test_comments_without_a_place_are_named() -> None:
    text = textwrap.dedent(
        """
        g {
          // inside what is printed as sugar
          q = f32[2] parameter(0)
          ROOT n = f32[2] negate(q)
        }
        ENTRY e {
          p = f32[2] parameter(0)
          s = ((f32[2]), f32[2], u32[]) async-start(p), calls=g
          ROOT d = f32[2] async-done(s)
        }
        """
    )
    _, dropped = formatted(parse(text))
    assert [c.text for c in dropped] == ["// inside what is printed as sugar"]


def test_strings_and_printed_comments_are_no_comments() -> None:
    text = 'ENTRY e { ROOT p = (f32[], /*index=1*/f32[]) parameter(0), metadata={op_name="//a"} }'
    assert comments(text) == []


def test_nothing_in_a_raw_dict_is_a_comment() -> None:
    text = (
        "HloModule m, frontend_attributes={a={1 // 2},b={}}  // one\n"
        "ENTRY e { ROOT p = f32[] parameter(0), backend_config={3 // 4}, sharding={ // two\n"
        "maximal device=0} }"
    )
    assert [c.text for c in comments(text)] == ["// one", "// two"]


def test_two_comments_to_the_end_of_a_line_become_one() -> None:
    text = "ENTRY e {\n  ROOT p = f32[] // one\n    parameter(0) // two\n}"
    printed, dropped = formatted(parse(text))
    assert "parameter(0)  // one  two" in printed
    assert dropped == []
