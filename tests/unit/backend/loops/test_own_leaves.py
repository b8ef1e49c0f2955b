"""Shares: what a kernel's units touch one part after the other."""

import pytest

import hlo
from hlo.backend.kernels.fused_loops import fused_kernel
from hlo.backend.linking.toolchain import host_target


@pytest.mark.parametrize(
    ("body", "own"),
    [
        ("ROOT r = f32[300,200] multiply(x, x)", {0, 1, 2}),
        ("ROOT r = f32[200,300] transpose(x), dimensions={1,0}", set()),
        ("ROOT r = f32[300,200] reverse(x), dimensions={0}", {1}),
        ("ROOT r = f32[300,200] reverse(x), dimensions={1}", {0, 1}),
        ("ROOT r = f32[4,300,200] broadcast(x), dimensions={1,2}", {1}),
    ],
)
def test_arrays_walked_along(body: str, own: set[int]) -> None:
    text = f"HloModule m\nENTRY e {{\n x = f32[300,200] parameter(0)\n {body}\n}}"
    kernel = fused_kernel(hlo.parse(text).entry.root, host_target())
    assert kernel.own == own
