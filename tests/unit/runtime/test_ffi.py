"""Handlers of XLA's FFI: frames, attributes, errors, the thread pool; by JAX and by text."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hlo
from hlo.errors import HloError
from hlo.ops.custom_targets import TARGETS
from hlo.runtime.ffi import Handlers
from hlo.runtime.ffi_attributes import ffi_attributes
from hlo.tools.jax import jax_door
from tests.support import with_jax

SOURCE = Path(__file__).parents[2] / "support" / "ffi_handlers.c"
V = np.arange(6, dtype=np.float32).reshape(2, 3)
TEXT = """HloModule m
ENTRY e {
  x = SHAPE parameter(0)
  ROOT r = SHAPE custom-call(x), custom_call_target="hlo_test_scaled",
    api_version=API_VERSION_TYPED_FFI, backend_config={scale = 2.0 : f32, steps = array<i32: 3, 4>}
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    if not with_jax.available() or shutil.which("gcc") is None:
        pytest.skip("needs jax's headers and gcc")
    import jax

    made = tmp_path_factory.mktemp("ffi") / "handlers.so"
    flags = ["-shared", "-fPIC", "-O1", f"-I{jax.ffi.include_dir()}"]
    subprocess.run(["gcc", *flags, "-o", str(made), str(SOURCE)], check=True)
    return ctypes.CDLL(str(made))


def test_a_handler_by_text(library: Any) -> None:
    hlo.register_ffi("hlo_test_scaled", library.scaled)
    module = hlo.parse(TEXT.replace("SHAPE", "f32[2,3]"))
    np.testing.assert_array_equal(hlo.compile(module)(V), 2 * V + 7)
    np.testing.assert_array_equal(hlo.evaluate(module, V), 2 * V + 7)


def test_an_error_of_a_handler(library: Any) -> None:
    hlo.register_ffi("hlo_test_scaled", library.scaled)
    with pytest.raises(HloError, match="hlo_test_scaled: scaled wants f32"):
        hlo.compile(hlo.parse(TEXT.replace("SHAPE", "s32[2]")))(np.zeros(2, np.int32))


def test_a_handler_that_waits_for_the_thread_pool(library: Any) -> None:
    hlo.register_ffi("hlo_test_waiting", ctypes.cast(library.waiting, ctypes.c_void_p).value)
    text = 'HloModule m\nENTRY e { ROOT r = s32[] custom-call(), custom_call_target="T" }'
    module = hlo.parse(text.replace('"T"', '"hlo_test_waiting"'))
    assert hlo.compile(module)() == 8


def compiled(target: str, call: str, handler: Any) -> Any:
    hlo.register_ffi(target, handler)
    body = call.replace("TARGET", f'custom_call_target="{target}"')
    text = "HloModule m\nENTRY e { " + body + " }"
    return hlo.compile(hlo.parse(text))


def test_compiled_code_calls_handlers_itself(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of several threads at once; no Python of ours stands between."""
    monkeypatch.setattr(Handlers, "__call__", None)
    hlo.register_ffi("hlo_test_scaled", library.scaled)
    made = hlo.compile(hlo.parse(TEXT.replace("SHAPE", "f32[2,3]")))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda k: made(V + np.float32(k)), range(200)))
    for k, result in enumerate(found):
        np.testing.assert_array_equal(result, 2 * (V + k) + 7)


def test_stages_come_in_order(library: Any) -> None:
    bundle = dict.fromkeys(("instantiate", "prepare", "initialize", "execute"), library.staged)
    made = compiled("hlo_test_staged", "ROOT r = s32[] custom-call(), TARGET", bundle)
    assert [made(), made()] == [1234, 234]  # instantiated once


def test_results_in_the_memory_of_operands(library: Any) -> None:
    call = "x = f32[3] parameter(0) c = f32[3] custom-call(x), TARGET, "
    call += "output_to_operand_aliasing={{}: (0, {})} ROOT r = f32[3] add(c, x)"
    made = compiled("hlo_test_tripled", call, library.tripled)
    np.testing.assert_array_equal(made(V[1]), 4 * V[1])


@pytest.mark.parametrize("order", ["{1,0}", "{0,1}"])
def test_memory_lies_as_the_layout_says(library: Any, order: str) -> None:
    call = "x = f32[2,3] parameter(0) ROOT r = f32[6] custom-call(x), TARGET, "
    made = compiled(
        "hlo_test_lies",
        call + f"operand_layout_constraints={{f32[2,3]{order}}}",
        library.as_it_lies,
    )
    np.testing.assert_array_equal(made(V), (V.T if order == "{0,1}" else V).ravel())


def test_futures_are_waited_for(library: Any) -> None:
    made = compiled("hlo_test_later", "ROOT r = s32[] custom-call(), TARGET", library.later)
    assert [made() for _ in range(20)] == [7] * 20
    call = "x = s32[] parameter(0) ROOT r = s32[] custom-call(x), TARGET"
    broken = compiled("hlo_test_later", call, library.later)
    with pytest.raises(HloError, match="hlo_test_later: broken promise"):
        broken(np.int32(0))


@pytest.mark.filterwarnings("ignore")
def test_a_handler_that_jax_knows(library: Any) -> None:
    import jax

    jax.ffi.register_ffi_target("hlo_jax_scaled", jax.ffi.pycapsule(library.scaled), platform="cpu")

    def f(x: Any) -> Any:
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jax.ffi.ffi_call("hlo_jax_scaled", shape)(x, scale=np.float32(3)) + 1

    np.testing.assert_array_equal(hlo.jit(f)(V), 3 * V + 1)
    np.testing.assert_array_equal(hlo.jit(f)(V), jax.jit(f)(V))


def test_attributes() -> None:
    text = '{a = 1 : i8, b = "x\\n", c = array<i32: 1, 2>, d = {e = true, f = 1.5}, g}'
    found = ffi_attributes(text)
    assert [found["a"].dtype.name, found["b"], found["c"].tolist()] == ["int8", "x\n", [1, 2]]
    assert (found["d"]["e"], found["d"]["f"], found["g"]) == (True, 1.5, True)
    assert ffi_attributes("") == {}


@pytest.mark.parametrize("text", ["{a = }", "{a = 1", "a = 1", "{a = 1} b", "{a = 1 : q7}",
                                  "{a = 300 : i8}", "{" * 30])  # fmt: skip
def test_attributes_that_are_none(text: str) -> None:
    with pytest.raises(HloError):
        ffi_attributes(text)


def test_what_is_no_handler() -> None:
    with pytest.raises(HloError, match="expected an address"):
        hlo.register_ffi("x", "handler")
    with pytest.raises(HloError, match="stages"):
        hlo.register_ffi("x", {"prepare": 1})


@pytest.mark.filterwarnings("ignore")
def test_handlers_of_jax_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own product with a sparse matrix, which we have in Python alone, and its LAPACK."""
    if not with_jax.available():
        pytest.skip("needs jax")
    known = jax_door.ffi_handlers()
    sparse = jax_door.public("jax.experimental.sparse")
    matrix = np.array([[0, 2, 0], [1, 0, 3]], np.float32)
    csr = sparse.CSR.fromdense(matrix)
    product = sparse.csr_matmat

    def f(b: Any) -> Any:
        return product(csr, b)

    monkeypatch.delitem(TARGETS, "cpu_csr_sparse_dense_ffi", raising=False)
    b = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal(hlo.jit(f)(b), matrix @ b)
    square = np.array([[4, 2], [2, 3]], np.float32)
    hlo.register_ffi("hlo_test_potrf", known["lapack_spotrf_ffi"])
    call = "x = f32[2,2] parameter(0) ROOT r = (f32[2,2]{0,1}, s32[]) custom-call(x), TARGET, "
    call += "operand_layout_constraints={f32[2,2]{0,1}}, output_to_operand_aliasing={{0}: (0, {})},"
    text = call.replace("TARGET", 'custom_call_target="hlo_test_potrf"')
    config = " api_version=API_VERSION_TYPED_FFI, backend_config={uplo = 76 : ui8}"
    factor, info = hlo.compile(hlo.parse("HloModule m\nENTRY e { " + text + config + " }"))(square)
    np.testing.assert_allclose(np.tril(factor), np.linalg.cholesky(square), rtol=1e-6)
    assert info == 0


@pytest.mark.parametrize("address", [True, False, 0, -8])
def test_what_is_no_address_is_not_called(address: int) -> None:
    with pytest.raises(HloError, match=r"the address is .*, expected an integer from 1"):
        hlo.register_ffi("hlo_test_nothing", address)
