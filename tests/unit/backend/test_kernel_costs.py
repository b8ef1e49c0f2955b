"""What a kernel of loops says of its work, beside the machine's rates, which are f32's."""

from __future__ import annotations

import pytest

from hlo.backend.compilation import Compilation
from hlo.machine import NAMED
from hlo.parser.parse import parse


@pytest.mark.parametrize(
    ("dtype", "share"), [("f32", 1.0), ("s32", 1.0), ("u8", 0.25), ("s16", 0.5), ("f64", 2.0)]
)
def test_operations_are_weighed_by_the_lanes_of_their_type(dtype: str, share: float) -> None:
    text = f"""HloModule m
      ENTRY e {{
        x = {dtype}[1024] parameter(0)
        y = {dtype}[1024] parameter(1)
        ROOT z = {dtype}[1024] add(x, y)
      }}"""
    (kernel,) = Compilation(parse(text), machine=NAMED["x86-64-v4"]).program.kernels
    assert kernel.flops == 1024 * share
