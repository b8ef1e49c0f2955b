"""Complex numbers that are only moved go as words of their two parts, whatever the bits are."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo import driver
from hlo.machine import named
from tests.support.machines_here import that_run_here

HEAD = "HloModule m\nENTRY e {\n  x = c64[6,23] parameter(0)\n  i = s32[9,1] parameter(1)\n"
PROGRAMS = {
    "reverse": "  ROOT r = c64[6,23] reverse(x), dimensions={1}",
    "transpose": "  ROOT r = c64[23,6] transpose(x), dimensions={1,0}",
    "slice": "  ROOT r = c64[6,8] slice(x), slice={[0:6],[1:23:3]}",
    "pad": """  c = c64[] constant((nan, -0))
  ROOT r = c64[8,49] pad(x, c), padding=1_1x2_2_1""",
    "concatenate": """  s = c64[6,5] slice(x), slice={[0:6],[3:8]}
  ROOT r = c64[6,28] concatenate(s, x), dimensions={1}""",
    "gather": """  v = c64[138] reshape(x)
  ROOT r = c64[9] gather(v, i), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0},
    index_vector_dim=1, slice_sizes={1}""",
    "update": """  c = c64[] constant((1, 2))
  b = c64[2,3] broadcast(c), dimensions={}
  k = s32[] constant(3)
  ROOT r = c64[6,23] dynamic-update-slice(x, b, k, k)""",
    "two results": """  a = c64[23,6] transpose(x), dimensions={1,0}
  b = c64[23,6] reverse(a), dimensions={0}
  ROOT r = (c64[23,6], c64[23,6]) tuple(a, b)""",
}


@pytest.mark.parametrize("name", [None, *that_run_here("x86-64", "x86-64-v3", "x86-64-v4")])
@pytest.mark.parametrize("program", PROGRAMS)
def test_bits_stay(program: str, name: str | None) -> None:
    rng = np.random.default_rng(7)
    x = rng.integers(0, 2**64, (6, 23), np.uint64).view(np.complex64)
    i = rng.integers(-2, 140, (9, 1)).astype(np.int32)
    module = hlo.parse(f"{HEAD}{PROGRAMS[program]}\n}}\n")
    machine = None if name is None else named(name)
    found = hlo.compile(module, cache=False, machine=machine)(x, i)
    wanted = hlo.evaluate(module, x, i)
    pairs = zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]
    for a, b in pairs:
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_as_words() -> None:
    module = hlo.parse(f"{HEAD}{PROGRAMS['reverse']}\n}}\n")
    text = driver.emit_stage(module, "llvm", machine=named("x86-64-v3"))
    assert "load <4 x i64>" in text
    assert "float" not in text
