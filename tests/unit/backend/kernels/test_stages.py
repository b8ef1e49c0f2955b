"""Long chains in stages: the same values as in one loop, at lengths around vectors and blocks."""

from __future__ import annotations

import numpy as np
import pytest

from hlo.backend.loops import choose_stages
from hlo.parser.parse import parse
from tests.support.kernel_check import check
from tests.support.kernel_runner import run

CHAIN = """
  a = {t} exponential(x)
  b = {t} add(a, x)
  c = {t} log-plus-one(a)
  d = {t} divide(c, b)
  k = pred{d} compare(d, x), direction=GT
  e = {t} tanh(d)
  f = {t} logistic(e)
  g = {t} select(k, f, c)
  h = {t} exponential(g)
  i = {t} multiply(h, b)
  ROOT r = {t} log-plus-one(h)
"""


def fused(dims: str, kind: str = "f32", head: str = "", entry: str = ""):  # type: ignore[no-untyped-def]  # an Instruction
    t = f"{kind}[{dims}]"
    head = head or f"x = {t} parameter(0)"
    entry = entry or f"x = {t} parameter(0)\n ROOT r = {t} fusion(x)"
    chain = CHAIN.replace("{t}", t).replace("{d}", f"[{dims}]")
    return parse(
        f"HloModule m\nf {{ {head}\n{chain} }}\nENTRY e {{ {entry}, kind=kLoop, calls=f }}"
    ).entry.root


@pytest.mark.parametrize("n", [128, 131, 2047, 2048, 2049, 4100, 9001])
def test_a_long_chain_of_every_length(n: int) -> None:
    assert check(fused(str(n))) == ""


@pytest.mark.parametrize("kind", ["f64", "bf16", "f16"])
def test_a_long_chain_of_every_type(kind: str) -> None:
    assert check(fused("2100", kind)) == ""


@pytest.mark.parametrize("dims", ["3,700", "70,130", "2,3,2500"])
def test_a_long_chain_over_rows(dims: str) -> None:
    last = dims.rsplit(",", 1)[1]
    axis = dims.count(",")
    head = (
        f"y = f32[{last}] parameter(0)\n z = f32[{dims}] parameter(1)\n"
        f"s = f32[{dims}] broadcast(y), dimensions={{{axis}}}\n x = f32[{dims}] add(s, z)"
    )
    entry = (
        f"y = f32[{last}] parameter(0)\n z = f32[{dims}] parameter(1)\n"
        f" ROOT r = f32[{dims}] fusion(y, z)"
    )
    assert check(fused(dims, head=head, entry=entry)) == ""


def test_the_same_bits_as_in_one_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(3).standard_normal(5000).astype(np.float32)
    (split,) = run(fused("5000"), (x,))
    monkeypatch.setattr(choose_stages, "_may_split", lambda _: False)
    assert run(fused("5000"), (x,))[0].tobytes() == split.tobytes()


@pytest.mark.parametrize("kind", ["f64", "f32"])
@pytest.mark.parametrize("n", [255, 512, 2053, 4099, 9001])
def test_vectors_that_go_together_through_a_chain(
    monkeypatch: pytest.MonkeyPatch, kind: str, n: int
) -> None:
    """The same bits as one after the other, at lengths around vectors and blocks."""
    t = f"{kind}[{n}]"
    lines = [f"v0 = {t} parameter(0)", f"y = {t} cosine(v0)", f"v1 = {t} multiply(v0, y)"]
    for k in range(1, 60):
        lines += [f"m{k} = {t} multiply(v{k}, y)", f"v{k + 1} = {t} subtract(m{k}, v{k - 1})"]
    body = "\n".join([*lines, f"ROOT r = {t} negate(v60)"])
    program = (
        f"HloModule m\nf {{ {body} }}\n"
        f"ENTRY e {{ x = {t} parameter(0)\n ROOT r = {t} fusion(x), kind=kLoop, calls=f }}"
    )
    root = parse(program).entry.root
    x = np.random.default_rng(3).standard_normal(n).astype(f"f{int(kind[1:]) // 8}")
    (together,) = run(root, (x,))
    monkeypatch.setattr(choose_stages, "_MOST_ABREAST", 1)
    assert run(root, (x,))[0].tobytes() == together.tobytes()
