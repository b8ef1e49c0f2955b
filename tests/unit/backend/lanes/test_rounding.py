"""Rounding f32 lanes to bf16, by every instruction that a machine may have for it."""

import numpy as np
import pytest
from msgspec.structs import replace

from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.target import Target
from hlo.backend.lanes import types
from hlo.backend.linking.toolchain import host_machine
from hlo.ir import dtype as dt
from tests.support.lanes_jit import lanes_function


@pytest.mark.parametrize("without", [(), ("avx512vnni",), ("avx512vnni", "avx512f")])
@pytest.mark.parametrize("lanes", [4, 16])
def test_bits_below_a_bf16_round_to_nearest_even(lanes: int, without: tuple[str, ...]) -> None:
    def body(w: Writer, target: Target, operands: list[Value]) -> list[Value]:
        (x,) = operands
        found = types.rounded(w, target, x, dt.BF16)
        assert isinstance(found, Value)
        return [found]

    host = host_machine()
    target = Target(replace(host, features=host.features - frozenset(without)))
    upper = np.arange(1 << 16, dtype=np.uint32) << 16
    low = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    x = (upper[:, None] | low).reshape(-1).view(np.float32)
    (found,) = lanes_function(body, ["float"], ["float"], lanes=lanes, target=target)(x)
    with np.errstate(all="ignore"):
        wanted = x.astype(dt.BF16.numpy).astype(np.float32)
    nan = np.isnan(x)
    np.testing.assert_array_equal(np.isnan(found), nan)
    assert found[~nan].tobytes() == wanted[~nan].tobytes()
