"""Wrong arguments: every kind at every kind of parameter, the same HloError from every engine."""

from __future__ import annotations

import ctypes
import enum
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

import hlo
from hlo.errors import HloError
from hlo.ir.module import Module
from hlo.runtime.dynamic import Dynamic
from hlo.runtime.executable import Executable

SHAPES = ("f32[2]", "f32[]", "s32[]", "pred[]", "bf16[2]", "c64[]", "s4[2]", "u8[0,3]", "f32[2,2]")


class Raising:
    """An object all of whose offers fail, each with an exception of its own."""

    def __init__(self, error: BaseException, offers: str) -> None:
        self._error, self._offers = error, offers

    def __getattribute__(self, name: str) -> object:
        if name in ("_error", "_offers") or not name.startswith("__"):
            return object.__getattribute__(self, name)
        if name == self._offers:
            raise self._error
        return object.__getattribute__(self, name)


def method(name: str, error: BaseException) -> object:
    """An object whose one special method raises."""

    def fails(self: object, *_: object, **__: object) -> object:
        raise error

    return type("Failing", (), {name: fails})()


def giving(name: str, value: object) -> object:
    """An object whose one special method gives something that it must not."""

    def gives(self: object, *_: object, **__: object) -> object:
        return value

    return type("Giving", (), {name: gives})()


class Elsewhere:
    """A tensor of another device."""

    def __dlpack__(self, **_: object) -> object:
        raise BufferError("on a GPU")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


class Colour(enum.Enum):
    """A value that is no number."""

    RED = 1


ERRORS = (
    ValueError("odd"), TypeError("odd"), RuntimeError("odd"), KeyError("odd"), OSError(5, "x"),
    ZeroDivisionError(), RecursionError("deep"), StopIteration(), NotImplementedError("no"),
    AssertionError("broken"), AttributeError("gone"), SystemError("worse"), UnicodeError("u"),
)  # fmt: skip
OFFERS = ("__array__", "__dlpack__", "__array_interface__", "__array_struct__")


def wrong_values() -> dict[str, object]:
    """Values that fit no parameter of SHAPES."""
    found: dict[str, object] = {
        "None": None, "text": "1.0", "bytes of another size": b"12345", "list": [1.0, 2.0, 3.0],
        "empty tuple": (), "dict": {}, "set": {1}, "object": object(), "type": float,
        "function": len, "ellipsis": ..., "fraction": Fraction(1, 2), "enum": Colour.RED,
        "range": range(2), "iterator": iter([1.0]), "slice": slice(2), "complex text": "1j",
        "object array": np.array([None, 1], object), "text array": np.array(["a", "b"]),
        "bytes array": np.array([b"a", b"b"]), "dates": np.array([0, 1], "M8[s]"),
        "structure": np.zeros(2, "f4,f4"), "big-endian": np.zeros(2, ">f4"),
        "long double": np.zeros(2, np.longdouble), "another rank": np.zeros((1, 2, 1), np.float32),
        "another size": np.zeros(3, np.float32), "another type": np.zeros(2, np.float64),
        "masked": np.ma.array([1.0, 2.0], mask=[True, False], dtype=np.float32),
        "masked by one value": np.ma.masked_equal(np.array([1.0, 2.0], np.float32), 1.0),
        "masked scalar": np.ma.masked, "wrong masked": np.ma.zeros(5),
        "dynamic": Dynamic(np.zeros(7)),
        "ctypes": (ctypes.c_double * 5)(), "huge number": 10**5000, "negative huge": -(10**400),
        "no capsule": giving("__dlpack__", "a capsule"),
        "none for an array": giving("__array__", None),
        "a list for an array": giving("__array__", [1.0]), "elsewhere": Elsewhere(),
        "bad interface": giving("__array_interface__", 3),
    }  # fmt: skip
    for error in ERRORS:
        for offer in OFFERS[:2]:
            found[f"{offer} raises {type(error).__name__}"] = method(offer, error)
        for offer in OFFERS:
            found[f"looking for {offer} raises {type(error).__name__}"] = Raising(error, offer)
    return found


NAMES = tuple(wrong_values())


def outcome(run: Callable[[], object]) -> str:
    """What an engine says to its arguments; any other exception goes on."""
    try:
        run()
    except HloError as error:
        return str(error)
    return "taken"


@pytest.fixture(scope="module")
def programs() -> dict[str, tuple[Module, Executable]]:
    made = {}
    for shape in SHAPES:
        text = f"HloModule m\nENTRY e {{ p = {shape} parameter(0)\n"
        text += f" q = (f32[], {shape}) parameter(1)\n"
        text += f" ROOT r = {shape} get-tuple-element(q), index=1 }}"
        module = hlo.parse(text)
        made[shape] = (module, hlo.compile(module))
    return made


Programs = dict[str, tuple[Module, Executable]]


@pytest.mark.parametrize("name", NAMES)
def test_every_engine_refuses_with_the_same_words(name: str, programs: Programs) -> None:
    value = wrong_values()[name]
    for shape, (module, executable) in programs.items():
        good = np.zeros(
            module.entry.parameters[0].shape.dims, module.entry.parameters[0].shape.dtype.numpy
        )
        for arguments in (
            (value, (np.float32(0), good)),
            (good, (np.float32(0), value)),
            (good, value),
        ):
            said = outcome(lambda a=arguments, e=executable: e(*a))
            assert said.startswith("error[arguments]: argument"), (shape, said)
            assert said == outcome(lambda a=arguments, e=executable: e._slow_call(*a))
            assert said == outcome(lambda a=arguments, m=module: hlo.evaluate(m, *a))


@pytest.mark.parametrize("text", ["f32[2]", "f32[]"])
def test_native_and_slow_calls_agree(text: str) -> None:
    """A program of arrays alone, whose native function sees the argument first."""
    module = hlo.parse(
        f"HloModule m\nENTRY e {{ p = {text} parameter(0)\n ROOT r = {text} negate(p) }}"
    )
    executable = hlo.compile(module)
    for name, value in wrong_values().items():
        said = outcome(lambda v=value: executable(v))
        assert said.startswith("error[arguments]: argument 0 (p) is "), (name, said)
        assert said == outcome(lambda v=value: executable._slow_call(v)), name


def test_the_cause_is_named() -> None:
    module = hlo.parse(
        "HloModule m\nENTRY e { p = f32[2] parameter(0)\n ROOT r = f32[2] negate(p) }"
    )
    with pytest.raises(HloError, match=r"a Failing whose array cannot be had \(KeyError: 'odd'\)"):
        hlo.compile(module)(method("__dlpack__", KeyError("odd")))
    with pytest.raises(HloError, match=r"a MaskedArray .*1 of its elements are masked.*filled"):
        hlo.compile(module)(wrong_values()["masked"])


def test_an_interruption_passes() -> None:
    module = hlo.parse(
        "HloModule m\nENTRY e { p = f32[2] parameter(0)\n ROOT r = f32[2] negate(p) }"
    )
    for offer in ("__array__", "__dlpack__"):
        with pytest.raises(KeyboardInterrupt):
            hlo.compile(module)(method(offer, KeyboardInterrupt()))


def test_a_mask_without_masked_elements_is_none() -> None:
    module = hlo.parse(
        "HloModule m\nENTRY e { p = f32[2] parameter(0)\n ROOT r = f32[2] negate(p) }"
    )
    for value in (
        np.ma.array([1, 2], np.float32),
        np.ma.array([1, 2], np.float32, mask=[False, False]),
    ):
        assert np.asarray(hlo.compile(module)(value)).tolist() == [-1, -2]
        assert np.asarray(hlo.evaluate(module, value)).tolist() == [-1, -2]


# -- donate ------------------------------------------------------------------------------------

DONATING = """HloModule m, input_output_alias={ {}: (0, {}, may-alias) }
ENTRY e { p = f32[2] parameter(0)
 q = f32[2] parameter(1)
 ROOT r = f32[2] add(p, q) }"""
DYNAMIC = """HloModule m
ENTRY e { p = f32[<=2] parameter(0)
 q = f32[2] parameter(1)
 ROOT r = f32[<=2] negate(p) }"""
HOSTED = """HloModule m
ENTRY e { p = f32[2] parameter(0)
 q = f32[2] parameter(1)
 t = token[] after-all()
 o = token[] outfeed(p, t)
 ROOT r = f32[2] negate(q) }"""
WRONG_NUMBERS = ("0", b"0", (0.5,), (0.0,), (True,), [None], ("0",), (-1,), (2,), (10**30,), 0, 1.5,
                 None, True, iter([0]), (0, 7), ((0,),), {0.5}, np.array([0.0]), np.array([True]),
                 object())  # fmt: skip


@pytest.mark.parametrize("text", [DONATING, DYNAMIC, HOSTED], ids=["native", "dynamic", "hosted"])
def test_what_is_given_away_is_named_by_numbers(text: str) -> None:
    executable = hlo.compile(hlo.parse(text))
    for donate in WRONG_NUMBERS:
        arguments = np.ones(2, np.float32), np.ones(2, np.float32)
        with pytest.raises(HloError, match="donate") as caught:
            executable(*arguments, donate=donate)  # type: ignore[arg-type]
        assert caught.value.code == "arguments"


@pytest.mark.parametrize(
    "donate", [(), [], (0,), [0], {0}, {0: "x"}, (0, 0), np.array([0]), range(1)]
)
def test_numbers_of_any_collection_are_taken(donate: object) -> None:
    arguments = np.ones(2, np.float32), np.full(2, 3, np.float32)
    result = hlo.compile(hlo.parse(DONATING))(*arguments, donate=donate)  # type: ignore[arg-type]
    assert np.asarray(result).tolist() == [4, 4]


def test_a_program_without_arguments_gives_none_away() -> None:
    executable = hlo.compile(hlo.parse("HloModule m\nENTRY e { ROOT c = f32[] constant(1) }"))
    with pytest.raises(HloError, match="expected none"):
        executable(donate=(0,))
