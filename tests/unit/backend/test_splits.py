"""Real kernels split over threads as finely as can be: the bits are those of one thread."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from hlo import driver
from hlo.backend.compilation import Compilation
from hlo.backend.planning import splitting
from hlo.backend.planning.program import KernelStep, LoopStep
from hlo.machine import NAMED, Rates
from hlo.parser.parse import parse

PROGRAMS = {
    "rows": """HloModule m
      sum { a = f32[] parameter(0)
        b = f32[] parameter(1)
        ROOT c = f32[] add(a, b) }
      ENTRY e { x = f32[67,129] parameter(0)
        z = f32[] constant(0)
        r = f32[67] reduce(x, z), dimensions={1}, to_apply=sum
        b = f32[67,129] broadcast(r), dimensions={0}
        ROOT d = f32[67,129] divide(x, b) }""",
    "columns": """HloModule m
      sum { a = f32[] parameter(0)
        b = f32[] parameter(1)
        ROOT c = f32[] add(a, b) }
      ENTRY e { x = f32[67,129] parameter(0)
        z = f32[] constant(0)
        ROOT r = f32[129] reduce(x, z), dimensions={0}, to_apply=sum }""",
    "all": """HloModule m
      sum { a = f32[] parameter(0)
        b = f32[] parameter(1)
        ROOT c = f32[] add(a, b) }
      ENTRY e { x = f32[67,129] parameter(0)
        z = f32[] constant(0)
        ROOT r = f32[] reduce(x, z), dimensions={0,1}, to_apply=sum }""",
    "product": """HloModule m
      ENTRY e { x = f32[67,129] parameter(0)
        t = f32[129,67] transpose(x), dimensions={1,0}
        ROOT r = f32[67,67] dot(x, t), lhs_contracting_dims={1}, rhs_contracting_dims={0} }""",
    "chain": """HloModule m
      ENTRY e { x = f32[67,129] parameter(0)
        y = f32[67,129] exponential(x)
        t = f32[67,129] tanh(y)
        ROOT r = f32[67,129] multiply(t, x) }""",
}


def run(text: str, threads: int, x: np.ndarray) -> tuple[bytes, int]:
    """The result's bits, and how many steps were split."""
    module = parse(text)
    made = Compilation(module, threads=threads, passes="")
    program, result = made.program, made.executable(x)
    assert isinstance(result, np.ndarray)
    split = [s for s in program.steps if isinstance(s, KernelStep) and s.chunks > 1]
    return result.tobytes(), len(split)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_split_gives_the_same_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(1).standard_normal((67, 129)).astype(np.float32)
    one, split = run(PROGRAMS[name], 1, x)
    assert split == 0
    for least, value in (("WAKE", -1.0), ("SPLIT", -1.0), ("CHUNK", 1e-4)):
        monkeypatch.setattr(splitting, least, value)
    for threads in (2, 3, 7):
        assert run(PROGRAMS[name], threads, x)[0] == one


LOOP = """HloModule m
c {{ s = (s32[], f32[20000]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] {limit}
  ROOT p = pred[] compare(i, n), direction=LT }}
b {{ s = (s32[], f32[20000]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[20000] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[20000] multiply(x, x)
  ROOT t = (s32[], f32[20000]) tuple(j, y) }}
ENTRY e {{
  zero = s32[] constant(0)
  x = f32[20000] parameter(0)
  t = (s32[], f32[20000]) tuple(zero, x)
  w = (s32[], f32[20000]) while(t), condition=c, body=b
  ROOT v = f32[20000] get-tuple-element(w), index=1
}}"""


def test_a_counted_loop_costs_its_iterations() -> None:
    def cost(limit: str) -> float:
        return Compilation(parse(LOOP.format(limit=limit)), threads=2, passes="").program.cost_us

    once, often = cost("constant(1)"), cost("constant(1000)")
    assert often > 100 * once
    assert cost("constant(0)") < once
    some = cost("add(i, i)")  # no known end
    assert once < some < often


HOT = """HloModule m
c {{ s = (s32[], f32[200,100]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(1000)
  ROOT p = pred[] compare(i, n), direction=LT }}
b {{ s = (s32[], f32[200,100]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[200,100] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  {body}
  ROOT t = (s32[], f32[200,100]) tuple(j, y) }}
ENTRY e {{
  zero = s32[] constant(0)
  x = f32[200,100] parameter(0)
  t = (s32[], f32[200,100]) tuple(zero, x)
  ROOT w = (s32[], f32[200,100]) while(t), condition=c, body=b
}}"""


@pytest.mark.parametrize(
    ("body", "is_split"),
    [
        ("y = f32[200,100] multiply(x, x)", False),  # too little
        ("a = f32[200,100] sine(x)\n y = f32[200,100] tanh(a)", True),
        (
            "r = f32[200,100] reverse(x), dimensions={0}\n a = f32[200,100] sine(r)\n"
            " y = f32[200,100] tanh(a)",
            False,  # its bytes would go to and fro
        ),
        (
            "a = f32[200,100] sine(x)\n b = f32[200,100] tanh(a)\n y = f32[200,100] atan2(a, b)",
            True,
        ),
    ],
)
def test_kernels_in_hot_loops_are_split_for_arithmetic(body: str, *, is_split: bool) -> None:
    module = driver.optimize(parse(HOT.format(body=body)), passes="fusion,dce")
    machine = replace(NAMED["x86-64-v4"], rates=Rates())
    assert is_loop_split(Compilation(module, threads=2, passes="", machine=machine)) == is_split


def is_loop_split(compilation: Compilation) -> bool:
    """Whether a kernel of the program's only loop is split."""
    (loop,) = [s for s in compilation.program.steps if isinstance(s, LoopStep)]
    return any(isinstance(s, KernelStep) and s.chunks > 1 for s in loop.body)


@pytest.mark.parametrize(("share_us", "is_split"), [(0.3, True), (1.0, False)])
def test_steps_are_split_by_what_a_part_costs(share_us: float, *, is_split: bool) -> None:
    module = driver.optimize(
        parse(HOT.format(body="y = f32[200,100] multiply(x, x)")), passes="fusion,dce"
    )
    machine = replace(NAMED["x86-64-v4"], rates=Rates(share_us=share_us))
    assert is_loop_split(Compilation(module, threads=2, passes="", machine=machine)) == is_split


READ_BY_ONE = """HloModule m
sum {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b) }}
c {{ s = (s32[], f32[50,100], f32[200,100], s32[200,1]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(1000)
  ROOT p = pred[] compare(i, n), direction=LT }}
b {{ s = (s32[], f32[50,100], f32[200,100], s32[200,1]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  h = f32[50,100] get-tuple-element(s), index=1
  x = f32[200,100] get-tuple-element(s), index=2
  at = s32[200,1] get-tuple-element(s), index=3
  one = s32[] constant(1)
  j = s32[] add(i, one)
  f = f32[] convert(i)
  fs = f32[200,100] broadcast(f), dimensions={{}}
  a = f32[200,100] add(x, fs)
  {made}
  y = f32[50,100] scatter(h, at, z), update_window_dims={{1}}, inserted_window_dims={{0}},
    scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=sum
  ROOT t = (s32[], f32[50,100], f32[200,100], s32[200,1]) tuple(j, y, x, at) }}
ENTRY e {{
  zero = s32[] constant(0)
  h = f32[50,100] parameter(0)
  x = f32[200,100] parameter(1)
  at = s32[200,1] parameter(2)
  t = (s32[], f32[50,100], f32[200,100], s32[200,1]) tuple(zero, h, x, at)
  ROOT w = (s32[], f32[50,100], f32[200,100], s32[200,1]) while(t), condition=c, body=b
}}"""


@pytest.mark.parametrize(
    ("made", "is_split"),
    [
        ("z = f32[200,100] sine(a)", False),  # half of it would come from the other processor
        (
            "q = f32[200,100] sine(a)\n r = f32[200,100] atan2(q, a)\n z = f32[200,100] tanh(r)",
            True,
        ),
    ],
)
def test_what_one_thread_reads_is_split_for_much_arithmetic(made: str, *, is_split: bool) -> None:
    module = driver.optimize(parse(READ_BY_ONE.format(made=made)))
    machine = replace(NAMED["x86-64-v4"], rates=Rates())
    assert is_loop_split(Compilation(module, threads=2, passes="", machine=machine)) == is_split


EDGES = """HloModule m
c { s = (s32[], f32[200,220], f32[200,220]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(1000)
  ROOT p = pred[] compare(i, n), direction=LT }
b { s = (s32[], f32[200,220], f32[200,220]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[200,220] get-tuple-element(s), index=1
  y = f32[200,220] get-tuple-element(s), index=2
  one = s32[] constant(1)
  zero = s32[] constant(0)
  j = s32[] add(i, one)
  f = f32[] convert(i)
  row = f32[1,220] broadcast(f), dimensions={}
  edge = f32[200,220] dynamic-update-slice(x, row, zero, zero)
  low = f32[199,220] slice(y), slice={[1:200], [0:220]}
  high = f32[199,220] slice(y), slice={[0:199], [0:220]}
  difference = f32[199,220] subtract(low, high)
  before = f32[199,220] slice(edge), slice={[1:200], [0:220]}
  after = f32[199,220] subtract(before, difference)
  x1 = f32[200,220] dynamic-update-slice(edge, after, one, zero)
  left = f32[199,220] slice(x1), slice={[1:200], [0:220]}
  right = f32[199,220] slice(x1), slice={[0:199], [0:220]}
  gradient = f32[199,220] subtract(left, right)
  old = f32[199,220] slice(y), slice={[0:199], [0:220]}
  new = f32[199,220] subtract(old, gradient)
  y1 = f32[200,220] dynamic-update-slice(y, new, zero, zero)
  ROOT t = (s32[], f32[200,220], f32[200,220]) tuple(j, x1, y1) }
ENTRY e {
  zero = s32[] constant(0)
  x = f32[200,220] parameter(0)
  y = f32[200,220] parameter(1)
  t = (s32[], f32[200,220], f32[200,220]) tuple(zero, x, y)
  ROOT w = (s32[], f32[200,220], f32[200,220]) while(t), condition=c, body=b
}"""


def test_a_row_that_one_thread_writes_does_not_keep_an_array_on_it() -> None:
    """Both updates of most rows are shared, each by two chunks that end in about the same row."""
    made = Compilation(driver.optimize(parse(EDGES)), threads=2, passes="", machine=NAMED["znver4"])
    (loop,) = [s for s in made.program.steps if isinstance(s, LoopStep)]
    kernels = [s for s in loop.body if isinstance(s, KernelStep)]
    assert sorted(s.chunks for s in kernels)[-2:] == [2, 2]
    assert max(s.chunks for s in kernels) == 2


STEP = """HloModule m
c { s = (s32[], f32[8,64], f32[8,64], f32[64,256]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(1000)
  ROOT p = pred[] compare(i, n), direction=LT }
b { s = (s32[], f32[8,64], f32[8,64], f32[64,256]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  h = f32[8,64] get-tuple-element(s), index=1
  x = f32[8,64] get-tuple-element(s), index=2
  u = f32[64,256] get-tuple-element(s), index=3
  one = s32[] constant(1)
  j = s32[] add(i, one)
  g = f32[8,256] dot(h, u), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  a = f32[8,64] slice(g), slice={[0:8], [64:128]}
  k = f32[8,64] tanh(a)
  ROOT t = (s32[], f32[8,64], f32[8,64], f32[64,256]) tuple(j, k, x, u) }
ENTRY e {
  zero = s32[] constant(0)
  h = f32[8,64] parameter(0)
  x = f32[8,64] parameter(1)
  u = f32[64,256] parameter(2)
  t = (s32[], f32[8,64], f32[8,64], f32[64,256]) tuple(zero, h, x, u)
  w = (s32[], f32[8,64], f32[8,64], f32[64,256]) while(t), condition=c, body=b
  ROOT r = f32[8,64] get-tuple-element(w), index=1
}"""


def test_a_product_of_a_step_has_a_part_for_a_second_thread() -> None:
    """A quarter of a million operations, of which a thread does half in little over a us."""
    made = Compilation(parse(STEP), threads=2, passes="", machine=NAMED["znver4"])
    (loop,) = [s for s in made.program.steps if isinstance(s, LoopStep)]
    kernels = [s for s in loop.body if isinstance(s, KernelStep)]
    assert [s.chunks for s in kernels if s.instruction.opcode == "dot"] == [2]


@pytest.mark.parametrize(("finish", "is_split"), [("negate", False), ("tanh", True)])
def test_what_finishes_a_product_counts_for_its_split(finish: str, *, is_split: bool) -> None:
    """64 K operations are too short for two threads, with what is done to each sum they are not."""
    text = STEP.replace("[8,64]", "[32,32]").replace("[64,256]", "[32,32]")
    text = text.replace("g = f32[8,256] dot(", "g = f32[32,32] dot(")
    text = text.replace("slice(g), slice={[0:8], [64:128]}", f"{finish}(g)")
    thrice = f"o = f32[32,32] {finish}(a)\n  k = f32[32,32] {finish}(o)"
    text = text.replace("k = f32[32,32] tanh(a)", thrice)
    module = driver.optimize(parse(text), "fusion")
    machine = replace(NAMED["znver4"], rates=Rates(share_us=0.3))
    made = Compilation(module, threads=2, passes="", machine=machine)
    assert is_loop_split(made) == is_split


SLICES = """HloModule m
c {{ s = (s32[], f32[120,120], f32[120,120]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(120)
  ROOT p = pred[] compare(i, n), direction=LT }}
b {{ s = (s32[], f32[120,120], f32[120,120]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[120,120] get-tuple-element(s), index=1
  y = f32[120,120] get-tuple-element(s), index=2
  z = s32[] constant(0)
  part = f32[{sizes}] dynamic-slice(x, {start}), dynamic_slice_sizes={{{sizes}}}
  row = f32[120] reshape(part)
  rows = f32[120,120] broadcast(row), dimensions={{{along}}}
  less = f32[120,120] minimum(x, rows)
  where = pred[120,120] compare(rows, x), direction=LT
  last = f32[120,120] select(where, rows, y)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT t = (s32[], f32[120,120], f32[120,120]) tuple(j, less, last) }}
ENTRY e {{ i = s32[] constant(0)
  x = f32[120,120] parameter(0)
  y = f32[120,120] parameter(1)
  t = (s32[], f32[120,120], f32[120,120]) tuple(i, x, y)
  ROOT w = (s32[], f32[120,120], f32[120,120]) while(t), condition=c, body=b }}"""


def test_a_column_that_one_thread_reads_brings_its_neighbours_along() -> None:
    """A row of what threads write is its own bytes alone, and they share the loop's step."""
    machine = NAMED["znver4"]
    split = {}
    for name, start, sizes, along in (("row", "i, z", "1,120", 1), ("column", "z, i", "120,1", 0)):
        text = SLICES.format(start=start, sizes=sizes, along=along)
        program = Compilation(driver.parse(text), threads=2, machine=machine).program
        (loop,) = (s for s in program.steps if isinstance(s, LoopStep))
        split[name] = [s.chunks for s in loop.body if isinstance(s, KernelStep) and s.units > 1]
    assert max(split["row"]) > 1
    assert max(split["column"]) == 1
