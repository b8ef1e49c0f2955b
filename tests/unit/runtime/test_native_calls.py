"""The native function's arguments beside arrays: numbers, memory given away, many threads."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from hlo import driver
from hlo.errors import HloError
from hlo.runtime.executable import Executable
from tests.support.tiny_kernels import compiled, f32


def echo(kind: str) -> Executable:
    return compiled(
        f"HloModule m\nENTRY e {{ x = {kind}[] parameter(0)\n  ROOT y = {kind}[] copy(x) }}"
    )


def whole(text: str) -> Executable:
    """A program made with all kernels."""
    made = driver.compile(driver.parse(text))
    assert isinstance(made, Executable)
    return made


@pytest.fixture
def slow_calls(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What was left to Python."""
    seen: list[object] = []
    whole = Executable._slow_call

    def counted(self: Executable, *arguments: object, **options: object) -> object:
        seen.append(arguments)
        return whole(self, *arguments, **options)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(Executable, "_slow_call", counted)
    return seen


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        ("s8", (-128, 127)), ("s16", (-32768, 7)), ("s32", (-(2**31), 2**31 - 1)),
        ("s64", (-(2**63), 2**63 - 1)), ("u8", (0, 255)), ("u16", (65535,)),
        ("u32", (2**32 - 1,)), ("u64", (2**63 - 1, 2**64 - 1)), ("pred", (True, False)),
        ("f64", (0.1, -3, float("inf"), 2**53, 2**60)), ("f32", (0.5, -7, 1e300 * 1e10, 2**24)),
        ("bf16", (1.5, -256, -0.0)), ("f16", (1.5, -256)), ("c64", (1.5, 2j)), ("f8e5m2", (0.5,)),
    ],
)  # fmt: skip
def test_numbers_that_the_type_holds(kind: str, numbers: tuple[complex, ...]) -> None:
    program = echo(kind)
    for number in numbers:
        result = program(number)
        assert isinstance(result, np.ndarray)
        assert result.shape == ()
        assert result.astype(complex if kind == "c64" else result.dtype).item() == number
        assert np.signbit(result.real.astype(np.float64)) == np.signbit(complex(number).real)
        assert program(result[()]).tobytes() == result.tobytes()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        ("s8", 128), ("s8", -129), ("u8", -1), ("u8", 256), ("u64", -1), ("u64", 2**64),
        ("s64", 2**63), ("s32", 1.0), ("s32", True), ("pred", 1), ("pred", 0.0), ("f32", 0.1),
        ("f32", 2**24 + 1), ("f32", 1e300), ("bf16", 1.0 + 2**-8), ("f64", 2**53 + 1),
        ("f32", True), ("f32", 1j),
    ],
)  # fmt: skip
def test_numbers_that_it_does_not_hold(kind: str, number: complex) -> None:
    with pytest.raises(HloError, match=r"argument 0 \(x\) is the number .* expected"):
        echo(kind)(number)


def test_nan_and_scalars_of_other_types() -> None:
    program = echo("f32")
    assert np.isnan(program(float("nan")))  # type: ignore[call-overload]
    for wrong in (np.float64(1), np.int32(1), np.bool_(True), ml_dtypes.bfloat16(1)):
        with pytest.raises(HloError, match=r"argument 0 \(x\) is .*\[\], expected f32\[\]"):
            program(wrong)
    with pytest.raises(HloError, match=r"the number 1\.0, expected f32\[4\]"):
        compiled("HloModule m\nENTRY e { x = f32[4] parameter(0)\n  ROOT y = f32[4] copy(x) }")(1.0)


def test_numbers_and_strides_never_reach_the_slow_call(slow_calls: list[object]) -> None:
    program = whole("""HloModule m
ENTRY e { x = f32[2,3] parameter(0)
  s = f32[] parameter(1)
  b = f32[2,3] broadcast(s), dimensions={}
  ROOT r = f32[2,3] multiply(x, b) }""")
    x = np.arange(6, dtype=np.float32)
    for array in (x.reshape(2, 3), x.reshape(3, 2).T, np.repeat(x, 2)[::2].reshape(2, 3)):
        for number in (3, 3.0, np.float32(3), np.array(3, np.float32)):
            np.testing.assert_array_equal(program(array, number), array * 3)
    assert not slow_calls


@pytest.mark.parametrize("kind", [np.float32, np.bool_, np.complex128])
def test_copies_of_types_never_reach_the_slow_call(kind: type, slow_calls: list[object]) -> None:
    name = {"float32": "f32", "bool": "pred", "complex128": "c128"}[np.dtype(kind).name]
    program = whole(
        f"HloModule m\nENTRY e {{ x = {name}[3] parameter(0)\n  ROOT y = {name}[3] copy(x) }}"
    )
    x = np.array([0, 1, 1], kind).view(np.dtype(kind, copy=True))
    assert x.dtype is not np.dtype(kind)
    np.testing.assert_array_equal(program(x), x)
    assert not slow_calls
    if kind is np.float32:
        for other in (">f4", "i4", "f8"):
            with pytest.raises(HloError, match="argument 0"):
                program(x.astype(other))


STEP = """HloModule m, input_output_alias={ {0}: (0, {}, may-alias) }
ENTRY e { x = f32[64] parameter(0)
  y = f32[64] parameter(1)
  a = f32[64] add(x, y)
  s = f32[64] subtract(x, y)
  ROOT t = (f32[64], f32[64]) tuple(a, s) }"""


def test_donation_is_native(slow_calls: list[object]) -> None:
    step = compiled(STEP)
    x, y = np.arange(64, dtype=np.float32), np.full(64, 2, np.float32)
    before = x.copy()
    kept, difference = step(x, y)  # type: ignore[misc]
    np.testing.assert_array_equal(x, before)
    np.testing.assert_array_equal(kept, before + 2)
    np.testing.assert_array_equal(difference, before - 2)
    for donate in ((0,), {0}, [0, 1]):
        moved, difference = step(x, y, donate=donate)  # type: ignore[misc]
        assert moved is x
        np.testing.assert_array_equal(moved, before + 2)
        np.testing.assert_array_equal(difference, before - 2)
        before = x.copy()
    assert not slow_calls


def test_donation_of_shared_and_frozen_memory() -> None:
    step = compiled(STEP)
    x = np.arange(65, dtype=np.float32)
    for first, second in ((x[:64], x[:64]), (x[:64], x[1:])):
        with pytest.raises(HloError, match="shares memory with another one"):
            step(first, second, donate=(0,))
    frozen = x[:64].copy()
    frozen.flags.writeable = False
    moved, _ = step(frozen, x[1:], donate=(0,))  # type: ignore[misc]
    assert moved is not frozen
    np.testing.assert_array_equal(moved, frozen + x[1:])
    with pytest.raises(HloError, match="donate names argument 2"):
        step(x[:64].copy(), x[1:], donate=(2,))
    with pytest.raises(HloError, match=r"f32\[63\], expected f32\[64\]"):
        step(x[:63].copy(), x[1:], donate=(0,))


def test_donation_inside_tuples() -> None:
    program = compiled("""HloModule m, input_output_alias={ {1}: (0, {1}, may-alias) }
ENTRY e { p = (f32[4], f32[4]) parameter(0)
  a = f32[4] get-tuple-element(p), index=0
  b = f32[4] get-tuple-element(p), index=1
  s = f32[4] add(a, b)
  ROOT t = (f32[4], f32[4]) tuple(a, s) }""")
    a, b = f32(1, 2, 3, 4), f32(5, 6, 7, 8)
    first, moved = program((a, b), donate=(0,))  # type: ignore[misc]
    assert moved is b
    np.testing.assert_array_equal(first, a)
    np.testing.assert_array_equal(moved, f32(6, 8, 10, 12))


def together(work: Callable[[int], None], count: int) -> None:
    """The work on several threads that are switched often; the first failure is raised."""
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as failure:  # raised below
            failures.append(failure)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    if failures:
        raise failures[0]


def test_four_threads_at_once(slow_calls: list[object]) -> None:
    size = 1 << 15  # long enough to let the interpreter go
    program = whole(f"""HloModule m
less {{ p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT l = pred[] compare(p, q), direction=LT }}
ENTRY e {{ x = f32[{size}] parameter(0)
  s = f32[] parameter(1)
  b = f32[{size}] broadcast(s), dimensions={{}}
  t = f32[{size}] sine(x)
  u = f32[{size}] sort(t), dimensions={{0}}, to_apply=less
  ROOT r = f32[{size}] multiply(u, b) }}""")
    x = np.linspace(0, 1, size, dtype=np.float32)
    expected = np.asarray(program(x, 1.0))

    def work(number: int) -> None:
        for _ in range(20):
            np.testing.assert_array_equal(program(x, float(2**number)), expected * 2**number)

    together(work, 4)
    assert len(slow_calls) <= 4  # a frame may be taken by another thread between two tries


def test_first_calls_of_eight_threads_take_a_frame_each() -> None:
    size = 1 << 14
    x = np.linspace(0, 1, size, dtype=np.float32)
    for number in range(10):  # frames are added in a program's first calls
        program = whole(f"""HloModule m{number}
ENTRY e {{ x = f32[{size}] parameter(0)
  s = f32[] parameter(1)
  b = f32[{size}] broadcast(s), dimensions={{}}
  t = f32[{size}] sine(x)
  c = f32[{size}] tanh(t)
  ROOT r = f32[{size}] multiply(c, b) }}""")
        expected = np.tanh(np.sin(x))

        def work(thread: int) -> None:
            for _ in range(20):
                found = np.asarray(program(x, float(2**thread)))  # noqa: B023  # ends before it changes
                np.testing.assert_allclose(found, expected * 2**thread, 1e-5)  # noqa: B023

        together(work, 8)
