"""No function of emitted code has more on the stack than a small thread's stack can hold."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import hlo
from hlo.backend.compilation import Compilation
from hlo.backend.entry import call_ir, pool_ir
from hlo.interpreter.evaluate import evaluate
from hlo.machine import NAMED
from tests.support.stack_bytes import stack_bytes

MOST_BYTES = 96 * 1024  # of a function; two of them are on the stack at a time
ROOT = Path(__file__).parents[4]

HEAD = """HloModule m
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
"""


def softmaxes(count: int, columns: int) -> str:
    """Independent softmaxes in one fusion: each keeps a row of exponentials."""
    lines = []
    for k in range(count):
        lines += [
            f"n{k} = f32[] constant({k + 2})",
            f"b{k} = f32[8,{columns}] broadcast(n{k}), dimensions={{}}",
            f"x{k} = f32[8,{columns}] divide(p, b{k})",
            f"e{k} = f32[8,{columns}] exponential(x{k})",
            f"r{k} = f32[8] reduce(e{k}, zero), dimensions={{1}}, to_apply=sum",
            f"d{k} = f32[8,{columns}] broadcast(r{k}), dimensions={{0}}",
            f"q{k} = f32[8,{columns}] divide(e{k}, d{k})",
        ]
    total = "q0"
    for k in range(1, count):
        lines.append(f"t{k} = f32[8,{columns}] add({total}, q{k})")
        total = f"t{k}"
    body = "\n  ".join(lines)
    return f"""{HEAD}
f {{ p = f32[8,{columns}] parameter(0)
  zero = f32[] constant(0)
  {body}
  ROOT o = f32[8,{columns}] copy({total}) }}
ENTRY e {{ p = f32[8,{columns}] parameter(0)
  ROOT r = f32[8,{columns}] fusion(p), kind=kLoop, calls=f }}"""


def column_sums(count: int, rows: int, columns: int) -> str:
    """Sums over the rows of several arrays in one fusion: partial results of all are kept."""
    lines = [f"x{k} = f32[{rows},{columns}] multiply(p, b{k})" for k in range(count)]
    scalars = [
        f"c{k} = f32[] constant({k + 1})\n"
        f"b{k} = f32[{rows},{columns}] broadcast(c{k}), dimensions={{}}"
        for k in range(count)
    ]
    sums = [
        f"n{k} = f32[{columns}] reduce(x{k}, zero), dimensions={{0}}, to_apply=sum"
        for k in range(count)
    ]
    body = "\n  ".join([*scalars, *lines, *sums])
    kind = ", ".join([f"f32[{columns}]"] * count)
    return f"""{HEAD}
f {{ p = f32[{rows},{columns}] parameter(0)
  zero = f32[] constant(0)
  {body}
  ROOT o = ({kind}) tuple({", ".join(f"n{k}" for k in range(count))}) }}
ENTRY e {{ p = f32[{rows},{columns}] parameter(0)
  ROOT r = ({kind}) fusion(p), kind=kInput, calls=f }}"""


def transposes(count: int, size: int) -> str:
    """Transposes with other arithmetic in one fusion: each has a buffer of squares."""
    lines = [f"t{k} = f32[{size},{size}] transpose(p{k}), dimensions={{1,0}}" for k in range(count)]
    kind = ", ".join([f"f32[{size},{size}]"] * count)
    inner = "\n  ".join(f"p{k} = f32[{size},{size}] parameter({k})" for k in range(count))
    body = "\n  ".join(lines)
    names = ", ".join(f"p{k}" for k in range(count))
    return f"""HloModule m
f {{ {inner}
  {body}
  ROOT o = ({kind}) tuple({", ".join(f"t{k}" for k in range(count))}) }}
ENTRY e {{ {inner}
  ROOT r = ({kind}) fusion({names}), kind=kLoop, calls=f }}"""


def wide_loop(width: int) -> str:
    """A short loop whose state has many leaves, all of which one fusion reads."""
    state = f"(s32[], {', '.join(['f32[2]'] * width)})"
    taken = "\n  ".join(f"x{k} = f32[2] get-tuple-element(s), index={k + 1}" for k in range(width))
    turned = ", ".join(f"x{(k + 1) % width}" for k in range(width))
    given = "\n  ".join(f"p{k} = f32[2] parameter({k})" for k in range(width))
    return f"""HloModule m
body {{ s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  n = s32[] add(i, one)
  {taken}
  ROOT t = {state} tuple(n, {turned}) }}
cond {{ s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  most = s32[] constant(3)
  ROOT c = pred[] compare(i, most), direction=LT }}
ENTRY e {{ {given}
  zero = s32[] constant(0)
  s = {state} tuple(zero, {", ".join(f"p{k}" for k in range(width))})
  w = {state} while(s), condition=cond, body=body
  ROOT r = f32[2] get-tuple-element(w), index=1 }}"""


PROGRAMS = {
    "softmaxes": softmaxes(9, 15000),
    "softmaxes_of_short_rows": softmaxes(40, 1000),
    "column_sums": column_sums(24, 4096, 700),
    "transposes": transposes(40, 256),
    "wide_loop": wide_loop(200),
}


def functions(text: str, passes: str) -> Iterator[tuple[str, int]]:
    module = hlo.optimize(hlo.parse(text), passes)
    for module_ir in Compilation(module, threads=2, passes="").ir:
        yield from stack_bytes(module_ir.text)


@pytest.mark.parametrize("passes", ["default", ""])
@pytest.mark.parametrize("name", PROGRAMS)
def test_functions_of_programs_have_bounded_stacks(name: str, passes: str) -> None:
    found = dict(functions(PROGRAMS[name], passes))
    largest = max(found, key=lambda name: found[name])
    assert found[largest] <= MOST_BYTES, largest


def test_shared_functions_have_bounded_stacks() -> None:
    """Of these, a byte more than what is written would grow with the caller's program."""
    for text in (call_ir.text(), pool_ir.text("x86_64"), pool_ir.text("aarch64")):
        assert all(size <= 4096 for _, size in stack_bytes(text))
    assert dict(stack_bytes(call_ir.text()))["hlo_block_new"] == 8


def test_what_does_not_fit_lies_in_scratch_memory() -> None:
    """The rows beyond a function's share of the stack are the thread's scratch memory's."""
    text = PROGRAMS["softmaxes"].replace("8,15000", "3,15000").replace("f32[8]", "f32[3]")
    module = hlo.parse(text)
    machine = NAMED["x86-64-v3"]  # whose second cache keeps all rows
    program = Compilation(module, threads=2, passes="", machine=machine).program
    assert program.scratch_bytes >= 60_000
    p = np.linspace(-3, 3, 45000, dtype=np.float32).reshape(3, 15000)
    for threads in (1, 2):
        made = hlo.compile(module, passes="", threads=threads)(p)
        np.testing.assert_allclose(made, evaluate(module, p), rtol=2e-5)


SMALL_STACK = """
import sys, threading
import numpy as np, hlo
n, kind, kib = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
if kind == "arguments":
    given, arguments = range(n), [np.float32(k) for k in range(n)]
    root = f"f32[] add(p0, p{n - 1})"
else:
    given, arguments = [0], [np.float32(3)]
    root = f"({', '.join(['f32[]'] * n)}) tuple({', '.join(['p0'] * n)})"
lines = "".join(f"p{k} = f32[] parameter({k})\\n" for k in given)
executable = hlo.compile(hlo.parse(f"HloModule m\\nENTRY e {{ {lines}ROOT r = {root} }}"))
found = []
def run():
    for _ in range(3):
        found.append(executable(*arguments))
    try:
        executable(*arguments[:-1], "no number")  # the memory goes back on the way to the error too
    except hlo.HloError as error:
        found.append(error.code)
threading.stack_size(kib * 1024)
thread = threading.Thread(target=run)
thread.start()
thread.join()
assert found.pop() == "arguments"
if kind == "arguments":
    assert [float(x) for x in found] == [n - 1.0] * 3, found
else:
    assert all(len(x) == n and set(map(float, x)) == {3.0} for x in found)
print("whole")
"""


@pytest.mark.parametrize(("kind", "n", "kib"), [("arguments", 20000, 256), ("results", 4500, 64)])
def test_many_leaves_on_a_small_stack(kind: str, n: int, kib: int) -> None:
    """A thread passes and gets as many leaves as a program has; 16 bytes each do not fit on it."""
    command = [sys.executable, "-c", SMALL_STACK, str(n), kind, str(kib)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "whole\n"), done.stderr


def test_no_alloca_in_the_sources_has_a_size_known_at_run_time() -> None:
    """`alloca TYPE, i64 %count` grows with what a caller passes."""
    for file in (ROOT / "hlo").rglob("*.py"):
        assert not re.search(r"alloca [^\n\"]*, i(?:32|64) %", file.read_text()), file
