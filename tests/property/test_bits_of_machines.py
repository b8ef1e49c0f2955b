"""Machines of equal vectors give equal bits: caches and rates never say how a sum is split."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from hlo import driver
from hlo.backend.compilation import Compilation
from hlo.errors import HloError
from hlo.ir.module import Module
from hlo.machine import Machine
from hlo.parser.parse import parse
from hlo.runtime.native_calls import flattened
from hlo.tools.cases.inputs import made_up_inputs
from tests.support import program_texts
from tests.support.other_machines import HOST, OTHERS

TYPES = ("f32", "f32", "f64", "bf16", "f16", "c64")
LARGEST = 2_000_000  # elements of all arrays
MOST_PRODUCTS = 1e8
REDUCER = """HloModule m
add {{ a = {0}[] parameter(0)
  b = {0}[] parameter(1)
  ROOT c = {0}[] add(a, b) }}
ENTRY e {{
"""


def sizes(rng: random.Random, count: int) -> list[int]:
    """Of all magnitudes, from 1 to some thousands."""
    return [int(2 ** rng.uniform(0, 12.5)) for _ in range(count)]


def product(rng: random.Random) -> str:
    """A product of any sizes."""
    dtype, b = rng.choice(TYPES), rng.choice((1, 1, 1, 3))
    m, n, k = sizes(rng, 3)
    while b * m * n * k > MOST_PRODUCTS or b * (m * k + k * n + m * n) > LARGEST:
        m, n, k = sizes(rng, 3)
    return of_product(rng, dtype, (b, m, n, k))


def vectors(rng: random.Random) -> str:
    """A product of so few rows that nothing is packed."""
    sizes = 1, rng.randint(1, 8), rng.randint(200, 1000), rng.randint(200, 1000)
    return of_product(rng, rng.choice(("f32", "f64")), sizes)


def few_rows(rng: random.Random) -> str:
    """A product of few rows and a large matrix."""
    sizes = 1, rng.randint(9, 100), rng.randint(800, 1500), rng.randint(800, 1300)
    return of_product(rng, rng.choice(("f32", "f64")), sizes)


def few_columns(rng: random.Random) -> str:
    """A deep product of a matrix and few columns."""
    sizes = 1, rng.randint(50, 700), rng.randint(2, 30), rng.randint(2050, 4095)
    return of_product(rng, rng.choice(("f32", "f64")), sizes)


def of_product(rng: random.Random, dtype: str, sizes: tuple[int, int, int, int]) -> str:
    """Either factor either way round; the sums of rows and of columns."""
    b, m, n, k = sizes
    at, to = rng.choice((1, 2)), rng.choice((1, 2))  # depth's dimensions
    lhs, rhs = ((k, m), (m, k))[at - 1], ((k, n), (n, k))[to - 1]
    zero = "(0, 0)" if dtype == "c64" else "0"
    return f"""{REDUCER.format(dtype)}
  x = {dtype}[{b},{lhs[0]},{lhs[1]}] parameter(0)
  y = {dtype}[{b},{rhs[0]},{rhs[1]}] parameter(1)
  d = {dtype}[{b},{m},{n}] dot(x, y), lhs_batch_dims={{0}}, rhs_batch_dims={{0}},
    lhs_contracting_dims={{{at}}}, rhs_contracting_dims={{{to}}}
  z = {dtype}[] constant({zero})
  s = {dtype}[{b},{n}] reduce(d, z), dimensions={{1}}, to_apply=add
  t = {dtype}[{b},{m}] reduce(d, z), dimensions={{2}}, to_apply=add
  ROOT r = ({dtype}[{b},{m},{n}], {dtype}[{b},{n}], {dtype}[{b},{m}]) tuple(d, s, t)
}}"""


def norm(rng: random.Random) -> str:
    """Elements by their sum over some dimensions: reductions that may share a kernel."""
    dtype = rng.choice(("f32", "f64", "bf16"))
    dims = sizes(rng, rng.choice((2, 3)))
    while dims[0] * dims[1] * (dims[2] if len(dims) > 2 else 1) > LARGEST:
        dims = [max(1, d // 2) for d in dims]
    reduced = sorted(rng.sample(range(len(dims)), rng.randint(1, len(dims))))
    kept = [d for d in range(len(dims)) if d not in reduced]
    whole, some = (",".join(str(dims[d]) for d in of) for of in (range(len(dims)), kept))
    along = ",".join(map(str, reduced))
    return f"""{REDUCER.format(dtype)}
  x = {dtype}[{whole}] parameter(0)
  e = {dtype}[{whole}] exponential(x)
  z = {dtype}[] constant(0)
  s = {dtype}[{some}] reduce(e, z), dimensions={{{along}}}, to_apply=add
  w = {dtype}[{whole}] broadcast(s), dimensions={{{",".join(map(str, kept))}}}
  q = {dtype}[{whole}] divide(e, w)
  p = {dtype}[{whole}] multiply(q, q)
  t = {dtype}[{some}] reduce(p, z), dimensions={{{along}}}, to_apply=add
  ROOT r = ({dtype}[{whole}], {dtype}[{some}]) tuple(q, t)
}}"""


def scan(rng: random.Random) -> str:
    """Running sums along one dimension, as a window that reaches back to the beginning."""
    rows, length = (min(n, 1200) for n in sizes(rng, 2))
    return f"""{REDUCER.format("f32")}
  x = f32[{rows},{length}] parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[{rows},{length}] reduce-window(x, z), to_apply=add,
    window={{size=1x{length} pad=0_0x{length - 1}_0}}
}}"""


def chain(rng: random.Random) -> str:
    """A product, a function and a product: run block by block where they are large."""
    rows, inner = rng.choice((512, 1024, 3000)), rng.choice((256, 700))
    return f"""HloModule m
ENTRY e {{
  x = f32[{rows},64] parameter(0)
  w = f32[64,{inner}] parameter(1)
  v = f32[{inner},32] parameter(2)
  d = f32[{rows},{inner}] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  t = f32[{rows},{inner}] tanh(d)
  ROOT r = f32[{rows},32] dot(t, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}"""


KINDS = (product, vectors, few_rows, few_columns, norm, scan, chain)


def bits(
    module: Module, arguments: list[object], machine: Machine, passes: str = "default"
) -> list[bytes] | str:
    """The result's; the error's code of a program that has none."""
    try:
        made = driver.compile(module, passes, cache=False, threads=2, machine=machine)
        return [a.tobytes() for a in flattened(made(*arguments)) if a is not None]
    except HloError as error:
        return error.code


def kernels(module: Module, machine: Machine) -> list[str]:
    program = Compilation(driver.optimize(module), threads=2, machine=machine, passes="").program
    return [str(program), *(k.text for k in program.kernels)]


def check(seeds: range) -> None:
    """Every kind for every seed, on every machine; all machines change some programs."""
    changed = dict.fromkeys(OTHERS, 0)
    for seed in seeds:
        for make in KINDS:
            text = make(random.Random(f"{seed} {make.__name__}"))
            module = parse(text)
            arguments = list(made_up_inputs(module, "normal", seed))
            wanted, own = bits(module, arguments, HOST), kernels(module, HOST)
            assert isinstance(wanted, list), f"{wanted}:\n{text}"
            for name, machine in OTHERS.items():
                assert bits(module, arguments, machine) == wanted, f"{name}:\n{text}"
                changed[name] += kernels(module, machine) != own
    assert all(changed.values()), changed


def test_sums_have_the_bits_of_machines_with_other_caches() -> None:
    check(range(5))


@pytest.mark.slow
def test_many_sums_have_the_bits_of_machines_with_other_caches() -> None:
    """`pytest -m slow tests/property/test_bits_of_machines.py`: some minutes."""
    check(range(5, 120))


def programs() -> Iterator[tuple[str, Module]]:
    """The tests' own, which are there to reach each branch of the kernels' loops, and each op."""
    for name, module in program_texts.verified(program_texts.written()):
        if sum(i.shape.size_bytes for c in module.computations for i in c.instructions) < 10**7:
            yield name, module


@pytest.mark.timeout(2400)
@pytest.mark.slow
def test_programs_of_every_form_have_the_bits_of_machines_with_other_caches() -> None:
    """`pytest -m slow tests/property/test_bits_of_machines.py`: some minutes."""
    for name, module in programs():
        try:
            arguments = list(made_up_inputs(module, "normal", 0))
        except HloError:
            continue  # of values that nobody makes up
        passes = program_texts.passes_of(name)
        wanted = bits(module, arguments, HOST, passes)
        for machine in OTHERS.values():
            assert bits(module, arguments, machine, passes) == wanted, (name, machine.name)
