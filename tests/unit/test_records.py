"""The package's dataclasses are the standard library's, in every use that is made of them."""

import copy
import dataclasses
import pickle
from dataclasses import dataclass as standard
from dataclasses import field, replace
from typing import Any

import pytest

from hlo.records import dataclass


@dataclass(frozen=True, slots=True)
class Frozen:
    a: int
    b: str = "x"
    c: list[int] = field(default_factory=list, compare=False)


@dataclass(slots=True)
class Open:
    """With a docstring."""

    a: int
    held: dict[str, int] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, eq=False)
class Same:
    a: int


@dataclass(frozen=True, slots=True)
class Own:
    a: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own)

    def __hash__(self) -> int:
        return 7

    def __repr__(self) -> str:
        return "own"


def test_values_are_equal_by_their_fields() -> None:
    assert Frozen(1) == Frozen(1, c=[3])
    assert Frozen(1) != Frozen(2)
    assert Frozen(1) != (1, "x")
    assert hash(Frozen(1)) == hash(Frozen(1, "x", [2]))
    assert Open(1) == Open(1)
    assert Same(1) != Same(1)
    assert len({Same(1), Same(1), Frozen(1), Frozen(1)}) == 3
    with pytest.raises(TypeError, match="unhashable"):
        hash(Open(1))


def test_methods_of_the_class_stay() -> None:
    assert Own(1) == Own(2)
    assert hash(Own(1)) == 7
    assert repr(Own(1)) == "own"


def test_fields_defaults_and_errors() -> None:
    assert Frozen(a=1, b="y").b == "y"
    assert Frozen(1).c is not Frozen(1).c
    assert Frozen.__match_args__ == ("a", "b", "c")
    assert [f.name for f in dataclasses.fields(Open)] == ["a", "held"]
    assert repr(Frozen(1)) == "Frozen(a=1, b='x', c=[])"
    assert repr(Open(2)) == "Open(a=2)"
    for wrong in ({}, {"a": 1, "d": 2}):
        with pytest.raises(TypeError):
            Frozen(**wrong)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'a'"):
        Frozen(1).a = 2  # type: ignore[misc]  # frozen
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'a'"):
        del Frozen(1).a  # type: ignore[misc]  # frozen
    with pytest.raises(AttributeError):
        Open(1).other = 2  # type: ignore[attr-defined]  # slots


def test_copies() -> None:
    value = Frozen(1, "z", [4])
    assert replace(value, a=5) == Frozen(5, "z")
    assert dataclasses.astuple(value) == (1, "z", [4])
    assert copy.copy(value) == pickle.loads(pickle.dumps(value)) == value
    assert copy.deepcopy(Open(1, {"x": 2})).held == {"x": 2}


def test_subclasses() -> None:
    @dataclass(frozen=True, slots=True)
    class More(Frozen):
        d: int = 9

    assert More(1) == More(1, d=9)
    assert More(1) != Frozen(1)
    assert repr(More(1)).endswith("More(a=1, b='x', c=[], d=9)")

    @standard(frozen=True)
    class Like:
        a: int

    assert [f.name for f in dataclasses.fields(More)] == ["a", "b", "c", "d"]
    assert repr(Like(1)).endswith("Like(a=1)")


def test_the_first_instances_are_made_like_the_later_ones() -> None:
    @dataclass(slots=True)
    class Counted:
        a: int
        b: list[int] = field(default_factory=list)
        c: str = "c"

    for n in range(20):
        made = Counted(n, c="d") if n % 2 else Counted(b=[n], a=n)
        assert (made.a, made.b, made.c) == ((n, [], "d") if n % 2 else (n, [n], "c"))
        with pytest.raises(TypeError):
            Frozen()  # type: ignore[call-arg]  # wrong on purpose
    calls: tuple[tuple[Any, ...], ...] = ((), (1, [], "c", 4))
    for positional in calls:
        with pytest.raises(TypeError, match="argument"):
            Counted(*positional)


def test_a_standard_class_may_extend_one() -> None:
    @dataclass()
    class Base:
        a: int

    @standard
    class More(Base):
        b: int = 2

    assert More(1) == More(1, 2)
    assert [f.name for f in dataclasses.fields(More)] == ["a", "b"]
