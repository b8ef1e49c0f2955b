"""Scores whose heads are mixed, by rows: results, sums over rows, what comes back later."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo import driver
from hlo.analysis.scores.region import Reach, Roles, region_around
from hlo.ir.module import Module
from hlo.passes.scores import rows as score_rows
from tests.support.by_threads import for_threads


def talking(element: str = "f32") -> str:
    """Scores mixed over heads, counted rows among them; results by rows, by columns, by heads, and
    what is made of results and read by scores again.
    """
    wide = f"{element}[3,24,40]"
    both = "lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}"
    return f"""HloModule talking
add_of {{ a = {element}[] parameter(0)
  b = {element}[] parameter(1)
  ROOT r = {element}[] add(a, b) }}
ENTRY e {{
  q = {element}[3,24,8] parameter(0)
  k = {element}[3,40,8] parameter(1)
  v = {element}[3,40,8] parameter(2)
  mix = {element}[3,3] parameter(3)
  g = {element}[3,24,8] parameter(4)
  s = {wide} dot(q, k), {both}, rhs_contracting_dims={{2}}
  i = {wide} iota(), iota_dimension=1
  tenth = {element}[] constant(0.125)
  tenths = {wide} broadcast(tenth), dimensions={{}}
  far = {wide} multiply(i, tenths)
  moved = {wide} subtract(s, far)
  mixed = {wide} dot(mix, moved), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  p = {wide} tanh(mixed)
  o = {element}[3,24,8] dot(p, v), {both}, rhs_contracting_dims={{1}}
  zero = {element}[] constant(0)
  whole = {element}[3,8] reduce(o, zero), dimensions={{1}}, to_apply=add_of
  wholes = {element}[3,24,8] broadcast(whole), dimensions={{0,2}}
  back = {element}[3,24,8] multiply(g, wholes)
  dp = {wide} dot(back, v), {both}, rhs_contracting_dims={{2}}
  ds = {wide} multiply(dp, p)
  dv = {element}[3,40,8] dot(ds, g), lhs_batch_dims={{0}}, lhs_contracting_dims={{1}},
    rhs_batch_dims={{0}}, rhs_contracting_dims={{1}}
  dmix = {element}[3,3] dot(ds, moved), lhs_contracting_dims={{1,2}}, rhs_contracting_dims={{1,2}}
  column = {element}[3,40] reduce(ds, zero), dimensions={{1}}, to_apply=add_of
  dq = {element}[3,8,24] dot(k, ds), lhs_batch_dims={{0}}, lhs_contracting_dims={{1}},
    rhs_batch_dims={{0}}, rhs_contracting_dims={{2}}
  ROOT r = ({element}[3,24,8], {element}[3,40,8], {element}[3,3], {element}[3,40],
    {element}[3,8,24]) tuple(o, dv, dmix, column, dq)
}}"""


@pytest.fixture(autouse=True)
def _all_scores_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of eight rows."""
    monkeypatch.setattr(score_rows, "LEAST_SCORES_BYTES", 1 << 10)
    monkeypatch.setattr(score_rows, "MOST_PART_BYTES", 1 << 10)
    monkeypatch.setattr(score_rows, "LEAST_PARTS", 3)
    monkeypatch.setattr(score_rows, "LEAST_ROWS", 2)


def looped(text: str) -> Module:
    module = hlo.parse(text)
    assert score_rows.loop_over_rows(module)
    driver.verify(module)
    return module


def inputs(module: Module) -> list[np.ndarray]:
    random = np.random.default_rng(3)
    return [
        random.standard_normal(p.shape.dims).astype(p.shape.dtype.numpy)
        for p in module.entry.parameters
    ]


@pytest.mark.parametrize(("element", "bound"), [("f32", 1e-5), ("f64", 1e-13), ("bf16", 2e-2)])
def test_all_that_hangs_on_scores(element: str, bound: float) -> None:
    """A loop for what is read by rows first, one for what comes back."""
    text = talking(element)
    if element == "bf16":  # sums of narrow floats one after the other are their own
        text = text.replace("(ds, zero)", "(v.1, zero)").replace(
            "  column =", "  v.1 = bf16[3,8,40] transpose(v), dimensions={0,2,1}\n  column ="
        )
    module = looped(text)
    loops = [i for i in module.entry.instructions if i.opcode == "while"]
    assert len(loops) == 2
    assert not any(i.shape.dims == (3, 24, 40) for i in module.entry.instructions)
    given = inputs(module)
    want = hlo.evaluate(hlo.parse(text), *given)
    for found in (hlo.evaluate(module, *given), hlo.compile(module)(*given)):
        for a, b in zip(found, want, strict=True):
            x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
            assert np.abs(x - y).max() <= bound * (1 + np.abs(y).max())


def test_bits_do_not_depend_on_threads() -> None:
    module = looped(talking())
    given = inputs(module)
    found = [for_threads(module, threads=n)(*given) for n in (1, 2, 3, 7)]
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_a_maximum_over_rows_is_no_sum() -> None:
    text = talking().replace("ROOT r = f32[] add(a, b)", "ROOT r = f32[] maximum(a, b)")
    assert not score_rows.loop_over_rows(hlo.parse(text))


def test_sums_that_begin_elsewhere_are_none() -> None:
    text = talking().replace("zero = f32[] constant(0)", "zero = f32[] constant(1)")
    assert not score_rows.loop_over_rows(hlo.parse(text))


def test_slices_and_totals_are_members_where_rows_alone_are_cut() -> None:
    module = hlo.parse(talking())
    scores = next(i for i in module.entry.instructions if i.name == "s")
    names = {
        reach: None if found is None else {m.name for m in found.members}
        for reach in (Reach.BANDS, Reach.ROWS)
        for found in [region_around(scores, Roles(1, 2), reach=reach)]
    }
    assert names[Reach.BANDS] is None
    assert names[Reach.ROWS] is not None
    assert {"mixed", "dmix", "dq", "column"} <= names[Reach.ROWS]


def test_what_leads_from_rows_to_rows_keeps_the_order_of_the_program() -> None:
    """A set's order is that of addresses, and would show in a loop's text."""
    steps = "\n".join(f"t{n + 1} = f32[3,24] tanh(t{n})" for n in range(12))
    text = talking().replace(
        "p = f32[3,24,40] tanh(mixed)",
        f"""low = f32[] constant(-inf)
        t0 = f32[3,24] reduce(mixed, low), dimensions={{2}}, to_apply=more
        {steps}
        most = f32[3,24,40] broadcast(t12), dimensions={{0,1}}
        p = f32[3,24,40] subtract(mixed, most)""",
    )
    more = "more { c = f32[] parameter(0) d = f32[] parameter(1) ROOT m = f32[] maximum(c, d) }"
    module = hlo.parse(text.replace("ENTRY e", f"{more}\nENTRY e"))
    scores = next(i for i in module.entry.instructions if i.name == "s")
    found = region_around(scores, Roles(1, 2), reach=Reach.ROWS)
    assert found is not None
    between = [m.name for m in found.members if m.opcode == "tanh"]
    assert between == [f"t{n + 1}" for n in range(12)]


def looking_up(element: str = "f32", start: str = "0", order: str = "rows") -> str:
    """The program where scores' gradients are added up in a table by distance, as those of relative
    keys are.
    """
    sides = "lhs_batch_dims={1}, lhs_contracting_dims={0}, rhs_batch_dims={1}"
    updates = f"of_rows = {element}[24,40,8] dot(ds, q), {sides}, rhs_contracting_dims={{0}}"
    dims, at = "24,40", (0, 1)
    if order != "rows":
        updates += f"\n  turned = {element}[40,24,8] transpose(of_rows), dimensions={{1,0,2}}"
        dims, at = "40,24", (1, 0)
    last = "turned" if order != "rows" else "of_rows"
    table = f"""zero.1 = {element}[] constant({start})
  table = {element}[5,8] broadcast(zero.1), dimensions={{}}
  ri = s32[{dims}] iota(), iota_dimension={at[0]}
  ci = s32[{dims}] iota(), iota_dimension={at[1]}
  apart = s32[{dims}] subtract(ci, ri)
  least = s32[] constant(-2)
  most = s32[] constant(2)
  leasts = s32[{dims}] broadcast(least), dimensions={{}}
  mosts = s32[{dims}] broadcast(most), dimensions={{}}
  near = s32[{dims}] clamp(leasts, apart, mosts)
  places = s32[{dims}] add(near, mosts)
  {updates}
  sums = {element}[5,8] scatter(table, places, {last}), update_window_dims={{2}},
    inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}}, index_vector_dim=2,
    to_apply=add_of
  ROOT"""
    text = talking(element).replace("ROOT r = (", f"{table} r = ({element}[5,8], ")
    return text.replace("tuple(o, dv", "tuple(sums, o, dv")


@pytest.mark.parametrize(("element", "bound"), [("f32", 1e-5), ("bf16", 1e-2)])
def test_gradients_are_added_up_in_a_table(element: str, bound: float) -> None:
    """Those of narrow floats are rounded once, as a scatter's are."""
    text = looking_up(element)
    if element == "bf16":  # sums of narrow floats one after the other are their own
        text = text.replace("(ds, zero)", "(v.1, zero)").replace(
            "  column =", "  v.1 = bf16[3,8,40] transpose(v), dimensions={0,2,1}\n  column ="
        )
    module = looped(text)
    assert not any(i.opcode == "scatter" for i in module.entry.instructions)
    (scatter,) = (i for c in module.computations for i in c.instructions if i.opcode == "scatter")
    assert scatter.shape.dtype.name == "f32"
    given = inputs(module)
    want = np.asarray(hlo.evaluate(hlo.parse(text), *given)[0], np.float64)
    for found in (hlo.evaluate(module, *given), hlo.compile(module)(*given)):
        other = np.asarray(found[0], np.float64)
        assert np.abs(other - want).max() <= bound * np.abs(want).max()


def test_tables_by_columns_are_added_up_by_columns() -> None:
    """Parts are of what comes first, so that all that is added for one comes before the next."""
    text = looking_up(order="columns")
    module = looped(text)
    given = inputs(module)
    whole, parts = (np.asarray(hlo.compile(m)(*given)[0]) for m in (hlo.parse(text), module))
    assert np.abs(parts - whole).max() <= 1e-5 * np.abs(whole).max()


@pytest.mark.parametrize(
    "text",
    [
        looking_up(start="1"),
        looking_up().replace("ROOT r = f32[] add(a, b)", "ROOT r = f32[] maximum(a, b)"),
    ],
    ids=["from ones", "maxima"],
)
def test_other_tables_are_made_at_once(text: str) -> None:
    assert not score_rows.loop_over_rows(hlo.parse(text))
