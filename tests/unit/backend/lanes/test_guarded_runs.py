"""Windows and pads of narrow numbers: whole runs are read where no instruction masks such loads."""

import re

import ml_dtypes
import numpy as np
import pytest

import hlo
from hlo.backend.compilation import Compilation
from hlo.machine import named
from tests.support.covering import covering
from tests.support.machines_here import that_run_here

MACHINES = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "armv8-a")
TYPES = {"u8": (np.uint8, "0"), "s8": (np.int8, "-128"), "s16": (np.int16, "-7"),
         "bf16": (ml_dtypes.bfloat16, "-inf"), "f16": (np.float16, "-inf"),
         "s32": (np.int32, "-9"), "f64": (np.float64, "-inf")}  # fmt: skip
SIZES = ((1, 5), (3, 31), (5, 129))  # rows shorter than a vector, and ends within one
PROGRAM = """HloModule windows
larger {{
  a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  ROOT c = {t}[] maximum(a, b)
}}
ENTRY e {{
  x = {t}[{n},{m}] parameter(0)
  z = {t}[] constant({z})
  w = {t}[{n},{m}] reduce-window(x, z), window={{size=3x3 pad=1_1x1_1}}, to_apply=larger
  p = {t}[{rows},{columns}] pad(x, z), padding=2_1x1_3
  r = {t}[{rows},{columns}] reverse(p), dimensions={{1}}
  q = {t}[{rows},{columns}] maximum(p, r)
  ROOT both = ({t}[{n},{m}], {t}[{rows},{columns}]) tuple(w, q)
}}"""


def program(dtype: str, n: int, m: int) -> str:
    return PROGRAM.format(t=dtype, z=TYPES[dtype][1], n=n, m=m, rows=n + 3, columns=m + 4)


@pytest.mark.parametrize(
    ("dtype", "machine", "n", "m"), covering(TYPES, that_run_here(*MACHINES), SIZES, several=(2,))
)
def test_values(machine: str, dtype: str, n: int, m: int) -> None:
    module = hlo.parse(program(dtype, n, m))
    x = (np.random.default_rng(m).standard_normal((n, m)) * 50).astype(TYPES[dtype][0])
    expected = hlo.evaluate(module, x)
    for a, b in zip(hlo.compile(module, machine=machine)(x), expected, strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def code(machine: str, dtype: str) -> str:
    module = hlo.parse(program(dtype, 5, 129))
    return "".join(map(str, Compilation(module, machine=named(machine)).ir))


def masked_loads(machine: str, dtype: str) -> list[str]:
    """The loads whose mask is no constant."""
    return re.findall(r"@llvm\.masked\.load\S+\(ptr [^,]*, <\d+ x i1> %", code(machine, dtype))


def test_only_what_an_instruction_masks_is_masked() -> None:
    assert masked_loads("x86-64-v3", "s32")
    assert not masked_loads("x86-64-v3", "u8")
    assert masked_loads("x86-64-v4", "u8")


def test_a_run_that_is_masked_off_is_not_looked_at() -> None:
    within = r"(%\w+) = icmp ule i64 .*(?:\n.*){1,9}"
    nothing = r"(%\w+) = icmp eq i\d+ %\w+, 0\n.*or i1 \1, \2\n"
    assert re.search(within + nothing, code("x86-64-v3", "u8"))
