"""Later: a module's functions without the module."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import cast

import pytest

from hlo.ops.instruction_attributes import INSTRUCTION_ATTRS
from hlo.ops.module_attributes import MODULE_ATTRS
from hlo.process.lazy_functions import LazyModule


def test_a_module_is_loaded_at_the_first_call_and_once() -> None:
    loads: list[str] = []

    def load() -> ModuleType:
        loads.append("loaded")
        return cast("ModuleType", SimpleNamespace(twice=lambda x: 2 * x))

    later = LazyModule(load)
    twice = later.twice
    assert not loads
    assert [twice(3), later.twice(4)] == [6, 8]
    assert loads == ["loaded"]


def test_what_a_function_makes_waits_for_its_first_call() -> None:
    made: list[int] = []

    def adding(n: int) -> object:
        made.append(n)
        return lambda x: x + n

    later = LazyModule(lambda: cast("ModuleType", SimpleNamespace(adding=adding)))
    five = later.adding.of(5)
    assert not made
    assert [five(1), five(2)] == [6, 7]
    assert made == [5]


def test_a_name_that_the_module_lacks_is_an_error_when_it_is_called() -> None:
    later = LazyModule(lambda: ModuleType("empty"))
    with pytest.raises(AttributeError, match="nothing"):
        later.nothing()


@pytest.mark.parametrize("table", [INSTRUCTION_ATTRS, MODULE_ATTRS])
def test_kinds_by_name_are_found(table: dict[str, object]) -> None:
    for attr in table.values():
        given, kind = attr.given, attr.kind  # type: ignore[attr-defined]  # an Attr
        assert given in (kind, kind.name)
