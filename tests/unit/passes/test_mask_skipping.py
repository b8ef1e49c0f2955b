"""Mask skipping: which scores are left out, under which guards, and that results stay."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pytest

from hlo import driver
from hlo.analysis.decisions import decisions_of
from hlo.analysis.scores.column_facts import What
from hlo.analysis.scores.region import Roles, region_around
from hlo.analysis.scores.skipped_columns import ScoreFacts, Span
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.passes.large_values import mask_skipping
from tests.support.attention_programs import causal, gradients
from tests.support.by_threads import for_threads

LENGTH = 1100
INF = np.float32(np.inf)


def seen_by(text: str, low: str) -> str:
    """The program with another number for what is masked."""
    return text.replace("out = f32[] constant(-inf)", f"out = f32[] constant({low})")


def windowed(text: str, wide: int) -> str:
    """The causal program where rows see no column that is so far behind."""
    scores = f"{LENGTH},{LENGTH}"
    near = f"""far = s32[] constant({wide})
  fars = s32[{scores}] broadcast(far), dimensions={{}}
  until = s32[{scores}] add(column, fars)
  late = pred[{scores}] compare(row, column), direction=GE
  near = pred[{scores}] compare(row, until), direction=LT
  hp = pred[{scores}] and(late, near)"""
    return text.replace(f"hp = pred[{scores}] compare(row, column), direction=GE", near)


def neighbouring(text: str, wide: int) -> str:
    """The causal program where rows see the columns on both sides that are near."""
    scores = f"{LENGTH},{LENGTH}"
    near = f"""far = s32[] constant({wide})
  fars = s32[{scores}] broadcast(far), dimensions={{}}
  between = s32[{scores}] subtract(row, column)
  distance = s32[{scores}] abs(between)
  hp = pred[{scores}] compare(distance, fars), direction=LT"""
    return text.replace(f"hp = pred[{scores}] compare(row, column), direction=GE", near)


def causal_gradients(heads: int, length: int, *, of_all: bool = False) -> str:
    """Gradients of a causal attention; scores of what is masked get the gradient 0."""
    wide = f"{heads},{length},{length}"
    counted = f"""n = s32[{length}] iota(), iota_dimension=0
  row = s32[{wide}] broadcast(n), dimensions={{1}}
  column = s32[{wide}] broadcast(n), dimensions={{2}}
  h = pred[{wide}] compare(row, column), direction=GE
  out = f32[] constant(-1e30)
  outs = f32[{wide}] broadcast(out), dimensions={{}}
  none = f32[] constant(0)
  nones = f32[{wide}] broadcast(none), dimensions={{}}
  raw ="""
    text = gradients(heads, length, of_all=of_all)
    text = text.replace(f"s = f32[{wide}]", f"raw = f32[{wide}]", 1)
    text = text.replace("  low = f32[]", f"  s = f32[{wide}] select(h, raw, outs)\n  low = f32[]")
    text = text.replace("raw =", counted, 1)
    return text.replace(
        f"ds = f32[{wide}] multiply(less, p)",
        f"all = f32[{wide}] multiply(less, p)\n  ds = f32[{wide}] select(h, all, nones)",
    )


def inputs(text: str) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [
        rng.standard_normal(p.shape.dims).astype(np.float32)
        for p in driver.parse(text).entry.parameters
    ]


def skipping(text: str) -> Module:
    module = driver.optimize(driver.parse(text), "simplify")
    mask_skipping(module)
    driver.verify(module)
    return module


def conditionals(module: Module) -> list[Instruction]:
    return [i for i in module.entry.instructions if i.opcode == "conditional"]


def holds(text: str, arrays: list[np.ndarray]) -> bool:
    """Whether the guards of the last results hold of arguments."""
    return bool(np.asarray(guards_of(text)(*arrays)))


@lru_cache(maxsize=16)
def guards_of(text: str) -> Callable[..., object]:
    module = skipping(text)
    module.entry.root = conditionals(module)[-1].operands[0]
    return driver.compile(driver.parse(driver.to_text(module)))


def seen(module: Module) -> list[tuple[int, int]]:
    """The columns that bands of rows see, as the entry says."""
    (said,) = {s for i in module.entry.instructions if (s := decisions_of(i).seen) is not None}
    assert [first for first, *_ in said.spans] == [138 * n for n in range(8)]
    return [(start, end) for *_, start, end in said.spans]


@lru_cache(maxsize=16)
def programs_of(text: str) -> list[Callable[..., object]]:
    """Of all scores, and what skips some for several numbers of threads."""
    module = driver.parse(text)
    whole = driver.compile(driver.optimize(module, "simplify,fusion"), passes="")
    return [whole, *(for_threads(module, threads=n) for n in (1, 2, 3, 7))]


def whole_and_skipped(text: str, arrays: list[np.ndarray]) -> tuple[list[np.ndarray], ...]:
    found: list[list[np.ndarray]] = []
    for program in programs_of(text):
        results = program(*arrays)
        parts = results if isinstance(results, tuple) else (results,)
        found.append([np.asarray(part) for part in parts])
    for other in found[2:]:
        assert [a.tobytes() for a in other] == [a.tobytes() for a in found[1]]
    return found[0], found[1]


def test_rows_see_the_columns_up_to_their_own() -> None:
    module = skipping(causal(1, LENGTH))
    assert len(conditionals(module)) == 1
    ends = [256, 384, 512, 640, 768, 896, 1024, 1100]  # strips of 128
    assert seen(module) == [(0, end) for end in ends]


def test_windows_leave_out_columns_on_both_sides() -> None:
    module = skipping(windowed(causal(1, LENGTH), 140))
    behind = [0, 0, 128, 256, 384, 512, 640, 768]
    ahead = [256, 384, 512, 640, 768, 896, 1024, 1100]
    assert seen(module) == list(zip(behind, ahead, strict=True))
    module = skipping(neighbouring(causal(1, LENGTH), 140))
    ahead = [384, 512, 640, 768, 896, 1024, 1100, 1100]
    assert seen(module) == list(zip(behind, ahead, strict=True))


@pytest.mark.parametrize(
    "text",
    [
        causal(1, 600),  # few scores
        causal(1, LENGTH).replace("direction=GE", "direction=NE"),
        causal(1, LENGTH, counted="f32"),  # no integers
        causal(1, 1500).replace("f32", "f16"),  # 2^30 is infinite
        seen_by(causal(1, LENGTH), "inf"),
        seen_by(causal(1, LENGTH), "1"),
        causal(1, LENGTH).replace("e = f32[1,1100,1100] exponential(d)",
                                  "e = f32[1,1100,1100] tanh(d)"),
        causal(1, LENGTH).replace("to_apply=sum_of", "to_apply=max_of"),
    ],
    ids=["few", "a diagonal", "f32", "f16", "inf", "high", "no weights", "no sum"],
)  # fmt: skip
def test_what_counts_is_computed(text: str) -> None:
    module = driver.optimize(driver.parse(text), "simplify")
    before = driver.to_text(module)
    assert not mask_skipping(module)
    assert driver.to_text(module) == before


def test_guards() -> None:
    entry = skipping_region(causal(1, LENGTH))
    found = {(g.what, g.value.name) for g in entry}
    assert found == {(What.ABOVE, "m"), (What.DIVISOR, "t"), (What.BOUNDED, "v")}


def skipping_region(text: str) -> frozenset[object]:
    module = driver.optimize(driver.parse(text), "simplify")
    (select,) = (i for i in module.entry.instructions if i.opcode == "select")
    region = region_around(select, Roles(1, 2))
    assert region is not None
    guards = ScoreFacts(region).skipped(Span(0, 256, 256, LENGTH))
    assert guards is not None
    assert ScoreFacts(region).skipped(Span(0, 256, 128, LENGTH)) is None  # some of these are seen
    return guards


@pytest.mark.parametrize("low", ["-inf", "-1e30", "-2.38e38"])
@pytest.mark.parametrize(
    ("place", "value", "held"),
    [
        (None, 0.0, True),
        ((2, 0, 1000, 3), INF, False),  # v, where the first rows do not see it
        ((2, 0, 1000, 3), np.nan, False),
        ((2, 0, 0, 3), -INF, False),
        ((1, 0, 1000, 3), np.nan, False),  # k: the last rows' maxima are NaN
        ((1, 0, 3, 3), np.nan, False),
        ((0, 0, 20, 3), 1e20, False),
        ((0, 0, 20, 3), 1e-42, True),
    ],
    ids=["ordinary", "inf", "nan", "-inf", "last key", "key", "large", "subnormal"],
)
def test_results_are_what_all_scores_give(
    low: str, place: tuple[int, ...] | None, value: float, *, held: bool
) -> None:
    text = seen_by(causal(1, LENGTH), low)
    arrays = inputs(text)
    if place is not None:
        arrays[place[0]][place[1:]] = value
    assert holds(text, arrays) == held
    expected, found = whole_and_skipped(text, arrays)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=5e-6)


@pytest.mark.parametrize("low", ["-inf", "-1e30"])
def test_rows_that_see_nothing(low: str) -> None:
    """All that they could see another mask hides: with -inf they are NaN, else means of all."""
    text = seen_by(causal(1, LENGTH), low)
    arrays = inputs(text)
    arrays[3][5] = np.float32(low)
    assert not holds(text, arrays)
    expected, found = whole_and_skipped(text, arrays)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=5e-6)


@pytest.mark.parametrize("of_all", [False, True], ids=["of each", "of all"])
@pytest.mark.parametrize("unusual", [False, True], ids=["ordinary", "infinity"])
def test_gradients(*, of_all: bool, unusual: bool) -> None:
    text = causal_gradients(2, 1031, of_all=of_all)
    module = skipping(text)
    assert len(conditionals(module)) == 1 + of_all
    arrays = inputs(text)
    if unusual:
        arrays[3][1, 1000, 2] = INF
    assert holds(text, arrays) != unusual
    expected, found = whole_and_skipped(text, arrays)
    for a, b in zip(found, expected, strict=True):
        scale = np.abs(b[np.isfinite(b)]).max(initial=0)
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=2e-5 * scale)


def capped(text: str, heads: int, length: int) -> str:
    """The gradients' program with scores below a cap: what is masked gets 0 * (1 - t) + 0 * t."""
    wide = f"f32[{heads},{length},{length}]"
    text = text.replace(
        f"s = {wide} select(h, raw, outs)",
        f"cap = {wide} tanh(raw)\n  s = {wide} select(h, cap, outs)",
    )
    return text.replace(
        f"ds = {wide} select(h, all, nones)",
        f"""given = {wide} select(h, all, nones)
  one = f32[] constant(1)
  ones = {wide} broadcast(one), dimensions={{}}
  left = {wide} subtract(ones, cap)
  some = {wide} multiply(given, left)
  more = {wide} multiply(some, cap)
  ds = {wide} add(some, more)""",
    )


@pytest.mark.parametrize("unusual", [False, True], ids=["ordinary", "infinity"])
def test_gradients_of_capped_scores(*, unusual: bool) -> None:
    """An infinite query makes NaN of scores that no row sees, and these times 0 are seen."""
    text = capped(causal_gradients(2, 1031), 2, 1031)
    assert len(conditionals(skipping(text))) == 1
    arrays = inputs(text)
    if unusual:
        arrays[0][1, 7, 2] = INF
    assert holds(text, arrays) != unusual
    expected, found = whole_and_skipped(text, arrays)
    for a, b in zip(found, expected, strict=True):
        scale = np.abs(b[np.isfinite(b)]).max(initial=0)
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=2e-5 * scale)


def test_numbers_stand_in_the_branch_of_all_scores() -> None:
    (conditional,) = conditionals(skipping(causal(2, LENGTH)))
    _, given = conditional.operands[1:]
    assert all(shape.dims for shape in given.shape.elements)


def added(low: str, *, form: str = "select") -> str:
    """The causal program whose mask is added: a number where nothing is seen, else zero."""
    wide, flat = f"f32[1,{LENGTH},{LENGTH}]", f"f32[{LENGTH},{LENGTH}]"
    bias = {
        "select": f"bias = {flat} select(hp, nones, outf)",
        "times": f"""one = f32[] constant(1)
  ones = {flat} broadcast(one), dimensions={{}}
  seen = {flat} convert(hp)
  hidden = {flat} subtract(ones, seen)
  bias = {flat} multiply(hidden, outf)""",
    }[form]
    lines = f"""none = f32[] constant(0)
  nones = {flat} broadcast(none), dimensions={{}}
  outf = {flat} broadcast(out), dimensions={{}}
  {bias}
  bb = {wide} broadcast(bias), dimensions={{1,2}}
  s = {wide} add(masked, bb)"""
    text = causal(1, LENGTH).replace(f"s = {wide} select(h, masked, outs)", lines)
    if low == "given":
        return text.replace("out = f32[] constant(-inf)", "out = f32[] parameter(4)")
    return seen_by(text, low)


@pytest.mark.parametrize(
    ("low", "form"),
    [
        ("-inf", "select"),
        ("-3.4e38", "select"),
        ("-1e9", "select"),
        ("-1e9", "times"),
        ("-1e5", "times"),
        ("given", "select"),
    ],
)
def test_masks_that_are_added(low: str, form: str) -> None:
    module = skipping(added(low, form=form))
    assert len(conditionals(module)) == 1
    assert [end for _, end in seen(module)] == [256, 384, 512, 640, 768, 896, 1024, 1100]


@pytest.mark.parametrize(
    "text",
    [
        added("-1e3"),  # scores may be as large
        added("1e9"),
        added("nan"),
        added("given", form="times"),  # chosen for nothing: any factor
        added("-1e9").replace("nones, outf", "outf, outf"),
    ],
    ids=["little", "high", "nan", "a factor", "everywhere"],
)
def test_what_is_added_may_be_no_mask(text: str) -> None:
    assert not mask_skipping(driver.optimize(driver.parse(text), "simplify"))


@pytest.mark.parametrize("low", ["-inf", "-3.4e38", "-1e9", "-1e5", "given"])
@pytest.mark.parametrize(
    ("place", "value", "held"),
    [
        (None, 0.0, True),
        ((1, 0, 1000, 3), INF, False),  # inf - inf: NaN, seen by rows that do not see the key
        ((1, 0, 1000, 3), np.nan, False),
        ((1, 0, 1000, 3), 1e30, False),  # as large as some of the numbers
        ((0, 0, 3, 3), -INF, False),
        ((0, 0, 3, 3), 1e-42, True),
        ((3, 3, 1000), INF, False),  # another bias, where nothing is seen
    ],
    ids=["ordinary", "inf", "nan", "large", "query", "subnormal", "bias"],
)
def test_results_with_masks_that_are_added(
    low: str, place: tuple[int, ...] | None, value: float, *, held: bool
) -> None:
    text = added(low)
    arrays = inputs(text)
    if low == "given":
        arrays[4] = np.float32(-np.inf)
    if place is not None:
        arrays[place[0]][place[1:]] = value
    assert holds(text, arrays) == held
    expected, found = whole_and_skipped(text, arrays)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=5e-6)


@pytest.mark.parametrize("number", [0.0, 5.0, -1e9, np.nan, INF])
def test_a_number_that_is_given_may_be_no_mask(number: float) -> None:
    text = added("given")
    arrays = inputs(text)
    arrays[4] = np.float32(number)
    assert not holds(text, arrays)
    expected, found = whole_and_skipped(text, arrays)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=5e-6)


def test_numbers_are_those_of_the_narrower_type() -> None:
    """-1e9 is -998244352 in bf16, which a row that sees nothing has for its maximum."""
    wide = f"[1,{LENGTH},{LENGTH}]"
    text = seen_by(causal(1, LENGTH), "-1e9").replace("\n  s = f32", "\n  sf = f32", 1)
    text = text.replace("  low = f32[]", f"  s = bf16{wide} convert(sf)\n  low = f32[]", 1)
    before, after = text.split("  low = f32[]", 1)
    text = before.replace("a = f32[]", "a = bf16[]").replace("b = f32[]", "b = bf16[]")
    text = text.replace("r = f32[]", "r = bf16[]") + "  low = bf16[]"
    text += after.replace("f32", "bf16").replace("dot(p, v)", "dot(p, w)")
    text = text.replace(
        "v = f32[1,1100,16] parameter(2)",
        """v = f32[1,1100,16] parameter(2)
  w = bf16[1,1100,16] convert(v)""",
    )
    arrays = inputs(text)
    arrays[3][0] = np.float32(-1e9)
    assert len(conditionals(skipping(text))) == 1
    assert not holds(text, arrays)
