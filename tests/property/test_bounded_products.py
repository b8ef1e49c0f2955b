"""Products in blocks of scores: what lies beside the bounds is neither read nor changed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from msgspec.structs import replace

from hlo import driver
from hlo.backend.ir.kernel import KernelSequence
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.contraction import contraction_kernels
from hlo.backend.kernels.contraction.matrix_units import amx
from hlo.machine import NAMED
from tests.support.contraction_harness import Compiled, levels, target_of
from tests.support.covering import covering
from tests.support.emulated_tiles import Tiles, emulated

SIDES = ("rows", "columns", "depth")
SIZES = (320, 1031)  # of what is bounded: whole tiles, a prime
BOUNDS = ((0, 64), (64, 256), (256, None))  # None: where it ends
AMX = {"amx-tile", "amx-bf16"}
TILES = replace(NAMED["x86-64-v3"], features=NAMED["x86-64-v3"].features | AMX)
BLOCK = amx.BLOCK_STEPS * 32  # depths of bf16


def text_of(
    side: str, size: int, order: str, dtype: str, *, is_added: bool, others: tuple[int, int]
) -> str:
    """A product in a block, of which a side has bounds; orders "nn", "nt", "tn" of the factors."""
    sizes = dict(zip((s for s in SIDES if s != side), others, strict=True)) | {side: size}
    m, n, k = (sizes[s] for s in SIDES)
    lhs, rhs = (m, k) if order[0] == "n" else (k, m), (k, n) if order[1] == "n" else (n, k)
    dims = f"lhs_contracting_dims={{{int(order[0] == 'n')}}}, "
    dims += f"rhs_contracting_dims={{{int(order[1] == 't')}}}"
    said = {"rows": '"bounded":0', "columns": '"bounded":1', "depth": '"sums":"columns"'}[side]
    said += ',"sums":"rows"' * is_added
    config = f'backend_config={{"hlo":{{{said}}}}}'
    a, b, c = f"{dtype}[{lhs[0]},{lhs[1]}]", f"{dtype}[{rhs[0]},{rhs[1]}]", f"f32[{m},{n}]"
    root = f"dot(x, y), {dims}, {config}"
    if is_added:
        root = "fusion(x, y, t), kind=kOutput, calls=added"
    return f"""HloModule m
added {{
  x = {a} parameter(0)
  y = {b} parameter(1)
  t = {c} parameter(2)
  p = {c} dot(x, y), {dims}, {config}
  ROOT r = {c} add(p, t)
}}
ENTRY e {{
  x = {a} parameter(0)
  y = {b} parameter(1)
  t = {c} parameter(2)
  ROOT r = {c} {root}
}}
"""


def made(text: str, target: Target) -> KernelSequence:
    root = driver.parse(text).entry.root
    return contraction_kernels(root, replace(target, is_bounded=True))


def checked(sequence: KernelSequence, text: str, level: str, side: str, *, is_added: bool) -> None:
    """All bounds, with numbers beside them that are not to be met."""
    compiled = Compiled(sequence, level)
    module = driver.parse(text)
    shapes = [p.shape for p in module.entry.parameters]
    rng = np.random.default_rng(4)
    dims = "lhs_contracting_dims={1}" in text, "rhs_contracting_dims={1}" in text
    far = ((BLOCK - 64, BLOCK + 128), (2 * BLOCK, None))
    for low, end in BOUNDS if max(shapes[0].dims) < BLOCK else (*BOUNDS, *far):
        x, y = (rng.standard_normal(s.dims).astype(s.dtype.numpy) for s in shapes[:2])
        total = rng.standard_normal(shapes[2].dims).astype(np.float32)
        a, b = x if dims[0] else x.T, y.T if dims[1] else y  # views: (m, k), (k, n)
        size = {"rows": a.shape[0], "columns": b.shape[1], "depth": a.shape[1]}[side]
        high = size if end is None else end
        outside = np.r_[0:low, high:size]
        if side == "rows":
            a[outside] = np.nan
        elif side == "columns":
            b[:, outside] = np.nan
        else:
            a[:, outside] = np.nan
        inside = slice(low, high)
        with np.errstate(invalid="ignore"):
            want = a.astype(np.float64) @ b.astype(np.float64)
            if side == "depth":
                want = a[:, inside].astype(np.float64) @ b[inside].astype(np.float64)
        got = total.copy() if is_added else np.full_like(total, 7)
        compiled([x, y, got][: 2 + is_added], got, bounds=(low, high))
        seen = {"rows": np.s_[inside], "columns": np.s_[:, inside], "depth": np.s_[:]}[side]
        expected = want[seen] + (total[seen] if is_added else 0)
        np.testing.assert_allclose(got[seen], expected, rtol=1e-4, atol=2e-4)
        if is_added:
            rest = np.delete(got, np.r_[inside], axis=int(side == "columns"))
            kept = np.delete(total, np.r_[inside], axis=int(side == "columns"))
            assert rest.tobytes() == kept.tobytes()


@pytest.mark.parametrize(
    ("side", "is_added", "order", "level", "size", "dtype"),
    covering(
        [(side, n) for side in SIDES for n in (False, True) if (side, n) != ("depth", True)],
        ("nn", "nt", "tn"),
        levels(),
        [*((n, "f32") for n in SIZES), (SIZES[-1], "bf16")],
        several=(0, 3),
    ),
)
def test_bounded_products(
    level: str, side: str, size: int, dtype: str, order: str, *, is_added: bool
) -> None:
    text = text_of(side, size, order, dtype, is_added=is_added, others=(128, 64))
    sequence = made(text, target_of(level))
    if not sequence.is_bounded:  # then a block computes all of its scores
        assert is_added
        assert side == "columns"
        assert size % 64
        return
    assert sequence.must_alias == (frozenset({(2, 0)}) if is_added else frozenset())
    checked(sequence, text, level, side, is_added=is_added)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("size", [SIZES[-1], 2 * BLOCK + 100])
def test_bounded_products_of_tiles(side: str, size: int) -> None:
    """On emulated tiles: blocks of depth, too, and sums that are made once though factors are
    looked through for subnormal numbers."""
    if "avx2" not in levels():
        pytest.skip("what is around tiles is of AVX2 here")
    if side != "depth" and size > 2 * BLOCK:
        pytest.skip("of depth alone")
    tiles = Tiles()
    for order, is_added in itertools.product(("nn", "nt", "tn"), (False, True)):
        if is_added and side == "depth":
            continue
        text = text_of(side, size, order, "bf16", is_added=is_added, others=(128, 64))
        sequence = made(text, Target(TILES))
        assert sequence.sums is not None
        assert sequence.sums.plan == "matrix units"
        if not sequence.is_bounded:
            assert is_added
            assert size % 8
            continue
        checked(emulated(sequence), text, "avx2", side, is_added=is_added)
    assert tiles.events["tdpbf16ps"]
