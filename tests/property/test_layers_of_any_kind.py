"""Networks of equal layers of random ops: what passes make of a few layers is right for all.

Ops are those whose traces could go from layer to layer without being seen in one: signs, powers of
two, transposes and reversals that cancel each other, beside products, biases and residuals.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

import hlo
from hlo.ir.module import Module
from hlo.passes.shortening import shortened

SIZE = 6
SQUARE, ROW = f"f64[{SIZE},{SIZE}]", f"f64[{SIZE}]"
SPREAD = ("multiply", "divide", "add", "subtract", "maximum")
LINEAR = ("negate", "double", "halve", "transpose", "reverse", "negated", "turned", "doubled")
OTHERS = ("abs", "add", "subtract", "maximum", "bias", "scale", "residual", "least", "select")
SEEDS = range(24)


class Network:
    """A module's text while it is written."""

    def __init__(self, numbers: random.Random) -> None:
        self.lines: list[str] = []
        self.shapes: list[str] = []
        self.x = self.parameter(SQUARE)
        self.two = self.constant(2.0)
        kinds = LINEAR if numbers.random() < 0.6 else LINEAR + OTHERS
        ops = [numbers.choice(kinds) for _ in range(numbers.randint(20, 50))]
        for _ in range(numbers.randint(1, 3)):
            ops.insert(numbers.randrange(len(ops)), "dot")
        value, given = self.x, []
        for _ in range(numbers.randint(8, 15)):
            begin = value
            for op in ops:
                value = self.after(op, value, begin)
            given.append(value)
        of_all = numbers.random() < 0.3
        results = given if of_all else [self.made(f"copy({value})")]
        types = ", ".join([SQUARE] * len(results))
        root = f"  ROOT r = ({types}) tuple({', '.join(results)})"
        self.text = "\n".join(("HloModule m", "ENTRY e {", *self.lines, root, "}", ""))

    def made(self, expression: str, shape: str = SQUARE) -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(f"  {name} = {shape} {expression}")
        return name

    def parameter(self, shape: str) -> str:
        self.shapes.append(shape)
        return self.made(f"parameter({len(self.shapes) - 1})", shape)

    def constant(self, number: float) -> str:
        scalar = self.made(f"constant({number})", "f64[]")
        return self.made(f"broadcast({scalar}), dimensions={{}}")

    def after(self, op: str, value: str, begin: str) -> str:
        """The value behind one op of a layer, which begins with another value."""
        plain = {
            "negate": f"negate({value})",
            "abs": f"abs({value})",
            "double": f"multiply({value}, {self.two})",
            "halve": f"divide({value}, {self.two})",
            "transpose": f"transpose({value}), dimensions={{1,0}}",
            "reverse": f"reverse({value}), dimensions={{0}}",
            "residual": f"add({value}, {begin})",
            "least": f"minimum({value}, {begin})",
        }
        if op in plain:
            return self.made(plain[op])
        if op in SPREAD:
            return self.made(f"{op}({value}, {self.two})")
        if op in ("bias", "scale"):
            row = self.made(f"broadcast({self.parameter(ROW)}), dimensions={{{int(op == 'bias')}}}")
            return self.made(f"{'add' if op == 'bias' else 'multiply'}({value}, {row})")
        if op == "select":
            is_less = f"compare({value}, {self.two}), direction=LT"
            chosen = self.made(is_less, SQUARE.replace("f64", "pred"))
            return self.made(f"select({chosen}, {value}, {self.two})")
        w = self.parameter(SQUARE)
        forms = {"negated": "negate", "turned": "transpose", "doubled": "double"}
        w = self.after(forms[op], w, w) if op in forms else w
        dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
        return self.made(f"dot({value}, {w}), {dims}")

    def values(self, numbers: np.random.Generator) -> list[np.ndarray]:
        """Matrices that move and turn the signs of what they meet, so that all sums are exact."""
        return [
            np.eye(SIZE)[numbers.permutation(SIZE)] * numbers.choice([-1.0, 1.0], SIZE)
            if shape == SQUARE
            else numbers.choice([-1.0, 1.0], SIZE)
            for shape in self.shapes
        ]


def results(module: Module, values: list[np.ndarray]) -> list[np.ndarray]:
    found = hlo.evaluate(module, *values)
    assert isinstance(found, tuple)
    return [np.asarray(one) for one in found]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_passes_make_of_a_few_layers_is_right_for_all(seed: int) -> None:
    network = Network(random.Random(seed))
    values = network.values(np.random.default_rng(seed))
    expected = results(hlo.parse(network.text), values)
    for one, other in zip(
        results(hlo.optimize(hlo.parse(network.text)), values), expected, strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_most_of_these_networks_are_shortened() -> None:
    texts = (Network(random.Random(seed)).text for seed in SEEDS)
    assert sum(bool(shortened(hlo.parse(text))) for text in texts) >= len(SEEDS) // 2
