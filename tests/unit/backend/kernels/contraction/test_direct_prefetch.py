"""Which direct convolutions ask for what they read and write next; hints change no bit."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo.backend.ir.kernel import KernelSequence
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.contraction import contraction_kernels
from hlo.machine import NAMED
from tests.support.by_threads import for_threads
from tests.support.contraction_harness import WRITTEN, fetches


def gradient(images: int, rows: int, columns: int, features: int) -> str:
    """Of windows of 3x3, by features."""
    size = f"{images},{rows},{columns},{features}"
    return f"""HloModule gradient
ENTRY e {{
  x = f32[{size}] parameter(0)
  g = f32[{size}] parameter(1)
  ROOT w = f32[3,3,1,{features}] convolution(x, g), window={{size={rows}x{columns} pad=1_1x1_1}},
    dim_labels=f01b_i01o->01bf, batch_group_count={features}
}}"""


def forward(images: int, rows: int, columns: int, features: int) -> str:
    """Windows of 3x3, by features."""
    size = f"{images},{rows},{columns},{features}"
    return f"""HloModule forward
ENTRY e {{
  x = f32[{size}] parameter(0)
  w = f32[3,3,1,{features}] parameter(1)
  ROOT y = f32[{size}] convolution(x, w), window={{size=3x3 pad=1_1x1_1}},
    dim_labels=b01f_01io->b01f, feature_group_count={features}
}}"""


def kernels(text: str, machine: str) -> KernelSequence:
    return contraction_kernels(hlo.parse(text).entry.root, Target(NAMED[machine]))


@pytest.mark.parametrize("machine", ["x86-64-v4", "x86-64-v3"])
def test_a_gradient_asks_for_rows_that_come_from_far(machine: str) -> None:
    assert fetches(kernels(gradient(2, 40, 41, 192), machine))
    assert not fetches(kernels(gradient(2, 20, 21, 192), machine))


def test_runs_of_features_that_come_from_far_are_long() -> None:
    """Six vectors of a place lie side by side: no unit takes half of them."""
    near, far = (kernels(gradient(8, rows, 56, 96), "x86-64-v4") for rows in (8, 56))
    assert [made.calls[0].kernel.units for made in (near, far)] == [16, 8]


@pytest.mark.parametrize(("images", "asks"), [(3, False), (7, True)])
def test_results_that_go_to_memory_are_asked_for(images: int, *, asks: bool) -> None:
    """9.6 MB with seven images."""
    (call,) = kernels(forward(images, 60, 59, 96), "x86-64-v4").calls
    assert (WRITTEN in call.kernel.text) == asks


def test_gradients_are_the_sums() -> None:
    x, g = (np.random.default_rng(n).standard_normal((2, 40, 41, 192)) for n in (1, 2))
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    taps = [
        (padded[:, a : a + 40, b : b + 41] * g).sum((0, 1, 2)) for a in range(3) for b in range(3)
    ]
    module = hlo.parse(gradient(2, 40, 41, 192))
    values = x.astype(np.float32), g.astype(np.float32)
    found = [np.asarray(for_threads(module, threads=threads)(*values)) for threads in (1, 3)]
    np.testing.assert_allclose(found[0].reshape(9, 192), taps, atol=1e-3)
    assert found[0].tobytes() == found[1].tobytes()


def test_results_are_the_sums() -> None:
    x = np.random.default_rng(1).standard_normal((7, 60, 59, 96)).astype(np.float32)
    w = np.random.default_rng(2).standard_normal((3, 3, 1, 96)).astype(np.float32)
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    taps = [padded[:, a : a + 60, b : b + 59] * w[a, b] for a in range(3) for b in range(3)]
    found = np.asarray(for_threads(hlo.parse(forward(7, 60, 59, 96)), threads=2)(x, w))
    np.testing.assert_allclose(found, sum(taps), atol=1e-4)
