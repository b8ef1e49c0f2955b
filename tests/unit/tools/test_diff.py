"""diff: names are free, what stands on one side only is named, layers are one row."""

from __future__ import annotations

import json
from pathlib import Path

import hlo
from hlo.tools.comparison.diff import CHANGED, ONLY_A, ONLY_B, diff
from tests.support.command import call

HEAD = """HloModule layers
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
ENTRY e {
  x0 = f32[4,8] parameter(0)
  zero = f32[] constant(0)
"""
LAYER = """  w{n} = f32[8,8] parameter({m})
  d{n} = f32[4,8] dot(x{n}, w{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{{k}}}
  {narrow}t{n} = f32[4,8] tanh({given})
  sum{n} = f32[4] reduce(t{n}, zero), dimensions={{1}}, to_apply=add
  b{n} = f32[4,8] broadcast(sum{n}), dimensions={{0}}
  x{m} = f32[4,8] divide(t{n}, b{n})
"""


def layers(count: int, *, narrow: frozenset[int] = frozenset(), side: int = 0) -> str:
    """Layers of a product, tanh and a norm; those of `narrow` round the product to bf16."""
    text = HEAD
    for n in range(count):
        is_narrow = n in narrow
        rounded = f"h{n} = bf16[4,8] convert(d{n})\n  g{n} = f32[4,8] convert(h{n})\n  "
        text += LAYER.format(
            n=n, m=n + 1, k=side, narrow=rounded if is_narrow else "",
            given=f"g{n}" if is_narrow else f"d{n}",
        )  # fmt: skip
    return text + f"  ROOT r = f32[4,8] negate(x{count})\n}}\n"


def renamed(text: str) -> str:
    return text.replace(" x", " other").replace("(x", "(other").replace("layers", "again")


def test_names_are_free() -> None:
    a, b = hlo.parse(layers(3)), hlo.parse(renamed(layers(3)))
    assert diff(a, b).is_empty


def test_one_convert_of_24_layers() -> None:
    found = diff(hlo.parse(layers(24)), hlo.parse(renamed(layers(24, narrow=frozenset({11})))))
    assert [(r.kind, r.count, r.names) for r in found.rows] == [
        (ONLY_B, 1, ("h11",)),
        (ONLY_B, 1, ("g11",)),
    ]
    assert found.matched == found.sizes[0]


def test_a_convert_of_every_layer_is_one_row() -> None:
    every = frozenset(range(24))
    found = diff(hlo.parse(layers(24, narrow=every)), hlo.parse(layers(24)))
    assert [(r.kind, r.count) for r in found.rows] == [(ONLY_A, 24), (ONLY_A, 24)]


def test_a_changed_attribute_of_every_layer_is_one_row() -> None:
    found = diff(hlo.parse(layers(5)), hlo.parse(layers(5, side=1)))
    (row,) = found.rows
    assert (row.kind, row.count) == (CHANGED, 5)
    assert "rhs_contracting_dims={0}" in row.before
    assert "rhs_contracting_dims={1}" in row.after


def test_swapped_operands_and_constants_are_changes() -> None:
    text = "HloModule m\nENTRY e { p = f32[2] parameter(0) q = f32[2] parameter(1)\n c = f32[] "
    text += "constant(1) b = f32[2] broadcast(c), dimensions={}\n s = f32[2] subtract(p, q)\n"
    text += " ROOT r = f32[2] add(s, b) }"
    swapped = diff(hlo.parse(text), hlo.parse(text.replace("(p, q)", "(q, p)")))
    assert [(r.kind, r.names) for r in swapped.rows] == [(CHANGED, ("s",))]
    other = diff(hlo.parse(text), hlo.parse(text.replace("constant(1)", "constant(2)")))
    assert [(r.kind, r.before, r.after) for r in other.rows] == [
        (CHANGED, "f32[] constant(1.0)", "f32[] constant(2.0)")
    ]


def test_a_body_that_differs_is_found_in_its_computation() -> None:
    text = layers(2)
    found = diff(hlo.parse(text), hlo.parse(text.replace("add(a, b)", "multiply(a, b)")))
    assert {r.names[0] for r in found.rows} == {"s"}
    assert found.count(ONLY_A) == found.count(ONLY_B) == 1


def test_the_command(tmp_path: Path) -> None:
    a, b, page = (tmp_path / n for n in ("a.hlo", "b.hlo", "d.html"))
    a.write_text(layers(24))
    b.write_text(layers(24, narrow=frozenset({11})))
    outcome = call("hlo-opt", "diff", str(a), str(b), "--html", str(page))
    assert outcome.code == 1
    assert outcome.out == (
        "matched 150 of 150 in A, 152 in B   changed 0   only in A 0   only in B 2\n"
        "  only in B  %h11 = bf16[4,8]{1,0} convert\n"
        "  only in B  %g11 = f32[4,8]{1,0} convert\n"
    )
    assert page.read_text().count("<tr>") == 3
    assert call("hlo-opt", "diff", str(a), str(a)).code == 0
    coloured = call("hlo-opt", "diff", str(a), str(b), "--color=always")
    assert "\x1b[32m  only in B" in coloured.out
    data = json.loads(call("hlo-opt", "diff", str(a), str(b), "--json").out)
    assert [row["names"] for row in data["rows"]] == [["h11"], ["g11"]]
