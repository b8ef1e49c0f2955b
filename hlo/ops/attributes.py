"""An op's attributes as one record, which states names, types, kinds of text and defaults at once.

    class TopKAttributes(Attributes, frozen=True):
        k: Annotated[int, INT64]                            must be written
        largest: Annotated[bool, BOOL, "always"] = True     printed where it was left out, too

`infer`, `check` and `evaluate` take a filled one as `attrs=`; parser, printer and Builder ask what
the fields say (`Op.attrs`). Fields stand in the order in which XLA prints them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Self, TypeVar, get_args

from msgspec import Struct
from msgspec.structs import fields

from hlo.attributes.by_need import kind_named
from hlo.attributes.kind import AttributeKind
from hlo.ir.instruction import CALLING_ATTRIBUTES

F = TypeVar("F")  # a called computation: Computation, ProgramShape (infer) or Callee (evaluate)
REQUIRED = object()  # Attr.default of an attribute that must be written


class Attr(Struct, frozen=True):
    """One attribute of an op: what follows the type in a record's field, and its default.

    given: its kind, or the name of one (`ORIGIN`), which is imported when something has such an
    attribute: few programs have most of those that any instruction may have.
    default REQUIRED: must be written. printed: "given" (whenever held), "unless-default" (held and
    different from the default), "always" (the default is printed too when it is absent), "computed"
    (held or not, by the shapes where XLA prints what they say) or "never" (accepted, not printed).
    """

    given: AttributeKind | str
    default: object = REQUIRED
    printed: str = "unless-default"

    @property
    def kind(self) -> AttributeKind:
        return kind_named(self.given) if isinstance(self.given, str) else self.given


class Attributes(Struct, frozen=True):
    """The attributes of an op that has none; those of others extend it."""

    @classmethod
    def of(cls, given: Mapping[str, object]) -> Self:
        """The record of what an instruction holds; TypeError where a required one is missing.

        Not remembered: to find one by its values takes 1.3 to 2.5 times as long as to make it.
        """
        return cls(**{name: given[name] for name in cls.__struct_fields__ if name in given})


@cache
def attrs_of(record: type[Attributes]) -> Mapping[str, Attr]:
    """What a record's fields say, in their order."""
    found = {}
    for field in fields(record):
        _, kind, *printed = get_args(field.type)
        found[field.name] = Attr(kind, REQUIRED if field.required else field.default, *printed)
    return found


@cache
def calling_fields(record: type[Attributes]) -> tuple[str, ...]:
    """Those of its fields that name computations."""
    return tuple(name for name in CALLING_ATTRIBUTES if name in record.__struct_fields__)
