"""dataclass: the standard library's, whose methods are compiled when they are first called.

    @dataclass(frozen=True, slots=True)  =>  the same class in an eighth of the time

The standard decorator compiles five methods per class, half a millisecond; this package has two
hundred classes, of which a run makes instances of some and asks equality or text of few. Fields,
`replace`, `astuple` and errors are the standard's own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(
        cls: type | None = None,
        /,
        *,
        frozen: bool = False,
        slots: bool = False,
        eq: bool = True,
        repr: bool = True,
    ) -> type | Callable[[type], type]:
        """The standard's, with the options that this package uses."""

        def made(given: type) -> type:
            return _completed(given, frozen=frozen, slots=slots, eq=eq, repr=repr)

        return made if cls is None else made(cls)


def _completed(given: type, *, frozen: bool, slots: bool, eq: bool, repr: bool) -> type:
    own = set(vars(given))
    if given.__doc__ is None:
        given.__doc__ = given.__name__  # the standard would work a signature out
    plain = {"init": False, "repr": False, "eq": False, "slots": slots}
    cls: type = dataclasses.dataclass(**plain)(given)
    _put(cls, own, "__init__", _later(cls, "__init__", lambda: _init(cls, frozen=frozen)))
    if repr:
        _put(cls, own, "__repr__", _repr)
    if eq:
        _put(cls, own, "__eq__", _later(cls, "__eq__", lambda: _eq(cls)))
        if vars(given).get("__hash__") is None:
            made = _later(cls, "__hash__", lambda: _hash(cls)) if frozen else None
            cls.__hash__ = made  # type: ignore[assignment]  # None: it has none
    if frozen:
        _freeze(cls, own, slots=slots)
    return cls


def _put(cls: type, own: set[str], name: str, method: object) -> None:
    if name not in own:
        setattr(cls, name, method)


def _later(cls: type, name: str, make: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """A method that puts the real one in its place when it is first called."""

    def method(self: object, *arguments: object, **named: object) -> Any:
        real = make()
        if vars(cls).get(name) is method:
            setattr(cls, name, real)
        return real(self, *arguments, **named)

    method.__qualname__ = f"{cls.__qualname__}.{name}"
    return method


def _init(cls: Any, *, frozen: bool) -> Callable[..., Any]:
    """`__init__` as the standard writes it; a frozen class's own setter refuses, so object's."""
    names: dict[str, object] = {"_set": object.__setattr__, "_missing": dataclasses.MISSING}
    heads: list[str] = []
    lines: list[str] = []
    for field in dataclasses.fields(cls):
        name = field.name
        value = name
        if field.default_factory is not dataclasses.MISSING:
            names[f"_make_{name}"] = field.default_factory
            heads.append(f"{name}=_missing")
            value = f"_make_{name}() if {name} is _missing else {name}"
        elif field.default is not dataclasses.MISSING:
            names[f"_default_{name}"] = field.default
            heads.append(f"{name}=_default_{name}")
        else:
            heads.append(name)
        lines.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    body = "\n  ".join(lines) or "pass"
    return _compiled(cls, "__init__", f"self, {', '.join(heads)}", body, names)


def _eq(cls: type) -> Callable[..., Any]:
    own, others = _tuple(cls, "self"), _tuple(cls, "other")
    body = f"if other.__class__ is self.__class__:\n    return {own} == {others}"
    return _compiled(cls, "__eq__", "self, other", f"{body}\n  return NotImplemented", {})


def _hash(cls: type) -> Callable[..., Any]:
    return _compiled(cls, "__hash__", "self", f"return hash({_tuple(cls, 'self')})", {})


def _tuple(cls: Any, who: str) -> str:
    return f"({''.join(f'{who}.{f.name}, ' for f in dataclasses.fields(cls) if f.compare)})"


def _compiled(
    cls: type, name: str, heads: str, body: str, names: dict[str, object]
) -> Callable[..., Any]:
    exec(f"def {name}({heads}):\n  {body}", names)  # as the standard does
    made: Any = names[name]
    made.__qualname__ = f"{cls.__qualname__}.{name}"
    return made  # type: ignore[no-any-return]  # a function


@recursive_repr()
def _repr(self: Any) -> str:
    shown = [f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr]
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _freeze(cls: Any, own: set[str], *, slots: bool) -> None:
    """No field changes; copying and pickling, where slots make them need it, go round that."""
    fields = frozenset(f.name for f in dataclasses.fields(cls))

    def __setattr__(self: object, name: str, value: object) -> None:
        if type(self) is cls or name in fields:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: object, name: str) -> None:
        if type(self) is cls or name in fields:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    cls.__setattr__, cls.__delattr__ = __setattr__, __delattr__
    if slots:
        _put(cls, own, "__getstate__", _getstate)
        _put(cls, own, "__setstate__", _setstate)


def _getstate(self: Any) -> list[object]:
    return [getattr(self, f.name) for f in dataclasses.fields(self)]


def _setstate(self: Any, state: list[object]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
