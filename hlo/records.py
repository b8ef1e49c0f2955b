"""dataclass: the standard library's, whose methods are compiled when they are first called.

    @dataclass(frozen=True, slots=True)  =>  the same class in a twentieth of the time

The standard decorator compiles five methods per class, half a millisecond; this package has two
hundred classes, of which a run makes instances of some and asks equality or text of few. Of many it
makes a handful, so `__init__` is compiled when a class turns out to be used. Field descriptions,
`replace`, `astuple` and errors are the standard's own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import field as _field
from reprlib import recursive_repr
from types import MemberDescriptorType
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


MISSING = dataclasses.MISSING
UNSLOTTED = ("__dict__", "__weakref__")  # of the class without slots
FEW = 8  # instances made before `__init__` is compiled: that takes as long as these


@dataclasses.dataclass(init=False, repr=False, eq=False)
class _Pattern:
    """What the standard notes down of a class without methods."""

    field: int = 0


PARAMETERS: Any = vars(_Pattern)["__dataclass_params__"]
FIELD: Any = vars(_Pattern)["__dataclass_fields__"]["field"]._field_type


def _completed(given: type, *, frozen: bool, slots: bool, eq: bool, repr: bool) -> type:
    own = set(vars(given))
    if given.__doc__ is None:
        given.__doc__ = given.__name__  # the standard would work a signature out
    fields, new = _fields(given)
    cls: type = _slotted(given, fields, new) if slots else given
    plain: Any = cls
    plain.__dataclass_fields__ = fields
    plain.__dataclass_params__ = PARAMETERS
    _put(cls, own, "__match_args__", tuple(fields))
    _put(cls, own, "__init__", _first_init(cls, frozen=frozen))
    if repr:
        _put(cls, own, "__repr__", _repr)
    if eq:
        _put(cls, own, "__eq__", _later(cls, "__eq__", lambda: _eq(cls)))
        if vars(given).get("__hash__") is None:
            made = _later(cls, "__hash__", lambda: _hash(cls)) if frozen else None
            cls.__hash__ = made  # type: ignore[assignment]  # None: it has none
    if frozen:
        _freeze(cls, own, frozenset(fields), slots=slots)
    return cls


def _fields(given: type) -> tuple[dict[str, Any], list[str]]:
    """The fields by name, inherited ones first, and the names of the class's own."""
    found: dict[str, Any] = {}
    for base in given.__mro__[-1:0:-1]:
        found |= vars(base).get("__dataclass_fields__", {})
    new: list[str] = []
    for name, kind in given.__annotations__.items():
        if str(kind).startswith("ClassVar"):
            continue
        value: Any = getattr(given, name, MISSING)
        if isinstance(value, MemberDescriptorType):
            value = MISSING  # a base's slot
        field: Any = value if isinstance(value, dataclasses.Field) else _field(default=value)
        field.name, field.type, field.kw_only, field._field_type = name, kind, False, FIELD
        if field is value:
            if field.default is MISSING:
                delattr(given, name)
            else:
                setattr(given, name, field.default)
        found[name] = field
        new.append(name)
    return found, new


def _slotted(given: type, fields: dict[str, Any], new: list[str]) -> type:
    """The class again with slots, which only a new class can have."""
    names = {n: v for n, v in vars(given).items() if n not in fields and n not in UNSLOTTED}
    inherited = {n for base in given.__mro__[1:] for n in vars(base).get("__slots__", ())}
    names["__slots__"] = tuple(n for n in new if n not in inherited)
    cls = type(given)(given.__name__, given.__bases__, names)
    cls.__qualname__ = given.__qualname__
    return cls


def _first_init(cls: Any, *, frozen: bool) -> Callable[..., None]:
    """`__init__` of the first FEW instances; then, and for wrong arguments, the compiled one."""
    fields = tuple(cls.__dataclass_fields__.values())
    made = 0

    def __init__(self: object, *values: object, **named: object) -> None:
        nonlocal made
        made += 1
        if made > FEW or not _filled(self, fields, values, named):
            real = _init(cls, frozen=frozen)
            if vars(cls).get("__init__") is __init__:
                cls.__init__ = real
            real(self, *values, **named)

    __init__.__qualname__ = f"{cls.__qualname__}.__init__"
    return __init__


def _filled(
    self: object, fields: tuple[Any, ...], values: tuple[object, ...], named: dict[str, object]
) -> bool:
    """Set the fields; whether the arguments were as they should be."""
    count = len(values)
    if count > len(fields):
        return False
    put = object.__setattr__
    used = 0
    for field, value in zip(fields, values, strict=False):
        put(self, field.name, value)
    for field in fields[count:]:
        if field.name in named:
            put(self, field.name, named[field.name])
            used += 1
        elif field.default is not MISSING:
            put(self, field.name, field.default)
        elif field.default_factory is not MISSING:
            put(self, field.name, field.default_factory())
        else:
            return False
    return used == len(named)


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


def _freeze(cls: Any, own: set[str], fields: frozenset[str], *, slots: bool) -> None:
    """No field changes; copying and pickling, where slots make them need it, go round that."""

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
