"""Loops that read and write a row in each trip: the reference's bits, each row where it belongs."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo.analysis.fusibility import is_row_loop
from hlo.analysis.while_loops.lane_loops import lane_loop, row_loop
from hlo.ir.module import Module
from hlo.machine import named

ROWS = 5


def program(
    dims: str,
    dtype: str = "f32",
    *,
    at: str = "r = s32[] add(i, no)",
    to: str = "w = s32[] add(i, no)",
    step: str = "y = {t} add(h, x)",
    row: str = "{t}",
    limit: int = ROWS,
    shown: int = 3,
) -> str:
    """x = xs[r], y = f(h, x), ys[w] = y, in each trip. row: what lies in a row of xs; shown: the
    element of the state that is read at the end, 3 for ys and 1 for h.
    """
    t = f"{dtype}[{dims}]"
    row = row.format(t=t)
    taken = row[row.index("[") + 1 : -1].split(",") if row[-2] != "[" else []
    sizes = ",".join(["1", *taken])
    xs = f"{dtype}[{','.join([str(ROWS), *taken])}]"
    ys, one_row = f"{dtype}[{ROWS},{dims}]", f"{dtype}[1,{dims}]"
    state = f"(s32[], {t}, {xs}, {ys})"
    zeros, more = ", zero" * len(taken), ", zero" * len(dims.split(","))
    text = f"""HloModule m
body {{
  s = {state} parameter(0); i = s32[] get-tuple-element(s), index=0
  h = {t} get-tuple-element(s), index=1; xs = {xs} get-tuple-element(s), index=2
  ys = {ys} get-tuple-element(s), index=3
  no = s32[] constant(0); one = s32[] constant(1); zero = s32[] constant(0)
  {at}; {to}
  taken = {dtype}[{sizes}] dynamic-slice(xs, r{zeros}), dynamic_slice_sizes={{{sizes}}}
  x = {row} reshape(taken)
  {step.format(t=t)}
  made = {one_row} reshape(y)
  new = {ys} dynamic-update-slice(ys, made, w{more})
  next = s32[] add(i, one)
  ROOT t = {state} tuple(next, y, xs, new)
}}
condition {{
  s = {state} parameter(0); i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({limit}); ROOT p = pred[] compare(i, n), direction=LT
}}
ENTRY e {{
  h = {t} parameter(0); xs = {xs} parameter(1); i = s32[] constant(0)
  ys = {ys} parameter(2)
  s = {state} tuple(i, h, xs, ys)
  w = {state} while(s), condition=condition, body=body
  ROOT r = {ys if shown == 3 else t} get-tuple-element(w), index={shown}
}}
"""
    return text.replace("; ", "\n  ")


def is_one(module: Module) -> bool:
    """Whether the loop of such a program is one of rows, or of lanes."""
    (loop,) = (i for i in module.entry.instructions if i.opcode == "while")
    return row_loop(loop) is not None or lane_loop(loop) is not None


def numbers(module: Module) -> list[np.ndarray]:
    """Small integers, a NaN and a zero below zero among them where there are any."""
    rng = np.random.default_rng(1)
    found = []
    for parameter in module.entry.parameters:
        shape = parameter.shape
        values = rng.integers(0, 9, shape.dims).astype(np.float64)
        if not shape.dtype.is_integral and not shape.dtype.is_pred:
            values.reshape(-1)[:2] = [np.nan, -0.0]
        found.append(values.astype(shape.dtype.numpy))
    return found


def agrees(text: str, *, threads: tuple[int, ...] = (1,), **options: object) -> bool:
    """Whether compiled code has the reference's bits, for each number of threads."""
    module = hlo.parse(text)
    given = numbers(module)
    expected = np.asarray(hlo.evaluate(module, *given))
    return all(
        np.asarray(hlo.compile(module, threads=n, **options)(*given)).tobytes()
        == expected.tobytes()
        for n in threads
    )


@pytest.mark.parametrize("dims", ["16", "17", "37", "1000", "3,21", "5,7,9", "2,3000"])
def test_every_size_has_the_bits_of_the_reference(dims: str) -> None:
    text = program(dims)
    assert is_one(hlo.parse(text))
    assert agrees(text, threads=(1, 2, 3, 7))


@pytest.mark.parametrize("dtype", ["f64", "bf16", "s32", "s8", "u16", "s64", "pred", "c64"])
def test_every_type_has_the_bits_of_the_reference(dtype: str) -> None:
    step = "y = {t} or(h, x)" if dtype == "pred" else "y = {t} add(h, x)"
    text = program("100", dtype, step=step)
    assert is_one(hlo.parse(text))
    assert agrees(text, threads=(1, 2))


@pytest.mark.parametrize("machine", ["x86-64-v2", "x86-64-v3", "host"])
@pytest.mark.parametrize("dims", ["21", "130"])
def test_lesser_machines_have_the_same_bits(machine: str, dims: str) -> None:
    assert agrees(program(dims), machine=None if machine == "host" else named(machine))


@pytest.mark.parametrize("shown", [1, 3])
def test_rows_may_be_taken_and_written_from_the_end(shown: int) -> None:
    last = f"last = s32[] constant({ROWS - 1}); "
    text = program(
        "40", at=last + "r = s32[] subtract(last, i)", to="w = s32[] subtract(last, i)", shown=shown
    )
    assert is_one(hlo.parse(text))
    assert agrees(text)


def test_rows_that_are_read_past_the_end_are_the_last_one() -> None:
    text = program("40", at="two = s32[] constant(2); r = s32[] add(i, two)")
    assert is_one(hlo.parse(text))
    assert agrees(text)
    text = program("40", at="two = s32[] constant(2); r = s32[] subtract(i, two)")
    assert is_one(hlo.parse(text))
    assert agrees(text)


SLICED = """
  whole = f32[9,{n}] parameter(1)
  xs = f32[5,{n}] slice(whole), slice={{[{start}:{limit}:{stride}], [0:{n}]}}"""


@pytest.mark.parametrize("rows", [(0, 5, 1), (4, 9, 1), (0, 9, 2)])
@pytest.mark.parametrize("n", [16, 37, 200])
def test_rows_of_a_slice_are_read_where_they_lie(n: int, rows: tuple[int, int, int]) -> None:
    start, limit, stride = rows
    sliced = SLICED.format(n=n, start=start, limit=limit, stride=stride)
    text = program(str(n)).replace(f"xs = f32[5,{n}] parameter(1)", sliced)
    module = hlo.optimize(hlo.parse(text))
    assert [i.opcode for i in module.entry.instructions if i.opcode != "parameter"] == ["fusion"]
    assert agrees(text, threads=(1, 2, 3, 7))


def test_a_row_may_be_one_number() -> None:
    text = program(
        "40", row="f32[]", step="b = {t} broadcast(x), dimensions={{}}; y = {t} add(h, b)"
    )
    assert is_one(hlo.parse(text))
    assert agrees(text)


def test_what_is_written_may_be_the_same_for_all_lanes() -> None:
    step = "c = f32[] convert(i); b = {t} broadcast(c), dimensions={{}}; y = {t} multiply(b, b)"
    assert agrees(program("40", step=step))


def test_rows_that_are_not_all_written_keep_what_was_there() -> None:
    text = program("40", limit=ROWS - 1)
    assert not is_one(hlo.parse(text))
    assert agrees(text)


def test_rows_that_are_written_twice_are_none_of_a_row_loop() -> None:
    text = program("40", to="two = s32[] constant(2); w = s32[] divide(i, two)")
    assert not is_one(hlo.parse(text))
    assert agrees(text)


def test_an_array_that_is_read_and_written_is_none_of_rows() -> None:
    """ys[i] of the trip before."""
    text = program("40").replace("dynamic-slice(xs,", "dynamic-slice(ys,")
    assert not is_one(hlo.parse(text))
    assert agrees(text)


@pytest.mark.parametrize("length", [8, 9])
def test_columns_of_short_rows_alone_are_read_where_they_lie(length: int) -> None:
    """xs[:, i]: lanes take elements that are a row apart."""
    text = program("5", row=f"f32[{length}]")
    row = f"f32[1,{length}] dynamic-slice(xs, r, zero), dynamic_slice_sizes={{1,{length}}}"
    assert row in text
    text = text.replace(row, "f32[5,1] dynamic-slice(xs, zero, r), dynamic_slice_sizes={5,1}")
    text = text.replace(f"x = f32[{length}] reshape", "x = f32[5] reshape")
    assert is_one(hlo.parse(text)) == (length == 8)
    assert agrees(text)


def system(dims: str, *, unknowns: str, step: str = "n = {t} add(q, x)") -> str:
    """A system of three equations whose unknowns are an array's rows (`3,n`) or columns (`n,3`):
    a trip takes it apart, stacks it again, reads noise like it and writes it.
    """
    t, row = f"f32[{unknowns}]", f"f32[{dims}]"
    d = unknowns.split(",").index("3")
    one = ",".join("1" if k == d else n for k, n in enumerate(unknowns.split(",")))
    lines = [f"s = (s32[], {t}, f32[{ROWS},{unknowns}], f32[{ROWS},{unknowns}]) parameter(0)"]
    lines += ["i = s32[] get-tuple-element(s), index=0", f"h = {t} get-tuple-element(s), index=1"]
    lines += [f"xs = f32[{ROWS},{unknowns}] get-tuple-element(s), index=2"]
    lines += [f"ys = f32[{ROWS},{unknowns}] get-tuple-element(s), index=3"]
    lines += ["zero = s32[] constant(0)", "one = s32[] constant(1)", "next = s32[] add(i, one)"]
    lines += [
        f"taken = f32[1,{unknowns}] dynamic-slice(xs, i, zero, zero), "
        f"dynamic_slice_sizes={{1,{unknowns}}}"
    ]
    lines += [f"x = {t} reshape(taken)"]
    for k in range(3):
        cut = ["[0:" + n + "]" for n in unknowns.split(",")]
        cut[d] = f"[{k}:{k + 1}]"
        lines += [f"c{k} = f32[{one}] slice(h), slice={{{', '.join(cut)}}}"]
        lines += [f"part{k} = {row} reshape(c{k})"]
    lines += [f"e = f32[{one}] slice(x), slice={{{', '.join(cut)}}}", f"noise = {row} reshape(e)"]
    lines += [f"v0 = {row} multiply(part1, noise)", f"v1 = {row} subtract(part0, part2)"]
    lines += [f"v2 = {row} add(part0, part1)"]
    lines += [f"r{k} = f32[{one}] reshape(v{k})" for k in range(3)]
    lines += [f"q = {t} concatenate(r0, r1, r2), dimensions={{{d}}}"]
    lines += [step.format(t=t), f"made = f32[1,{unknowns}] reshape(n)"]
    lines += [f"new = f32[{ROWS},{unknowns}] dynamic-update-slice(ys, made, i, zero, zero)"]
    state = f"(s32[], {t}, f32[{ROWS},{unknowns}], f32[{ROWS},{unknowns}])"
    body = "\n  ".join([*lines, f"ROOT t = {state} tuple(next, n, xs, new)"])
    return f"""HloModule m
body {{
  {body}
}}
condition {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({ROWS})
  ROOT p = pred[] compare(i, n), direction=LT
}}
ENTRY e {{
  h = {t} parameter(0)
  xs = f32[{ROWS},{unknowns}] parameter(1)
  ys = f32[{ROWS},{unknowns}] parameter(2)
  i = s32[] constant(0)
  s = {state} tuple(i, h, xs, ys)
  w = {state} while(s), condition=condition, body=body
  ROOT r = f32[{ROWS},{unknowns}] get-tuple-element(w), index=3
}}
"""


@pytest.mark.parametrize("size", ["16", "37", "300"])
@pytest.mark.parametrize("form", ["3,{n}", "{n},3"])
@pytest.mark.parametrize("added", ["x", "q"])
def test_rows_of_systems_are_read_and_written_where_they_lie(
    size: str, form: str, added: str
) -> None:
    """What is read is added whole, or one row of it alone is read."""
    text = system(size, unknowns=form.format(n=size), step=f"n = {{t}} add(q, {added})")
    (fusion,) = (i for i in hlo.optimize(hlo.parse(text)).entry.instructions if is_row_loop(i))
    assert fusion.shape.dims[0] == ROWS
    assert agrees(text, threads=(1, 2, 3))


def test_a_system_of_which_rows_are_turned_is_no_row_loop() -> None:
    step = "m = {t} reverse(x), dimensions={{0}}; n = {t} add(q, m)"
    text = system("37", unknowns="37,3", step=step.replace("; ", "\n  "))
    assert not any(is_row_loop(i) for i in hlo.optimize(hlo.parse(text)).entry.instructions)
    assert agrees(text)
