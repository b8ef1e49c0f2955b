"""Writer: LLVM IR as text, one typed line at a time. f-strings cost 0.2 us a line, llvmlite's
builder 6-12.

    Value(text, type): an SSA name or a literal with its LLVM type ("float", "<16 x float>", "ptr")

Common subexpressions within a block are found here (same opcode, same operands: same Value), since
kernels run no LLVM middle-end. Does not know HLO.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache

from msgspec import Struct, field


class Value(Struct, frozen=True):
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


@lru_cache(maxsize=1024)
def lanes_of(type: str) -> int:
    """Vector length of a type, 1 for a scalar."""
    return int(type[1 : type.index(" ")]) if type.startswith("<") else 1


@lru_cache(maxsize=1024)
def scalar_of(type: str) -> str:
    """The element type of a vector type; a scalar type itself."""
    return type[type.index("x") + 2 : -1] if type.startswith("<") else type


def vector_of(scalar: str, lanes: int) -> str:
    """The type of `lanes` scalars; the scalar type itself for one lane."""
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


def float_bits(value: float, scalar: str) -> str:
    """A float constant in LLVM's exact hexadecimal form."""
    if scalar == "double":
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    if scalar == "float":
        rounded = struct.unpack("<f", struct.pack("<f", value))[0]
        return f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}"
    raise ValueError(f"no float constant of type {scalar}")


Count = int  # inside Writer `int` is its method


class Writer(Struct):
    """The body of one function. Names are `%1`-style with a letter: `%v12`; labels `b3`."""

    lines: list[str] = field(default_factory=list)
    declarations: dict[str, str] = field(default_factory=dict)  # symbol -> `declare ...` line
    globals: dict[str, str] = field(default_factory=dict)  # symbol -> definition line
    mark: str = ""  # debug location that new lines get (annotate.py)
    _count: int = 0
    _known: dict[tuple[str, ...], Value] = field(default_factory=dict)
    _around: Sequence[dict[tuple[str, ...], Value]] = ()

    # -- plumbing ----------------------------------------------------------------------------

    def fresh(self, prefix: str = "v") -> str:
        self._count += 1
        return f"%{prefix}{self._count}"

    def emit(self, line: str) -> None:
        """A line without a result."""
        self.lines.append(f"  {line}{self.mark}")

    def assign(self, type: str, text: str) -> Value:
        """A line with a fresh result of the type: `%vN = text`. Never shared."""
        name = self.fresh()
        self.lines.append(f"  {name} = {text}{self.mark}")
        return Value(name, type)

    def pure(self, type: str, text: str) -> Value:
        """Like `assign`, but the same text in the same scope gives the earlier value."""
        key = (type, text)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self.assign(type, text)
        return found

    def note(self, about: Value, what: str, value: Value) -> None:
        """Remember, as long as `about` is known, a value that belongs to it."""
        self._known["note", what, about.text] = value

    def noted(self, about: Value, what: str) -> Value | None:
        """What was noted of a value, or of the scalar that is in all its lanes; else None."""
        found = self._found(("note", what, about.text))
        scalar = self._found(("splat", about.text)) if found is None else None
        if scalar is not None and (of_scalar := self._found(("note", what, scalar.text))):
            return self.splat(of_scalar, about.lanes)
        return found

    def _found(self, key: tuple[str, ...]) -> Value | None:
        """What is known here or in a region around this one."""
        found = self._known.get(key)
        around = iter(self._around)
        while found is None and (known := next(around, None)) is not None:
            found = known.get(key)
        return found

    def scope(self) -> dict[tuple[str, ...], Value]:
        """Remember what is known; give it to `restore` when control leaves the region it
        dominates.
        """
        return dict(self._known)

    def restore(
        self,
        known: dict[tuple[str, ...], Value],
        around: Sequence[dict[tuple[str, ...], Value]] | None = None,
    ) -> None:
        """around: what is known in the regions around that of `known`, which may have grown since
        that was begun; None: the same regions.
        """
        self._known = known
        if around is not None:
            self._around = around

    def new_label(self, prefix: str = "b") -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def label(self, label: str) -> None:
        self.lines.append(f"{label}:")

    def branch(self, label: str) -> None:
        self.emit(f"br label %{label}")

    def branch_if(self, condition: Value, then: str, otherwise: str) -> None:
        self.emit(f"br i1 {condition}, label %{then}, label %{otherwise}")

    def declare(self, result: str, symbol: str, parameters: Sequence[str]) -> None:
        self.declarations[symbol] = f"declare {result} @{symbol}({', '.join(parameters)})"

    # -- constants ---------------------------------------------------------------------------

    def int(self, value: int, type: str = "i64") -> Value:
        """An integer constant, splat when the type is a vector."""
        return self._constant(str(int(value)), type)

    def float(self, value: float, type: str = "float") -> Value:
        """A float or double constant, splat when the type is a vector."""
        return self._constant(float_bits(value, scalar_of(type)), type)

    def _constant(self, text: str, type: str) -> Value:
        if type.startswith("<"):
            return Value(f"splat ({scalar_of(type)} {text})", type)
        return Value(text, type)

    def zero(self, type: str) -> Value:
        return Value("zeroinitializer" if type.startswith("<") else _ZERO.get(type, "0"), type)

    # -- arithmetic --------------------------------------------------------------------------

    def binary(self, opcode: str, a: Value, b: Value) -> Value:
        """`opcode` is an LLVM instruction with its flags: add, fsub, fmul contract, lshr, ..."""
        assert a.type == b.type, f"{opcode} {a.typed}, {b.typed}"
        return self.pure(a.type, f"{opcode} {a.typed}, {b.text}")

    def unary(self, opcode: str, a: Value) -> Value:
        return self.pure(a.type, f"{opcode} {a.typed}")

    def compare(self, opcode: str, a: Value, b: Value) -> Value:
        """`opcode` such as "icmp slt" or "fcmp olt"; the result is i1 lanes."""
        assert a.type == b.type, f"{opcode} {a.typed}, {b.typed}"
        return self.pure(vector_of("i1", a.lanes), f"{opcode} {a.typed}, {b.text}")

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        assert a.type == b.type, f"select {a.typed}, {b.typed}"
        return self.pure(a.type, f"select {condition.typed}, {a.typed}, {b.typed}")

    def cast(self, opcode: str, a: Value, type: str) -> Value:
        """`opcode`: zext, sext, trunc, fpext, fptrunc, bitcast, sitofp, ...;
        identity when equal.
        """
        return a if a.type == type else self.pure(type, f"{opcode} {a.typed} to {type}")

    def intrinsic(self, name: str, type: str, *operands: Value, suffix: str = "") -> Value:
        """A call to a pure intrinsic, `llvm.fma`, overloaded on the result type (or `suffix`)."""
        symbol = f"{name}.{suffix or mangled(type)}" if suffix != "-" else name
        self.declare(type, symbol, [o.type for o in operands])
        return self.pure(type, f"call {type} @{symbol}({', '.join(o.typed for o in operands)})")

    def splat(self, a: Value, lanes: Count) -> Value:
        """A scalar in every lane."""
        if lanes in (1, a.lanes):
            return a
        if not a.text.startswith("%"):
            return self._constant(a.text, vector_of(a.type, lanes))
        type = vector_of(a.type, lanes)
        head = self.pure(type, f"insertelement {type} poison, {a.typed}, i64 0")
        zeros = f"<{lanes} x i32> zeroinitializer"
        result = self.pure(type, f"shufflevector {head.typed}, {type} poison, {zeros}")
        self._known["splat", result.text] = a
        return result

    def extract(self, a: Value, lane: Count) -> Value:
        return self.pure(a.scalar_type, f"extractelement {a.typed}, i64 {lane}")

    # -- memory ------------------------------------------------------------------------------

    def address(self, base: Value, index: Value, element: str) -> Value:
        """base + index elements of the scalar type."""
        return self.pure("ptr", f"getelementptr inbounds {element}, ptr {base}, {index.typed}")

    def load(self, address: Value, type: str, align: Count = 1) -> Value:
        return self.assign(type, f"load {type}, ptr {address}, align {align}")

    def store(self, value: Value, address: Value, align: Count = 1) -> None:
        self.emit(f"store {value.typed}, ptr {address}, align {align}")


_ZERO = {
    "float": "0.0",
    "double": "0.0",
    "half": "0.0",
    "bfloat": "0.0",
    "ptr": "null",
    "i1": "false",
}


def mangled(type: str) -> str:
    """The suffix of an overloaded intrinsic: v16f32, i64, p0."""
    names = {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16", "ptr": "p0"}
    scalar = names.get(scalar_of(type), scalar_of(type))
    return f"v{lanes_of(type)}{scalar}" if type.startswith("<") else scalar
