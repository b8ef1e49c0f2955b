"""Tables are there once in a program, and full before anything can call it."""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest

import hlo
from hlo.backend.compilation import Compilation
from hlo.backend.linking import elf, jit
from hlo.backend.linking.toolchain import host_target
from hlo.driver import optimize
from hlo.ir import dtype as dt
from hlo.machine import NAMED
from tests.support.memory_map import allowed

N = 1 << 16
TWO = f"""HloModule m
ENTRY e {{
  x = bf16[{N}] parameter(0)
  y = bf16[{N // 2}] parameter(1)
  e = bf16[{N}] exponential(x)
  f = bf16[{N // 2}] exponential(y)
  ROOT r = (bf16[{N}], bf16[{N // 2}]) tuple(e, f)
}}
"""
CHAIN = f"""HloModule m
ENTRY e {{
  x = bf16[{N}] parameter(0)
  ROOT e = bf16[{N}] logistic(x)
}}
"""
PROGRAM = """
import sys
import numpy as np
import hlo
from hlo.ir import dtype as dt
from hlo.machine import NAMED
x = np.arange(1 << 16, dtype=np.uint16).view(dt.BF16.numpy)
made = np.asarray(hlo.compile(hlo.parse(sys.argv[1]))(x))
print(made.view(np.uint16).astype(np.uint64).sum(), "hlo.backend.linking.llvm" in sys.modules)
"""
WITHOUT_LOADER = """
from hlo.backend.linking import elf
elf.is_supported = lambda: False
from hlo.backend.linking.options import MODEL
assert MODEL == {"codemodel": "jitdefault"}
"""
pytestmark = pytest.mark.skipif(not host_target().isa.quick_gather(16), reason="no such gathers")


def every_code() -> np.ndarray:
    return np.arange(N, dtype=np.uint16).view(dt.BF16.numpy)


def expected(x: np.ndarray, text: str = CHAIN, mode: str = "strict") -> np.ndarray:
    """In arrays too short for tables."""
    size = 2048
    short = hlo.compile(hlo.parse(text.replace(str(N), str(size))), mode=mode, cache=False)
    return np.concatenate([np.asarray(short(part)) for part in np.split(x, N // size)])


def test_kernels_share_a_table_and_one_function_fills_all() -> None:
    machine = NAMED["sapphirerapids"]  # on which looking up is cheap
    made = Compilation(optimize(hlo.parse(TWO)), passes="", threads=1, machine=machine)
    program, text = made.program, "\n".join(m.text for m in made.ir)
    (table,) = set(re.findall(r"@hlo\.codes\.[0-9a-f]+\b", text))
    assert text.count(f"{table} = global [65540 x i16] zeroinitializer") == 1
    declared = ["".join(k.declarations).count(f"{table} = external") for k in program.kernels]
    assert declared == [1, 1]
    assert text.count("define i32 @hlo_fill(") == 1
    assert text.count(f"call void {table}.fill()") == 1


@pytest.mark.parametrize("mode", ["strict", "fast"])
def test_the_first_call_finds_tables_full(mode: str) -> None:
    x = every_code()
    executable = hlo.compile(hlo.parse(CHAIN), mode=mode, cache=False)
    found = np.asarray(executable.run_guarded(x))
    np.testing.assert_array_equal(found.view(np.uint16), expected(x, mode=mode).view(np.uint16))


def test_many_threads_may_make_the_first_call() -> None:
    x = every_code()
    executable = hlo.compile(hlo.parse(CHAIN), cache=False)
    together = Barrier(4)

    def called(_: int) -> np.ndarray:
        together.wait()
        return np.asarray(executable(x))

    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(called, range(4)):
            np.testing.assert_array_equal(found.view(np.uint16), expected(x).view(np.uint16))


def test_a_kept_program_fills_its_tables_in_every_process(tmp_path: Path) -> None:
    surroundings = {**os.environ, "HLO_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", PROGRAM, CHAIN]
    outputs = [
        subprocess.run(command, env=surroundings, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    wanted = expected(every_code()).view(np.uint16).astype(np.uint64).sum()
    assert outputs == [f"{wanted} True\n", f"{wanted} False\n"]


@pytest.mark.skipif(not elf.is_supported(), reason="elsewhere always")
def test_tables_are_full_where_llvm_links() -> None:
    """In a process of its own: the code model goes with the loader, and is chosen once."""
    command = [sys.executable, "-c", WITHOUT_LOADER + PROGRAM, CHAIN]
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    wanted = expected(every_code()).view(np.uint16).astype(np.uint64).sum()
    assert made == f"{wanted} True\n"


@pytest.mark.skipif(not elf.is_supported(), reason="our own loader")
def test_nothing_can_write_to_a_full_table() -> None:
    made = Compilation(optimize(hlo.parse(CHAIN)), passes="", threads=1, cache=False)
    program, code = made.program, jit.Code(made.objects)
    (table,) = re.findall(r"@(hlo\.codes\.[0-9a-f]+) =", "".join(program.kernels[0].declarations))
    at = code.address(table)
    assert allowed(at) == "rw-"
    code.run_once("hlo_fill")
    assert allowed(at) == "r--"
    code.run_once("no_such_function")
