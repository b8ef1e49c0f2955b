"""Procedures: what words and structured control print, and what the code does."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable

import numpy as np
import pytest

from hlo.backend.ir.interface import NULL, Field, prototype
from hlo.backend.ir.procedure import Procedure, Unit
from hlo.backend.ir.words import Word
from tests.support.lanes_jit import compile_text

PAIR = Field(0, "i32"), Field(8)


def made(body: Callable[..., None], *parameters: str, result: str = "i64") -> Callable[..., int]:
    """A procedure compiled and linked; addresses and integers are its parameters."""
    unit = Unit()
    unit.define(prototype(result, "test", *parameters), body)
    kinds = {"i64": ctypes.c_int64, "ptr": ctypes.c_void_p, "i32": ctypes.c_int32}
    types = [kinds[p] for p in parameters]
    return ctypes.CFUNCTYPE(kinds[result], *types)(compile_text(unit.text(), "test"))


def gcd(p: Procedure, a: Word, b: Word) -> None:
    with p.loop(a, b) as (again, done):
        x, y = again.words
        done.go_if(y.eq(0))
        again.go(y, x - (x // y) * y)
    p.ret(x)


def first_below(p: Procedure, numbers: Word, count: Word, limit: Word) -> None:
    found = p.join("i64")
    with p.counted(count) as i:
        found.go_if(numbers.get("i64", i) < limit, i)
    (place,) = found.here(-1)
    p.ret(place)


def clamped(p: Procedure, x: Word) -> None:
    with p.when(x < 0):
        p.ret(p.word(0))
    with p.when(x > 255):
        p.ret(p.word(255))
    p.ret(x)


def kind(p: Procedure, x: Word) -> None:
    one, many, other = p.join(), p.join(), p.join()
    p.switch(x, {1: one, 2: many, 3: many}, other)
    one.here()
    p.ret(p.word(10))
    many.here()
    p.ret(x << 4)
    other.here()
    p.ret(p.word(-1))


def test_loops_carry_values_and_end_where_they_say() -> None:
    run = made(gcd, "i64", "i64")
    assert [run(a, b) for a, b in ((12, 18), (7, 0), (17, 5))] == [
        math.gcd(a, b) for a, b in ((12, 18), (7, 0), (17, 5))
    ]


def test_a_join_brings_the_value_of_the_way_that_was_taken() -> None:
    run = made(first_below, "ptr", "i64", "i64")
    numbers = np.array([9, 8, -3, 7], np.int64)
    assert [run(numbers.ctypes.data, 4, limit) for limit in (9, 0, -5)] == [1, 2, -1]
    assert run(None, 0, 5) == -1


def test_a_part_may_leave_the_function() -> None:
    run = made(clamped, "i64")
    assert [run(x) for x in (-5, 77, 300)] == [0, 77, 255]


def test_switches_go_where_the_case_is() -> None:
    run = made(kind, "i64")
    assert [run(x) for x in (1, 2, 3, 4)] == [10, 32, 48, -1]


def test_shared_fields_change_in_one_step() -> None:
    short, long = PAIR

    def body(p: Procedure, place: Word) -> None:
        was = place.update("add", long, 5, "seq_cst")
        with p.loop() as (again, done):
            seen = place.load(short, "acquire")
            done.go_if(place.swap(short, seen, seen + 1))
            again.go()
        is_other = place.swap(short, 1000, 0)
        p.fence("seq_cst")
        place.store(long, place.load(long) * 2, "release")
        p.ret(was + is_other.to("i64"))

    memory = np.array([41, 7], np.int64)
    assert made(body, "ptr")(memory.ctypes.data) == 7
    assert memory.tolist() == [42, 24]


def test_addresses_are_called_and_compared() -> None:
    def body(p: Procedure, function: Word, x: Word) -> None:
        with p.when(function.eq(NULL)):
            p.ret(x)
        p.ret(p.call_address("i64", function, x + 1))

    run = made(body, "ptr", "i64")
    triple = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda x: 3 * x)
    assert run(None, 4) == 4
    assert run(ctypes.cast(triple, ctypes.c_void_p), 4) == 15


@pytest.mark.parametrize("x", [0, 1, 6])
def test_operators_are_those_of_c(x: int) -> None:
    def body(p: Procedure, x: Word) -> None:
        bits = (x & 3) | 8
        p.ret((1 << bits) + ((63 - x) >> 1) + (~x.eq(0)).select(p.word(100), p.word(200)))

    expected = (1 << ((x & 3) | 8)) + ((63 - x) >> 1) + (100 if x else 200)
    assert made(body, "i64")(x) == expected


def test_what_a_unit_defines_it_does_not_declare() -> None:
    inner, outer = prototype("i64", "inner", "i64"), prototype("i64", "outer", "i64")
    unit = Unit()
    unit.define(outer, lambda p, x: p.ret(p.call(inner, x)))
    unit.define(inner, lambda p, x: p.ret(p.call(prototype("i64", "llabs", "i64"), x)))
    text = unit.text()
    assert "declare i64 @llabs(i64)" in text
    assert "declare i64 @inner" not in text


def test_a_record_is_a_line() -> None:
    def body(p: Procedure, x: Word) -> None:
        x.store(PAIR[0], 1, "seq_cst")
        p.ret(x.load(PAIR[1], "monotonic"))

    unit = Unit()
    unit.define(prototype("i64", "f", "ptr"), body, attributes="cold", linkage="internal")
    assert unit.text().splitlines() == [
        "define internal i64 @f(ptr %p0) cold {",
        "start:",
        "  store atomic i32 1, ptr %p0 seq_cst, align 4",
        "  %v1 = getelementptr i8, ptr %p0, i64 8",
        "  %v2 = load atomic i64, ptr %v1 monotonic, align 8",
        "  ret i64 %v2",
        "}",
    ]
