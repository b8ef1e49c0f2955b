"""Calling compiled programs: arguments of every form, errors, results, memory, test modes."""

from __future__ import annotations

import copy
import gc
import pickle
import threading

import ml_dtypes
import numpy as np
import pytest

from hlo import driver
from hlo.backend.entry.process import BLOCK_BYTES, KEPT_BYTES
from hlo.backend.linking import native
from hlo.errors import HloError
from hlo.runtime.executable import Executable
from tests.support.tiny_kernels import compiled, f32

ADD = """HloModule m
ENTRY e { x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  ROOT r = f32[4] add(x, y) }"""
X, Y = f32(1, 2, 3, 4), f32(10, 20, 30, 40)


@pytest.fixture(scope="module")
def add() -> Executable:
    return compiled(ADD)


def test_plain_programs_are_called_natively(add: Executable) -> None:
    assert native.layouts_as_expected()
    assert type(add._call).__name__ == "builtin_function_or_method"


def test_strides_offsets_and_read_only_arrays(add: Executable) -> None:
    wide = np.zeros(9, np.float32)
    wide[1::2] = X
    np.testing.assert_array_equal(add(wide[1::2], Y), X + Y)
    unaligned = np.frombuffer(b"\0" + X.tobytes(), np.uint8)[1:].view(np.float32)
    np.testing.assert_array_equal(add(unaligned, Y), X + Y)
    frozen = X.copy()
    frozen.flags.writeable = False
    np.testing.assert_array_equal(add(frozen, Y[::-1]), X + Y[::-1])


def test_subclasses_memoryviews_and_equal_dtypes(add: Executable) -> None:
    np.testing.assert_array_equal(add(X.view(np.recarray), memoryview(Y)), X + Y)
    other = np.array(X, dtype=np.dtype(np.float32, metadata={"k": 1}))
    np.testing.assert_array_equal(add(other, Y), X + Y)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((X,), "1 argument, expected 2"),
        ((X, Y, Y), "3 arguments, expected 2"),
        ((X, Y[:3]), r"argument 1 \(y\) is f32\[3\], expected f32\[4\]"),
        ((X.reshape(2, 2), Y), r"f32\[2,2\], expected f32\[4\]"),
        ((X.astype(np.float64), Y), r"f64\[4\], expected f32\[4\]"),
        ((X, None), "None, expected"),
        ((X, "text"), "expected f32"),
        ((X, 3.0), "the number 3.0"),
        ((X.astype(">f4"), Y), "expected f32"),
    ],
)
def test_wrong_arguments(add: Executable, arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(HloError, match=message) as caught:
        add(*arguments)
    assert caught.value.code == "arguments"


def test_scalars_take_python_numbers() -> None:
    exe = compiled(
        "HloModule m\nENTRY e { x = s32[] parameter(0)\n ROOT r = s32[] multiply(x, x) }"
    )
    result = exe(7)
    assert isinstance(result, np.ndarray)
    assert result.shape == ()
    assert result == 49
    assert exe(np.int32(-3)) == 9
    with pytest.raises(HloError, match="does not hold it exactly"):
        exe(2**40)


def test_nested_tuples_and_tokens() -> None:
    text = """HloModule m
    ENTRY e {
      p = (f32[4], (f32[4], token[])) parameter(0)
      a = f32[4] get-tuple-element(p), index=0
      q = (f32[4], token[]) get-tuple-element(p), index=1
      b = f32[4] get-tuple-element(q), index=0
      t = token[] get-tuple-element(q), index=1
      c = f32[4] add(a, b)
      e = () tuple()
      i = (f32[4], token[]) tuple(c, t)
      ROOT r = ((f32[4], token[]), f32[4], ()) tuple(i, a, e)
    }"""
    (first, token), second, empty = compiled(text)((X, (Y, None)))  # type: ignore[misc]  # a tuple
    np.testing.assert_array_equal(first, X + Y)
    np.testing.assert_array_equal(second, X)
    assert token is None
    assert empty == ()


STRUCTURED = """HloModule m, entry_computation_layout={
  (f32[4]{0}, (f32[4]{0}, (f32[2,3]{1,0})))->((f32[2,3]{0,1}, f32[4]{0}), ())}
ENTRY e { x = f32[4] parameter(0)
  t = (f32[4], (f32[2,3])) parameter(1)
  y = f32[4] get-tuple-element(t), index=0
  inner = (f32[2,3]) get-tuple-element(t), index=1
  z = f32[2,3] get-tuple-element(inner), index=0
  sum = f32[4] add(x, y)
  none = () tuple()
  pair = (f32[2,3], f32[4]) tuple(z, sum)
  ROOT r = ((f32[2,3], f32[4]), ()) tuple(pair, none) }"""


def ordinary(text: str) -> Executable:
    """An executable with our own kernels: layouts of results take a transpose."""
    return driver.compile(driver.parse(text), cache=False)


def test_tuples_and_layouts_are_called_natively() -> None:
    structured = ordinary(STRUCTURED)
    z = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert structured._call.__name__ == "_structured"
    for arguments in ((X, (Y, (z,))), (X, [Y, (z,)]), (X, (Y[::1], [z.T.copy().T]))):
        (same, total), none = structured(*arguments)
        np.testing.assert_array_equal(same, z)
        assert same.strides == (4, 8)
        np.testing.assert_array_equal(total, X + Y)
        assert none == ()
    for bad in ((X, (Y, z)), (X, (Y, (z, z))), (X,), (X, (Y, (z[:1],))), (X, Y)):
        with pytest.raises(HloError):
            structured(*bad)


def test_structured_calls_from_several_threads() -> None:
    structured = compiled(STRUCTURED)
    z = np.ones((2, 3), np.float32)
    wrong: list[object] = []

    def work(k: int) -> None:
        x = np.full(4, k, np.float32)
        for _ in range(200):
            (_, total), _ = structured(x, (Y, (z,)))
            if not np.array_equal(total, x + Y):
                wrong.append(total)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_results_have_the_strides_of_the_entry_layout() -> None:
    text = """HloModule m, entry_computation_layout={(f32[2,3]{1,0})->f32[2,3]{0,1}}
    ENTRY e { x = f32[2,3]{1,0} parameter(0)
      ROOT r = f32[2,3]{0,1} add(x, x) }"""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    result = ordinary(text)(x)
    assert isinstance(result, np.ndarray)
    np.testing.assert_array_equal(result, x + x)
    assert result.strides == (4, 8)


def test_arguments_may_have_any_strides_whatever_their_layout() -> None:
    text = """HloModule m, entry_computation_layout={(f32[2,3]{0,1})->f32[2,3]{1,0}}
    ENTRY e { x = f32[2,3]{0,1} parameter(0)
      ROOT r = f32[2,3]{1,0} add(x, x) }"""
    x = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    np.testing.assert_array_equal(compiled(text)(x), x + x)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.int4, np.bool_, np.complex64])
def test_types_pass_through(dtype: type) -> None:
    names = {"bfloat16": "bf16", "int4": "s4", "bool": "pred", "complex64": "c64"}
    name = names[np.dtype(dtype).name]
    exe = compiled(f"HloModule m\nENTRY e {{ ROOT x = {name}[3] parameter(0) }}")
    given = np.array([0, 1, 1]).astype(dtype)
    result = exe(given)
    assert isinstance(result, np.ndarray)
    assert result.dtype == np.dtype(dtype)
    assert result.tobytes() == given.tobytes()
    assert not np.shares_memory(result, given)


def test_large_results_come_from_reused_blocks() -> None:
    count = 16 * BLOCK_BYTES
    exe = compiled(
        f"HloModule m\nENTRY e {{ x = f32[{count}] parameter(0)\n"
        f" ROOT r = f32[{count}] add(x, x) }}"
    )
    x = np.ones(count, np.float32)
    first = exe(x)
    assert isinstance(first, np.ndarray)
    address = first.ctypes.data
    assert address % 64 == 0
    view = first[5:]
    del first
    second = exe(x)
    assert isinstance(second, np.ndarray)
    assert second.ctypes.data != address  # the view keeps the block
    del view
    gc.collect()
    third = exe(x)
    assert isinstance(third, np.ndarray)
    assert third.ctypes.data == address
    assert (third == 2).all()


@pytest.mark.parametrize(("count", "from_blocks"), [(4, False), (32, True)])
def test_small_results_come_from_blocks_where_they_are_many(
    count: int, *, from_blocks: bool
) -> None:
    """The end of the C library's heap goes back to the system, and is touched anew by each call."""
    size = KEPT_BYTES
    made = "\n".join(f"  r{n} = f32[{size}] multiply(x, x)" for n in range(count))
    names = ", ".join(f"r{n}" for n in range(count))
    shapes = ", ".join([f"f32[{size}]"] * count)
    exe = compiled(
        f"HloModule m\nENTRY e {{\n  x = f32[{size}] parameter(0)\n{made}\n"
        f"  ROOT t = ({shapes}) tuple({names})\n}}"
    )
    results = exe(np.full(size, 3, np.float32))
    assert [r.base is not None for r in results] == [from_blocks] * count
    assert all((r == 9).all() for r in results)


def test_host_steps_run_and_their_errors_arrive() -> None:
    text = """HloModule m
    ENTRY e { x = f32[4] parameter(0)
      s = f32[4] sine(x)
      ROOT r = f32[4] add(s, x) }"""
    np.testing.assert_array_equal(compiled(text)(X), np.sin(X) + X)
    broken = text.replace("sine(x)", 'custom-call(x), custom_call_target="nobody"')
    exe = compiled(broken)
    for _ in range(2):  # the executable survives its failure
        with pytest.raises(HloError, match="nobody"):
            exe(X)


def test_host_steps_from_several_threads() -> None:
    exe = compiled(
        """HloModule m
        ENTRY e { x = f32[4] parameter(0)
          s = f32[4] sine(x)
          ROOT r = f32[4] add(s, x) }"""
    )
    wrong: list[float] = []

    def work(value: float) -> None:
        x = np.full(4, value, np.float32)
        for _ in range(50):
            if not np.array_equal(exe(x), np.sin(x) + x):
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(n / 3,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_native_call_from_several_threads(add: Executable) -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        x = np.full(4, number, np.float32)
        for _ in range(3000):
            if not np.array_equal(add(x, x), x + x):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_executables_are_collected() -> None:
    gc.collect()
    before = sum(isinstance(o, Executable) for o in gc.get_objects())
    exe = compiled(ADD)
    exe(X, Y)
    del exe
    gc.collect()
    assert sum(isinstance(o, Executable) for o in gc.get_objects()) == before


def test_results_outlive_their_executable() -> None:
    exe = compiled(ADD)
    result = exe(X, Y)
    del exe
    gc.collect()
    np.testing.assert_array_equal(result, X + Y)


def test_memory_report_names_what_the_arena_holds() -> None:
    exe = compiled(
        """HloModule m
        ENTRY e { x = f32[4] parameter(0)
          middle = f32[4] add(x, x)
          ROOT r = f32[4] subtract(x, middle) }"""
    )
    assert "middle = f32[4]{0} add  <string>:3" in exe.memory_report()
    assert exe.memory.argument_bytes == exe.memory.result_bytes == 16
    assert exe.temporary_bytes == 0 or exe.memory.peak_bytes == 16


def test_elided_constants_are_refused() -> None:
    text = "HloModule m\nENTRY e { ROOT c = f32[4] constant({...}) }"
    with pytest.raises(HloError) as caught:
        compiled(text)
    assert caught.value.code == "elided-constant"


def test_one_list_of_arguments_for_one_device(add: Executable) -> None:
    np.testing.assert_array_equal(add.run_devices([[X, Y]])[0], X + Y)
    with pytest.raises(HloError, match="one"):
        add.run_devices([[X, Y], [X, Y]])


def test_programs_run_through_ctypes_where_objects_lie_differently(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(native, "native_call", lambda: None)
    exe = compiled(ADD)
    assert type(exe._call).__name__ == "method"
    np.testing.assert_array_equal(exe(X, Y), X + Y)
    with pytest.raises(HloError, match="expected 2"):
        exe(X)


def test_layout_probe_refuses_other_interpreters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys._is_gil_enabled", lambda: False, raising=False)
    assert not native.layouts_as_expected()


def test_donate_names_arguments(add: Executable) -> None:
    np.testing.assert_array_equal(add(X, Y, donate=(1,)), X + Y)  # nothing can use it
    with pytest.raises(HloError, match="donate names argument 2"):
        add(X, Y, donate=(2,))


def test_donated_memory_takes_results_of_another_shape() -> None:
    exe = compiled("""HloModule m, input_output_alias={ {0}: (0, {}), {1}: (1, {}) }
ENTRY e { x = f32[6] parameter(0)
  y = f32[4] parameter(1)
  n = f32[6] negate(x)
  b = f32[2,3] reshape(n)
  z = f32[4] add(y, y)
  i = s32[4] bitcast-convert(z)
  ROOT r = (f32[2,3], s32[4]) tuple(b, i) }""")
    x, y = np.arange(6, dtype=np.float32), f32(1, 2, 3, 4)
    for donate in ((), (0, 1)):
        given = (x.copy(), y.copy())
        matrix, bits = exe(*given, donate=donate)
        np.testing.assert_array_equal(matrix, -x.reshape(2, 3))
        np.testing.assert_array_equal(bits, (y + y).view(np.int32))
        assert np.shares_memory(matrix, given[0]) == bool(donate)


def test_a_copy_is_itself_and_another_process_has_none(add: Executable) -> None:
    assert copy.deepcopy([add])[0] is add
    with pytest.raises(HloError, match="code of this process"):
        pickle.dumps(add)
