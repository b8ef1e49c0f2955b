"""Random graphs of fusible ops at awkward shapes: each fused kernel agrees with the interpreter."""

from __future__ import annotations

import random

import pytest

from hlo.analysis.legality import family_of
from hlo.ops.table import KernelFamily
from hlo.parser.parse import parse
from hlo.passes.fusion.fusion import fusion
from hlo.passes.simplify.dce import dce
from hlo.verifier.verify import verify
from tests.support.kernel_check import check

SIZES = (1, 2, 3, 5, 7, 16, 17, 31, 40)
HEAD = """HloModule random
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
max { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b) }
"""
BINARY = ("add", "subtract", "multiply", "maximum", "minimum")
UNARY = ("tanh", "negate", "abs", "exponential", "cosine", "sqrt")


def text(dims: tuple[int, ...]) -> str:
    return ",".join(map(str, dims))


class Program:
    """Lines of an entry computation; values by name with their dimensions, all f32."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = ["z = f32[] constant(0)", "low = f32[] constant(-inf)"]
        self.values: list[tuple[str, tuple[int, ...]]] = []
        for k in range(self.random.randint(1, 3)):
            dims = tuple(self.random.choice(SIZES) for _ in range(self.random.randint(1, 3)))
            self._add(dims, f"parameter({k})")

    def _add(self, dims: tuple[int, ...], op: str) -> str:
        name = f"v{len(self.values)}"
        self.lines.append(f"{name} = f32[{text(dims)}] {op}")
        self.values.append((name, dims))
        return name

    def grow(self) -> None:
        pick = self.random
        name, dims = pick.choice(self.values[-4:])
        match pick.randrange(9):
            case 0:
                self._add(dims, f"{pick.choice(UNARY)}({name})")
            case 1 | 2:
                other = pick.choice([v for v, d in self.values if d == dims])
                self._add(dims, f"{pick.choice(BINARY)}({name}, {other})")
            case 3:
                order = pick.sample(range(len(dims)), len(dims))
                moved = tuple(dims[d] for d in order)
                self._add(moved, f"transpose({name}), dimensions={{{text(tuple(order))}}}")
            case 4 if len(dims) < 3:
                at = pick.randint(0, len(dims))
                wide = (*dims[:at], pick.choice(SIZES), *dims[at:])
                kept = tuple(d for d in range(len(wide)) if d != at)
                self._add(wide, f"broadcast({name}), dimensions={{{text(kept)}}}")
            case 5 if dims:
                self._reduce(name, dims)
            case 6 if dims:
                d = pick.randrange(len(dims))
                twice = (*dims[:d], 2 * dims[d], *dims[d + 1 :])
                self._add(twice, f"concatenate({name}, {name}), dimensions={{{d}}}")
            case 7 if dims:
                low = tuple(pick.randint(0, n - 1) for n in dims)
                spans = ", ".join(f"[{a}:{n}]" for a, n in zip(low, dims, strict=True))
                cut = tuple(n - a for a, n in zip(low, dims, strict=True))
                self._add(cut, f"slice({name}), slice={{{spans}}}")
            case 8 if dims:
                size = 1
                for n in dims:
                    size *= n
                shapes = [(size,), (1, size), *([(size // 2, 2)] if size % 2 == 0 else [])]
                self._add(pick.choice(shapes), f"reshape({name})")

    def _reduce(self, name: str, dims: tuple[int, ...]) -> None:
        """A reduction, and often what softmax does with one: broadcast it back and subtract."""
        pick = self.random
        count = pick.randint(1, len(dims))
        reduced = tuple(sorted(pick.sample(range(len(dims)), count)))
        kept = tuple(d for d in range(len(dims)) if d not in reduced)
        reducer, init = pick.choice([("sum", "z"), ("max", "low")])
        small = tuple(dims[d] for d in kept)
        reduced = self._add(
            small, f"reduce({name}, {init}), dimensions={{{text(reduced)}}}, to_apply={reducer}"
        )
        if pick.random() < 0.6:
            back = self._add(dims, f"broadcast({reduced}), dimensions={{{text(kept)}}}")
            self._add(dims, f"subtract({name}, {back})")

    def module(self) -> str:
        roots = [v for v in self.values if v[0] != "v0"][-2:] or self.values[-1:]
        shapes = ", ".join(f"f32[{text(d)}]" for _, d in roots)
        names = ", ".join(v for v, _ in roots)
        body = "\n  ".join([*self.lines, f"ROOT out = ({shapes}) tuple({names})"])
        return f"{HEAD}ENTRY e {{\n  {body}\n}}\n"


@pytest.mark.parametrize("seed", range(60))
def test_fused_kernels_agree_with_the_interpreter(seed: int) -> None:
    program = Program(seed)
    for _ in range(4 + seed % 9):
        program.grow()
    module = parse(program.module())
    verify(module)
    fusion(module)
    dce(module)
    verify(module)
    for instruction in module.entry.instructions:
        if family_of(instruction) is KernelFamily.LOOPS and instruction.opcode != "constant":
            found = check(instruction, seed, splits=1 + seed % 4)
            assert found == "", f"{instruction.name}: {found}\n{program.module()}"
