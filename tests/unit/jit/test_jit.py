"""hlo.jit and hlo.from_jax: conventions of calls, caches, memory, threads, errors."""

from __future__ import annotations

import copy
import gc
import re
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hlo
from hlo.errors import HloError
from hlo.frontend.jit import Jitted
from hlo.ops.custom_targets import REGISTERED
from hlo.tools.jax import jax_door
from tests.support import with_jax
from tests.support.covering import covering

if not with_jax.available():
    pytest.skip("needs jax", allow_module_level=True)

import jax  # behind the check
import jax.export
import jax.numpy as jnp

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]
ONE = np.array(1, np.float32)
V = np.arange(6, dtype=np.float32)


DOCS = Path(__file__).parents[3] / "docs" / "jax.md"


def test_what_the_docs_show() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(block, names)
    assert names["f"](np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)).shape == (2, 4)


def add(a: Any, b: Any) -> Any:
    return a + b


def test_nothing_of_jax_is_imported_at_the_start() -> None:
    code = "import hlo, sys; hlo.jit; hlo.from_jax; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)


@pytest.mark.parametrize("results", ["numpy", "jax"])
@pytest.mark.parametrize("donated", [(), (0,)])
def test_tokens_are_results_that_another_call_takes(results: str, donated: tuple[int, ...]) -> None:
    f = hlo.jit(lambda x, t: (x + 1, jax.lax.after_all(t)), results=results, donate_argnums=donated)
    first, token = f(jnp.asarray(V), jax.lax.create_token())
    second, _ = f(first, token)
    np.testing.assert_array_equal(second, V + 2)


def test_the_second_call_is_native() -> None:
    f = hlo.jit(add)
    first, second = f(ONE, ONE), f(ONE, ONE)
    assert (first, second) == (2, 2)
    assert type(f._direct[1]).__name__ == "builtin_function_or_method"


@pytest.mark.parametrize(
    ("second", "kind"),
    covering(
        [2, 2.5, True, np.float32(3), np.int8(3), np.float64(2)],
        [np.float32, np.int32, jnp.bfloat16, np.bool_],
        strength=1,
    ),
)
def test_weak_types_after_a_native_call(second: Any, kind: Any) -> None:
    """A number is of a weak type, and of another program than an array of its type."""
    f, a = hlo.jit(add), np.ones((), kind)
    f(a, np.ones((), np.float32))
    f(a, a)
    wanted = jax.jit(add)(a, second)
    assert (f(a, second).dtype, f(a, second)) == (wanted.dtype, wanted)
    weak = jnp.asarray(2.5) if isinstance(second, float) else a
    assert f(a, weak).dtype == jax.jit(add)(a, weak).dtype


def test_other_structures_after_a_native_call() -> None:
    f = hlo.jit(lambda a, *rest: a + sum(rest))
    np.testing.assert_array_equal(f(V, V), 2 * V)
    np.testing.assert_array_equal(f(V, V, V), 3 * V)
    with pytest.raises(TypeError):
        f()
    with pytest.raises(TypeError):
        hlo.jit(add)(V)


def test_settings_of_jax_are_part_of_the_key() -> None:
    f = hlo.jit(lambda a: a + jnp.arange(3).sum())
    x = np.array(2)
    assert f(x).dtype == np.int32
    with with_jax.enable_x64(True):
        assert f(x).dtype == np.int64
    assert f(x).dtype == np.int32


def test_static_arguments() -> None:
    f = hlo.jit(lambda x, n, *, up=False: x**n + up, static_argnums=1, static_argnames="up")
    assert [f(V, 2)[2], f(V, n=3)[2], f(V, 2, up=True)[2]] == [4, 8, 5]
    with pytest.raises(HloError, match="hash"):
        f(V, [1])
    already = hlo.jit(jax.jit(lambda x, n: x * n, static_argnums=-1))
    assert already(V, 3)[1] == 3


def test_a_copy_is_the_function() -> None:
    f = hlo.jit(lambda a: a + 1)
    np.testing.assert_array_equal(copy.deepcopy([f])[0](V), f(V))


def test_as_a_decorator_and_a_method() -> None:
    class Model:
        def __init__(self) -> None:
            self.scale = 3

        @hlo.jit(static_argnums=0)
        def double(self, x: Any) -> Any:
            """Twice."""
            return 2 * x * self.scale

    assert Model().double(V)[1] == 6
    assert Model.double.__doc__ == "Twice."


def test_inside_what_jax_traces() -> None:
    f = hlo.jit(lambda a: jnp.sin(a) * 2)
    assert np.isclose(jax.grad(f)(0.0), 2)
    assert jax.jit(f)(ONE).dtype == np.float32
    assert jax.vmap(f)(V).shape == (6,)
    assert jax.lax.scan(lambda c, x: (f(c), x), 0.0, V)[1].shape == (6,)


def test_results_as_jax_arrays_share_memory() -> None:
    f = hlo.jit(lambda a: {"r": a * 2, "w": 3.0 * jnp.ones(())}, results="jax")
    made = f(V)
    assert isinstance(made["r"], jax.Array)
    again = f(made["r"])
    np.testing.assert_array_equal(again["r"], 4 * V)
    assert f(jnp.asarray(V))["r"].dtype == np.float32
    assert again["r"].unsafe_buffer_pointer() % 64 == 0
    weak = hlo.jit(lambda a: a * 2, results="jax")(3.0)
    assert weak.weak_type
    assert (weak + jnp.ones((), jnp.bfloat16)).dtype == jnp.bfloat16


@pytest.mark.parametrize("kind", ["bfloat16", "float8_e4m3fn", "int4", "bool_", "complex64"])
def test_every_type_as_jax_arrays(kind: str) -> None:
    a = jnp.asarray([1, 0, 1], getattr(jnp, kind))
    made = hlo.jit(lambda x: x, results="jax")(a)
    assert made.dtype == a.dtype
    np.testing.assert_array_equal(np.asarray(made), np.asarray(a))


def test_arrays_outlive_executables_and_the_other_way_round() -> None:
    f = hlo.jit(lambda a: a + 1, results="jax")
    made = [f(V) for _ in range(3)]
    f.clear_cache()
    del f
    gc.collect()
    np.testing.assert_array_equal(made[2], V + 1)
    g = hlo.jit(lambda a: a + 1)
    view = np.asarray(g(jnp.asarray(V)))
    gc.collect()
    np.testing.assert_array_equal(view, V + 1)


def test_donated_arrays_lend_their_memory_where_it_is_ours() -> None:
    f = hlo.jit(lambda a: a * 2, donate_argnums=0)
    given = V.copy()
    first = f(given)
    np.testing.assert_array_equal(given, V)  # the caller's array stays
    address = first.__array_interface__["data"][0]
    second = f(first)
    assert second.__array_interface__["data"][0] == address
    np.testing.assert_array_equal(second, 4 * V)
    x = jnp.asarray(V) + 0
    np.testing.assert_array_equal(f(x), 2 * V)
    assert x.is_deleted()


def test_donated_jax_arrays_are_reused_in_place_and_deleted() -> None:
    f = hlo.jit(lambda s, x: ({k: v + x for k, v in s.items()}, x), donate_argnums=0, results="jax")
    state = {"a": jnp.zeros(20_000), "b": jnp.zeros((30, 1000))}
    state, _ = f(state, 1.0)
    first, addresses = state, {k: v.unsafe_buffer_pointer() for k, v in state.items()}
    state, _ = f(state, 1.0)
    assert {k: v.unsafe_buffer_pointer() for k, v in state.items()} == addresses
    assert first["a"].is_deleted()
    view = np.asarray(state["a"])
    other, _ = f(state, 1.0)  # somebody looks at it, who must not see it change
    assert (view[0], float(other["a"][0])) == (2, 3)
    assert other["a"].unsafe_buffer_pointer() != addresses["a"]
    last, _ = f(other, np.float32(1))  # another type, found after the arrays were given away
    np.testing.assert_array_equal(last["a"], np.full(20_000, 4, np.float32))
    with pytest.raises(RuntimeError, match="deleted"):
        f(other, np.float32(1))


def test_closed_over_values_and_threads() -> None:
    f = hlo.jit(lambda a, n: a * n + V.size, static_argnums=1)
    failures: list[str] = []

    def work(seed: int) -> None:
        for k in range(60):
            n = (seed + k) % 3
            x = np.full(4 + k % 2, seed, np.float32)
            if not np.array_equal(f(x, n), x * n + 6):
                failures.append(f"{seed} {k}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(f._variants) == 6  # three values, two shapes


def grown(call: Any, count: int) -> int:
    """The bytes that Python holds more after so many calls: the least of three times, for what
    another module keeps from its first use on may fall into one of them.
    """
    for _ in range(50):
        call()
    return min(held_more(call, count) for _ in range(3))


def held_more(call: Any, count: int) -> int:
    """What was there before the calls is frozen: collections walk what they made."""
    gc.collect()
    gc.freeze()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(count):
        call()
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    gc.unfreeze()
    return after - before


@pytest.mark.parametrize("count", [2000, pytest.param(100_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("results", ["numpy", "jax"])
def test_memory_does_not_grow(results: str, count: int) -> None:
    f = hlo.jit(lambda a, b: (a + b, {"k": a}), results=results)
    x = jnp.asarray(V)
    assert grown(lambda: f(V, V), count) < 20_000
    assert grown(lambda: f(x, 2.0), count // 4) < 20_000


def test_errors_of_callbacks_are_the_users() -> None:
    def broken(v: Any) -> Any:
        raise KeyError("mine")

    f = hlo.jit(lambda a: jax.pure_callback(broken, a, a))
    with pytest.raises(KeyError, match="mine"):
        f(V)


def test_operands_that_callbacks_keep_stay() -> None:
    kept: list[Any] = []
    f = hlo.jit(lambda a: (jax.debug.callback(kept.append, a * 3), a + 1)[1])
    for value in (V, V + 1, V + 2):
        f(value)
    jax.effects_barrier()
    np.testing.assert_array_equal(kept, [V * 3, (V + 1) * 3, (V + 2) * 3])


def test_disable_jit_runs_in_python() -> None:
    f = hlo.jit(lambda a: a * 2 if a.sum() > 0 else a)
    with jax.disable_jit():
        found = f(V)
    assert type(found) is np.ndarray
    np.testing.assert_array_equal(found, V * 2 if V.sum() > 0 else V)
    with pytest.raises(jax.errors.TracerBoolConversionError):
        f(V)


def test_references_are_refused() -> None:
    if not hasattr(jax, "new_ref"):
        pytest.skip("a release without references")
    held = jax.new_ref(jnp.zeros(()))
    for f, arguments in (
        (lambda r: r[...], (held,)),
        (lambda a: held.__setitem__(..., a.sum()), (V,)),
    ):
        with pytest.raises(HloError, match="references"):
            hlo.jit(f)(*arguments)
    inside = hlo.jit(lambda a: jax.new_ref(a)[...])
    np.testing.assert_array_equal(inside(V), V)


def test_breakpoints_are_dropped() -> None:
    def f(a: Any) -> Any:
        jax.debug.breakpoint()
        b = jax.debug.breakpoint(token=a * 2)
        jax.debug.breakpoint(ordered=True)
        return b + 1

    compiled = hlo.jit(f)
    with pytest.warns(UserWarning, match="breakpoint is dropped"):
        np.testing.assert_array_equal(compiled(V), V * 2 + 1)
    module = hlo.from_jax(lambda a: (jax.debug.breakpoint(), a)[1], V)
    assert "custom-call" not in str(hlo.optimize(module))


def test_callbacks_of_a_text_are_given_to_compile() -> None:
    f = jax.jit(lambda a: jax.pure_callback(np.sin, a, a) + jax.pure_callback(np.cos, a, a))
    text = f.lower(V).compiler_ir("hlo").as_hlo_text()
    if "index" not in text:
        pytest.skip("the text of this release says no numbers")
    module = hlo.parse(text)
    with pytest.raises(HloError, match="traced the program"):
        hlo.compile(module)
    made = hlo.compile(module, callbacks=[lambda a: a * 2, lambda a: a + 1])
    np.testing.assert_array_equal(made(V), V * 3 + 1)
    with pytest.raises(HloError, match="expected one of 1"):
        hlo.compile(module, callbacks=[np.sin])


def test_callbacks_that_fill_buffers() -> None:
    buffers = pytest.importorskip("jax.experimental.buffer_callback")
    seen: list[Any] = []

    def fill(ctx: Any, out: Any, x: Any, k: Any) -> None:
        seen.append((ctx.stage == buffers.ExecutionStage.EXECUTE, x.writeable, out[0].writeable))
        assert (x.shape, x.dtype, x.ndim) == (V.shape, V.dtype, 1)
        np.asarray(out[0])[...] = np.asarray(x) * np.asarray(k)
        np.asarray(out[1])[...] = np.from_dlpack(x).sum()
        with pytest.raises(RuntimeError, match="is not available"):
            _ = ctx.stream

    like = (jax.ShapeDtypeStruct(V.shape, V.dtype), jax.ShapeDtypeStruct((), np.float32))
    call = buffers.buffer_callback(fill, like)
    doubled, total = hlo.jit(call)(V, np.float32(2))
    np.testing.assert_array_equal(doubled, V * 2)
    np.testing.assert_allclose(total, V.sum(), rtol=1e-6)
    assert seen == [(True, False, True)]

    def add(ctx: Any, out: Any, x: Any) -> None:
        assert np.asarray(x).ctypes.data == np.asarray(out).ctypes.data
        np.asarray(out)[...] += 1

    given = V.copy()
    in_place = buffers.buffer_callback(add, like[0], input_output_aliases={0: 0})
    np.testing.assert_array_equal(hlo.jit(in_place)(given), V + 1)
    np.testing.assert_array_equal(given, V)


def test_callbacks_are_forgotten_with_their_function() -> None:
    f = hlo.jit(lambda a: jax.pure_callback(lambda v: v * 2, a, a))
    np.testing.assert_array_equal(f(V), V * 2)
    known = len(REGISTERED)
    f.clear_cache()
    del f
    gc.collect()
    assert len(REGISTERED) == known - 1


def test_from_jax_keeps_every_argument() -> None:
    module = hlo.from_jax(lambda a, b, c: a + c["x"], ONE, V, {"x": ONE})
    assert [str(p.shape) for p in module.entry.parameters] == ["f32[]", "f32[6]{0}", "f32[]"]
    shape = jax.ShapeDtypeStruct((2, 3), np.float16)
    assert str(hlo.from_jax(jnp.sin, shape).entry.root.shape) == "f16[2,3]{1,0}"
    assert hlo.jit(jnp.sin).compiled_for(shape)(np.zeros((2, 3), np.float16)).shape == (2, 3)


def test_compile_takes_what_jax_has_lowered() -> None:
    jitted = jax.jit(lambda a, b: a + 1)
    made = jitted.lower(V, V)
    for program in (made, made.compiler_ir("hlo"), jax.export.export(jitted)(V, V)):
        np.testing.assert_array_equal(hlo.compile(program)(V), V + 1)
    np.testing.assert_array_equal(hlo.compile(hlo.from_jax(made))(V), V + 1)
    with pytest.raises(HloError, match="has no shapes yet"):
        hlo.compile(jitted)
    with pytest.raises(HloError, match="expected a module"):
        hlo.compile(3)


def test_an_export_of_symbolic_sizes_is_refused() -> None:
    sizes = jax.ShapeDtypeStruct(jax.export.symbolic_shape("b, 3"), np.float32)
    with pytest.raises(HloError, match=r"argument 0 is float32\[b,3\], expected sizes in numbers"):
        hlo.compile(jax.export.export(jax.jit(lambda a: a.sum()))(sizes))


def test_bits_of_constants_are_kept() -> None:
    odd = np.array([0x7FC12345, 0xFFC00001], np.uint32).view(np.float32)
    f = hlo.jit(lambda a: jax.lax.bitcast_convert_type(jnp.asarray(odd), jnp.uint32) + a)
    assert hex(f(np.uint32(0))[0]) == "0x7fc12345"


def test_what_is_asked_in_vain() -> None:
    with pytest.raises(HloError, match="results is 'torch'"):
        hlo.jit(add, results="torch")
    with pytest.raises(HloError, match="jitted already"):
        hlo.jit(jax.jit(add), static_argnums=0)
    assert isinstance(hlo.jit(add), Jitted)


def test_versions_that_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    jax_door.check_available.cache_clear()
    monkeypatch.setattr(jax_door.metadata, "version", lambda name: "0.99.1")
    with pytest.raises(HloError, match=r"jax is 0.99.1, expected 0.7 to 0.10"):
        hlo.jit(add)
    monkeypatch.undo()
    jax_door.check_available.cache_clear()
