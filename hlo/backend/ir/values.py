"""Values: what stands in an operand's place in LLVM IR, and its type.

    Value(text, type): an SSA name or a constant with its LLVM type ("float", "<16 x float>", "ptr")

A value answers itself whether it is a constant, and which; nobody else reads its text but the
printer of records. Does not know HLO.
"""

from __future__ import annotations

import re
import struct
from functools import lru_cache

from msgspec import Struct

_SPLAT = re.compile(r"splat \((\w+) (.*)\)")
_INTEGER = re.compile(r"-?\d+")
_DECIMAL = re.compile(r"-?\d+\.\d+")


class Value(Struct, frozen=True, gc=False):
    """An SSA value or a constant, as it is written in an operand position."""

    text: str
    type: str

    def __str__(self) -> str:
        return self.text

    @property
    def typed(self) -> str:
        return f"{self.type} {self.text}"

    @property
    def lanes(self) -> int:
        """Vector length, 1 for a scalar."""
        return lanes_of(self.type)

    @property
    def scalar_type(self) -> str:
        return scalar_of(self.type)

    @property
    def is_constant(self) -> bool:
        """Whether no instruction makes it, and it is no parameter."""
        return self.text[0] != "%"

    @property
    def element(self) -> Value:
        """Of a constant that is the same in all lanes, one of them; else the value itself."""
        found = _SPLAT.fullmatch(self.text)
        return Value(found[2], found[1]) if found else self

    @property
    def integer(self) -> int | None:
        """The number that an integer constant is; None of others and of vectors."""
        return None if self.text[0] == "%" else _integer(self.text)

    @property
    def number(self) -> float | None:
        """The same of a constant float or double."""
        return None if self.text[0] == "%" else _number(self.text)

    @property
    def mask(self) -> tuple[bool, ...] | None:
        """The lanes of a constant vector of i1 whose lanes are written out; else None."""
        return _mask(self.text) if self.text.startswith("<i1 ") else None

    def resized(self, scalar: str) -> Value:
        """An integer constant in integers of another width."""
        return Value(self.text.replace(self.scalar_type, scalar), vector_of(scalar, self.lanes))

    def of_type(self, type: str) -> Value:
        """What has the same name or digits in another type."""
        return Value(self.text, type)


@lru_cache(maxsize=4096)
def _integer(text: str) -> int | None:
    return int(text) if _INTEGER.fullmatch(text) else None


@lru_cache(maxsize=4096)
def _number(text: str) -> float | None:
    """LLVM writes floats and doubles alike, as a double's code."""
    if text.startswith("0x"):
        return float(struct.unpack("<d", int(text, 16).to_bytes(8, "little"))[0])
    return float(text) if _DECIMAL.fullmatch(text) else None


@lru_cache(maxsize=1024)
def _mask(text: str) -> tuple[bool, ...]:
    return tuple(bit.strip() == "i1 1" for bit in text[1:-1].split(","))


@lru_cache(maxsize=1024)
def lanes_of(type: str) -> int:
    """Vector length of a type, 1 for a scalar."""
    return int(type[1 : type.index(" ")]) if type.startswith("<") else 1


@lru_cache(maxsize=1024)
def scalar_of(type: str) -> str:
    """The element type of a vector type; a scalar type itself."""
    return type[type.index("x") + 2 : -1] if type.startswith("<") else type


@lru_cache(maxsize=1024)
def truths_of(type: str) -> str:
    """The type of what a comparison of values of a type gives."""
    return vector_of("i1", lanes_of(type))


def vector_of(scalar: str, lanes: int) -> str:
    """The type of `lanes` scalars; the scalar type itself for one lane."""
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


def listed(scalar: str, elements: tuple[object, ...]) -> Value:
    """A constant vector whose lanes are written out: integers, or "poison" where any will do."""
    return Value(_listed(scalar, elements), f"<{len(elements)} x {scalar}>")


@lru_cache(maxsize=4096)
def lane_order(order: tuple[int, ...]) -> Value:
    """The mask of a shuffle: a lane for each of the result's, -1 for any value."""
    return listed("i32", tuple("poison" if n < 0 else n for n in order))


@lru_cache(maxsize=4096)
def _listed(scalar: str, elements: tuple[object, ...]) -> str:
    return f"<{', '.join(f'{scalar} {element}' for element in elements)}>"


def counted(scalar: str, lanes: int, first: int = 0) -> Value:
    """first, first + 1, ... as a constant."""
    if lanes == 1:
        return Value(str(first), scalar)
    return listed(scalar, tuple(range(first, first + lanes)))


def every_lane(lanes: int) -> Value:
    """The mask that lets all lanes through."""
    return Value("splat (i1 true)", vector_of("i1", lanes))


def poison(type: str) -> Value:
    """Any value."""
    return Value("poison", type)


def float_bits(value: float, scalar: str) -> str:
    """A float constant in LLVM's exact hexadecimal form."""
    if scalar == "double":
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    if scalar == "float":
        rounded = struct.unpack("<f", struct.pack("<f", value))[0]
        return f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}"
    raise ValueError(f"no float constant of type {scalar}")


def mangled(type: str) -> str:
    """The suffix of an overloaded intrinsic: v16f32, i64, p0."""
    names = {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16", "ptr": "p0"}
    scalar = names.get(scalar_of(type), scalar_of(type))
    return f"v{lanes_of(type)}{scalar}" if type.startswith("<") else scalar
