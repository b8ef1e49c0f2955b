"""cost: loops by trip count, branches, fusions, groups, what is left out; the table as printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hlo
from hlo.backend.profiling.limits import Limits
from hlo.tools.inspection.cost import Cost, cost
from tests.support.command import call

LIMITS = Limits(1, 1e10, 1e10, 1e11)
LOOP = """HloModule loop
body {
  s = (s32[], f32[4,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4,4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[4,4] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="f/dot" source_file="f.py" source_line=7}
  ROOT r = (s32[], f32[4,4]) tuple(j, y)
}
condition {
  s = (s32[], f32[4,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(24)
  ROOT less = pred[] compare(i, n), direction=LT
}
ENTRY e {
  x = f32[4,4] parameter(0)
  zero = s32[] constant(START)
  s = (s32[], f32[4,4]) tuple(zero, x)
  w = (s32[], f32[4,4]) while(s), condition=condition, body=bodyCONFIG
  y = f32[4,4] get-tuple-element(w), index=1
  ROOT t = f32[4,4] tanh(y)
}
"""  # noqa: E501  # metadata as XLA writes it


def rows(found: Cost) -> dict[str, tuple[int, int, int, int]]:
    return {r.name: (r.runs, r.flops, r.transcendentals, r.bytes) for r in found.rows}


def loop(start: str = "0", config: str = "") -> Cost:
    return cost(hlo.parse(LOOP.replace("START", start).replace("CONFIG", config)), LIMITS)


def test_a_loop_counts_as_often_as_it_runs() -> None:
    found = rows(loop(start="4"))
    assert found["%y"] == (20, 20 * 2 * 4**3, 0, 20 * 3 * 64)
    assert found["%less"] == (21, 21, 0, 21 * 9)
    assert found["%t"] == (1, 0, 16, 128)


def test_a_loop_whose_text_says_how_often_it_runs() -> None:
    text = LOOP.replace("add(i, one)", "multiply(i, one)").replace("START", "0")
    said = text.replace("CONFIG", ', backend_config={"known_trip_count":{"n":"5"}}')
    assert rows(cost(hlo.parse(said), LIMITS))["%y"][0] == 5
    unknown = cost(hlo.parse(text.replace("CONFIG", "")), LIMITS)
    assert rows(unknown)["%y"][0] == 1
    (note,) = unknown.notes
    assert note == "at least, loops of an unknown number of iterations count once: %w"


BRANCHES = """
small { p = f32[8] parameter(0)  ROOT a = f32[8] add(p, p) }
large { p = f32[8] parameter(0)  b = f32[8] add(p, p)  ROOT c = f32[8] multiply(b, p) }
inner { p = f32[8] parameter(0)  s = f32[2] slice(p), slice={[1:3]}  ROOT d = f32[2] exponential(s) }
ENTRY e {
  which = pred[] parameter(0)
  x = f32[8] parameter(1)
  y = f32[8] conditional(which, x, x), true_computation=small, false_computation=large
  u = f32[2] fusion(y), kind=kLoop, calls=inner
  z = f32[8] custom-call(y), custom_call_target="mine"
  ROOT r = (f32[8], f32[2]) tuple(z, u)
}"""  # noqa: E501  # a computation a line


def test_branches_fusions_and_what_nobody_knows() -> None:
    module = hlo.parse(BRANCHES)
    found = cost(module, LIMITS)
    assert rows(found) == {
        "%b": (1, 8, 0, 96),
        "%c": (1, 8, 0, 96),
        "%u": (1, 0, 2, 16),  # of its operand two elements are read
        "%z": (1, 0, 0, 64),
    }
    assert found.total.is_least
    assert [note.partition(":")[0] for note in found.notes] == [
        "at most, branches count as the one that asks for most",
        "at least, custom-call is not counted",
    ]
    assert rows(cost(module, LIMITS, "opcode"))["exponential"] == (0, 0, 2, 0)
    assert rows(cost(module, LIMITS, "computation"))["large"] == (2, 16, 0, 192)
    with pytest.raises(hlo.HloError, match="expected one of"):
        cost(module, LIMITS, "line")


TABLE = """\
loop: the machine computes longer than it moves from 10 operations a byte
          time       flops   functions       bytes  intensity  bound    op_name
 88 %    461 ns      3.07 k          0      4.61 kB      0.667  memory   f/dot  [x24]
 12 %   64.1 ns         49          16        641 B      0.101  memory   (no op_name)  [x50]
         525 ns      3.12 k         16      5.25 kB      0.598  memory   total
         371 ns      2.74 k         16      3.71 kB      0.741  memory   after fusion
"""


def test_the_command(tmp_path: Path) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(LOOP.replace("START", "0").replace("CONFIG", ""))
    given = ("cost", str(path), "--by=op_name", "--peak-flops=1e11", "--peak-bw=1e10")
    outcome = call("hlo-opt", *given)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == TABLE
    data = json.loads(call("hlo-opt", *given, "--json").out)
    assert data["rows"][0]["name"] == "f/dot"
    assert data["rows"][0]["flops"] == 24 * 128
    assert data["fused"]["flops"] > 0


def test_a_loop_that_blocks_of_rows_run_is_counted_as_often_as_it_runs() -> None:
    golden = Path(__file__).parents[2] / "golden" / "passes" / "while-loop-blocking.hlo"
    module = hlo.parse(golden.read_text())
    blocked = hlo.optimize(module, "while-loop-blocking")
    before, after = (cost(m, LIMITS).total for m in (module, blocked))
    assert after.flops == before.flops
    assert after.transcendentals == before.transcendentals == 100 * 16 * 128
