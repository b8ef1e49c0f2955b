"""Regions: which small kernels run at once, and that the bits are those of one thread."""

from __future__ import annotations

import numpy as np
import pytest

from hlo.backend.compilation import Compilation
from hlo.backend.linking.installing import link
from hlo.backend.planning import splitting
from hlo.backend.planning.program import KernelStep, Program
from hlo.backend.planning.steps import program_of
from hlo.backend.planning.team import Team
from hlo.machine import COMMON
from hlo.parser.parse import parse
from tests.support.tiny_kernels import planned

SIZES = (3000, 100, 5000, 7, 4001, 2000)


def updates(count: int) -> str:
    """A program with one small kernel per parameter, none of which needs another."""
    lines, results = [], []
    for n, size in enumerate(SIZES[:count]):
        lines += [f"x{n} = f32[{size}] parameter({n})", f"y{n} = f32[{size}] sqrt(x{n})"]
        results.append(f"y{n}")
    types = ", ".join(f"f32[{size}]" for size in SIZES[:count])
    lines.append(f"ROOT t = ({types}) tuple({', '.join(results)})")
    return "HloModule m\nENTRY e {\n  " + "\n  ".join(lines) + "\n}"


CHAIN = """HloModule m
  less { p = f32[] parameter(0)
    q = f32[] parameter(1)
    ROOT r = pred[] compare(p, q), direction=LT }
  ENTRY e { x = f32[1000] parameter(0)
    s = f32[1000] sort(x), dimensions={0}, to_apply=less
    a = f32[1000] sqrt(s)
    b = f32[1000] reverse(a), dimensions={0}
    c = f32[10,100] reshape(b)
    d = f32[100,10] transpose(c), dimensions={1,0}
    ROOT t = (f32[1000], f32[1000], f32[100,10]) tuple(a, b, d) }"""


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every region is worth a parallel loop, no kernel is worth being split."""
    for least, value in (("WAKE", -1.0), ("REGION", 0.0), ("SPLIT", 1e9)):
        monkeypatch.setattr(splitting, least, value)


def kernels(program: Program) -> list[KernelStep]:
    return [step for step in program.steps if isinstance(step, KernelStep)]


@pytest.mark.usefixtures("eager")
def test_kernels_apart_are_one_region() -> None:
    steps = kernels(Compilation(parse(updates(6)), threads=2, passes="").program)
    assert len(steps) == 6
    assert {step.region for step in steps} == {1}
    assert "region 1" in str(Compilation(parse(updates(6)), threads=2, passes="").program)


@pytest.mark.usefixtures("eager")
def test_a_kernel_alone_is_none() -> None:
    assert not any(
        s.region for s in kernels(Compilation(parse(updates(1)), threads=2, passes="").program)
    )
    assert not any(
        s.region for s in kernels(Compilation(parse(updates(6)), threads=1, passes="").program)
    )


@pytest.mark.usefixtures("eager")
def test_what_reads_anothers_result_waits_for_it() -> None:
    program = Compilation(parse(CHAIN), threads=2, passes="").program
    by_name = {step.instruction.name: step.region for step in kernels(program)}
    assert by_name["a"] == 0 or by_name["a"] != by_name["b"]
    assert by_name["b"] == 0 or by_name["b"] != by_name["d"]


def test_little_work_is_no_region() -> None:
    program = program_of(planned(updates(6)), 2, COMMON)
    assert program.team is Team.ALONE
    assert not any(step.region for step in kernels(program))


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("threads", [2, 5])
@pytest.mark.parametrize("count", [2, 3, 6])
def test_a_region_gives_the_bits_of_its_kernels(threads: int, count: int) -> None:
    module = parse(updates(count))
    values = [np.random.default_rng(n).random(SIZES[n]).astype(np.float32) for n in range(count)]
    made = Compilation(module, threads=threads, passes="")
    for _ in range(20):
        results = link(module, made.link_table, made.objects)(*values)
        assert isinstance(results, tuple)
        for value, result in zip(values, results, strict=True):
            assert result.tobytes() == np.sqrt(value).tobytes()


def products(count: int, finish: str = "") -> str:
    """As many products of small matrices, of which none needs another."""
    lines, results = [], []
    for n in range(count):
        lines += [
            f"x{n} = f32[24,40] parameter({2 * n})",
            f"w{n} = f32[40,48] parameter({2 * n + 1})",
        ]
        lines += [
            f"d{n} = f32[24,48] dot(x{n}, w{n}), "
            "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
        ]
        lines += [f"y{n} = f32[24,48] {finish}(d{n})"] if finish else []
        results.append(f"y{n}" if finish else f"d{n}")
    types = ", ".join(["f32[24,48]"] * count)
    lines.append(f"ROOT t = ({types}) tuple({', '.join(results)})")
    return "HloModule m\nENTRY e {\n  " + "\n  ".join(lines) + "\n}"


@pytest.mark.usefixtures("eager")
def test_products_that_need_no_memory_of_a_thread_are_a_region() -> None:
    steps = kernels(Compilation(parse(products(5)), threads=2, passes="").program)
    assert [step.region for step in steps] == [1] * 5
    finished = kernels(Compilation(parse(products(5, "tanh")), threads=2).program)
    assert [step.region for step in finished] == [0] * 5  # their sums wait in scratch


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("threads", [2, 3, 7])
def test_a_region_of_products_gives_the_bits_of_one_thread(threads: int) -> None:
    module = parse(products(7))
    rng = np.random.default_rng(1)
    values = [rng.normal(size=p.shape.dims).astype(np.float32) for p in module.entry.parameters]
    made = Compilation(module, threads=threads, passes="")
    alone = Compilation(module, threads=1, passes="")
    wanted = link(module, alone.link_table, alone.objects)(*values)
    for _ in range(20):
        results = link(module, made.link_table, made.objects)(*values)
        for value, result in zip(wanted, results, strict=True):
            assert np.asarray(value).tobytes() == np.asarray(result).tobytes()
