"""Tokens of a literal -> Literal, for a given shape; docs/text.md 4.1.

    {{1, 2}, {3, 4}} --structure--> element tokens in row-major order --conversion--> exact bits

Commas are optional and may repeat; the braces must have the shape's dimensions. Nothing is
allocated before its elements have been counted in the text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from hlo.errors import Violation
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType, FloatFormat
from hlo.ir.layout import default_layout
from hlo.ir.literal import Literal
from hlo.ir.shape import Shape
from hlo.parser.layout_rules import layout_problem
from hlo.parser.lexer import Token

_PLAIN_SIZES = (0, 4)  # E(n) of numbers that share a shape in XLA, whatever their type
LARGEST_ELIDED = 1 << 34  # bytes; XLA allocates them, and gives up where it cannot
QUIET = 0x8000000000000  # the NaN bits of a double that the text gave no payload
_ATOMS = frozenset(("TRUE", "FALSE", "INT", "DECIMAL", "INF", "NEG_INF"))


class LiteralTokens:
    """The tokens of a literal as they stand; `literal(shape)` makes sense of them."""

    __slots__ = ("tokens",)

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens

    def literal(self, shape: Shape) -> Literal:
        """The value that they spell for a shape; raises Violation."""
        reader = _Reader(self.tokens)
        found = reader.value(shape)
        if reader.at != len(self.tokens):
            raise _wrong(self.tokens[reader.at], "the end of the literal")
        return found


def _wrong(token: Token, expected: str) -> Violation:
    return Violation("literal", "literal", f"'{token.value}'", expected)


class _Reader:
    """A cursor over the tokens."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens
        self.at = 0

    def value(self, shape: Shape) -> Literal:
        if shape.is_tuple:
            return self._tuple(shape)
        if shape.dtype is dt.BUFFER:
            (shape,) = shape.elements
        if not shape.is_array:
            raise Violation(
                "literal", "literal", f"of shape {shape}", "a literal of an array shape"
            )
        problem = layout_problem(shape)
        if problem:
            raise Violation("layout", "literal", f"of shape {shape}", f"one without {problem}")
        shape = stored(shape)
        if shape.rank and self._peek().type in _ATOMS:
            return self._lone(shape)
        elements, elided = self._elements(shape)
        if elided:
            converted(shape.dtype, elements)  # what is written has to be of the type, too
            if shape.size * shape.dtype.item_bytes > LARGEST_ELIDED:
                raise Violation(
                    "literal", "literal", f"an elided {shape}", "one that fits in memory"
                )
            return Literal.elided(shape)
        array = converted(shape.dtype, elements)
        return Literal.of(array.reshape(shape.dims), shape)

    def _lone(self, shape: Shape) -> Literal:
        """One number for a whole array is its first element, and the others are zero."""
        token = self._next()
        if min(shape.dims) < 1:
            raise _wrong(token, f"{shape.rank} braces: {shape} has no first element")
        if shape.size * shape.dtype.item_bytes > LARGEST_ELIDED:
            raise _wrong(token, f"a literal that fits in memory: {shape} does not")
        first = converted(shape.dtype, [self._element(shape.dtype, token)])
        array = np.zeros(shape.size, first.dtype)
        array[:1] = first
        return Literal.of(array.reshape(shape.dims), shape)

    def _peek(self) -> Token:
        if self.at >= len(self.tokens):
            raise _wrong(self.tokens[-1], "a longer literal")
        return self.tokens[self.at]

    def _next(self) -> Token:
        token = self._peek()
        self.at += 1
        return token

    def _tuple(self, shape: Shape) -> Literal:
        """`(a, b)`; `()` for any tuple shape makes every element an empty tuple."""
        opening = self._next()
        if opening.type != "LPAR":
            raise _wrong(opening, "'(' before the elements of a tuple")
        if self._peek().type == "RPAR":
            self.at += 1
            return Literal.of_tuple(tuple(Literal.of_tuple(()) for _ in shape.elements))
        elements: list[Literal] = []
        for element in shape.elements:
            if elements and self._peek().type == "COMMA":
                self.at += 1
            elements.append(self.value(element))
        closing = self._next()
        if closing.type != "RPAR":
            raise _wrong(closing, "')' behind the elements of a tuple")
        return Literal.of_tuple(tuple(elements))

    def _elements(self, shape: Shape) -> tuple[list[object], bool]:  # noqa: C901  # one flat dispatch
        """The element tokens (pairs of them for complex types) in order, and whether some are
        elided. Of such arrays numbers may stand between the outermost braces, whatever the rank.
        """
        dims, rank = shape.dims, len(shape.dims)
        counts = [0] * (rank + 1)  # counts[d]: parts seen at brace depth d
        elements: list[object] = []
        depth, elided = 0, False
        outside: Token | None = None  # the first of numbers that stand in too few braces
        while True:
            token = self._next()
            kind = token.type
            if kind in _ATOMS and depth == 1 < rank and not shape.dtype.is_complex:
                outside = outside or token
                elements.append(token)
            elif kind in _ATOMS or kind == "LPAR":
                if depth != rank:
                    raise _wrong(token, f"{rank} braces around each element of {shape}")
                if rank:
                    self._count(counts, depth, dims, token)
                elements.append(self._element(shape.dtype, token))
            elif kind == "LBRACE":
                if depth == rank:
                    raise _wrong(token, f"at most {rank} nested braces, the rank of {shape}")
                if depth:
                    self._count(counts, depth, dims, token)
                depth += 1
                counts[depth] = 0
            elif kind == "RBRACE":
                depth -= 1
                self._check_all(counts[depth + 1], depth, dims[depth])
            elif kind == "ELLIPSIS":
                if depth != 1:
                    raise _wrong(token, "{...} around the whole literal")
                counts[1] = dims[0]
                elided = True
            elif kind != "COMMA" or depth == 0:
                raise _wrong(token, f"an element of {shape}")
            if depth == 0:
                if outside and not (elided and len(elements) <= shape.size):
                    raise _wrong(outside, f"{rank} braces around each element of {shape}")
                return elements, elided

    def _count(self, counts: list[int], depth: int, dims: tuple[int, ...], token: Token) -> None:
        counts[depth] += 1
        if counts[depth] > dims[depth - 1]:
            raise _wrong(token, f"{dims[depth - 1]} parts of dimension {depth - 1}")

    def _check_all(self, count: int, dim: int, size: int) -> None:
        if count != size:
            found = f"{count} parts of dimension {dim}"
            raise Violation("literal", "literal", found, f"{size}, its size")

    def _element(self, dtype: DType, token: Token) -> object:
        if not dtype.is_complex:
            if token.type == "LPAR":
                raise _wrong(token, f"an element of type {dtype}")
            return token
        if token.type != "LPAR":
            raise _wrong(token, f"(real, imaginary), an element of type {dtype}")
        real, comma, imaginary, end = (self._next() for _ in range(4))
        for part, kinds in (
            (real, _ATOMS),
            (comma, ("COMMA",)),
            (imaginary, _ATOMS),
            (end, ("RPAR",)),
        ):
            if part.type not in kinds:
                raise _wrong(part, "(real, imaginary)")
        return real, imaginary


def stored(shape: Shape) -> Shape:
    """A literal's shape: static, without an element size; some layout properties it cannot have."""
    assert shape.layout is not None, "an array has a layout"
    layout = shape.layout
    if layout.index_type or layout.pointer_type:
        raise Violation("layout", "literal", f"of shape {shape}", "a layout without # and *")
    is_plain = layout.element_size in _PLAIN_SIZES and not (layout.tiles or layout.memory_space)
    if is_plain and not shape.rank:
        layout = default_layout(0)  # XLA has one shape for all numbers of a type
    if not shape.is_dynamic and not layout.element_size and layout == shape.layout:
        return shape
    flags = [n < 0 for n in shape.dims]  # unbounded: only `{...}` has such a shape
    layout = replace(layout, element_size=0)
    return Shape.array(shape.dtype, shape.dims, layout=layout, dynamic=flags)


def converted(dtype: DType, elements: Sequence[object]) -> np.ndarray:
    """The flat array of element tokens."""
    if dtype.is_complex:
        return _complexes(dtype, elements)  # type: ignore[arg-type]  # pairs of tokens
    if dtype.is_float:
        return _floats(dtype, elements)  # type: ignore[arg-type]  # tokens
    if dtype.is_pred:
        return np.array([_pred(t) for t in elements], dtype=np.bool_)  # type: ignore[arg-type]  # tokens
    return _integers(dtype, elements)  # type: ignore[arg-type]  # tokens


def _pred(token: Token) -> bool:
    if token.type in ("TRUE", "FALSE"):
        return token.type == "TRUE"
    if token.type != "INT":
        raise _wrong(token, "true, false or an integer")
    return int(token.value) != 0


def _int64(token: Token) -> int:
    value = int(token.value)
    return value - (1 << 64) if value >= 1 << 63 else value


def _integers(dtype: DType, tokens: Sequence[Token]) -> np.ndarray:
    for token in tokens:
        if token.type != "INT":
            raise _wrong(token, f"an integer of type {dtype}")
    return integers(dtype, [_int64(token) for token in tokens])


def integers(dtype: DType, numbers: Sequence[int] | np.ndarray) -> np.ndarray:
    """Values in the type's range, or of 64 bits each; u64 takes every Int, s64 too, by wrapping."""
    found = np.asarray(numbers, dtype=np.int64)
    if dtype is dt.U64:
        return found.view(np.uint64)
    low, high = dtype.int_range
    is_within = (found >= low) & (found <= high)
    if not is_within.all():
        expected = f"{low} to {high}, the range of {dtype}"
        raise Violation("literal", "literal", str(found[is_within.argmin()]), expected)
    if dtype.bits < 8:
        found = found.astype(np.int8 if dtype.is_signed else np.uint8)
    return found.astype(dtype.numpy)


def double(token: Token) -> float:
    """The token as a double; NaN without its payload."""
    kind, text = token.type, token.value
    if kind == "INT":
        return float(_int64(token))
    if kind in ("INF", "NEG_INF"):
        return math.inf if kind == "INF" else -math.inf
    if kind != "DECIMAL":
        raise _wrong(token, "a number")
    if "n" in text:
        return math.copysign(math.nan, -1.0 if text[0] == "-" else 1.0)
    number = float(text)
    if math.isinf(number):
        raise Violation("literal", "literal", text, "a number in the range of f64")
    return number


def _floats(dtype: DType, tokens: Sequence[Token]) -> np.ndarray:
    """Each rounded to nearest even; NaN with sign and payload."""
    doubles = np.array([double(t) for t in tokens], dtype=np.float64)
    array = rounded(dtype, doubles)
    nans = np.flatnonzero(np.isnan(doubles))
    if nans.size:
        array = array.copy()
        unsigned = array.view(_unsigned(dtype))
        for index in nans.tolist():
            unsigned[index] = nan_bits(dtype, tokens[index])
    return array


def _unsigned(dtype: DType) -> np.dtype:
    return np.dtype(f"u{dtype.item_bytes}")


def rounded(dtype: DType, doubles: np.ndarray) -> np.ndarray:
    """Doubles in a float type; a finite one that leaves the type's range is refused."""
    with np.errstate(all="ignore"):
        if dtype is dt.F64:
            return doubles
        if dtype.is_scale:  # no zero: what is too small becomes the least number
            least = dtype.least_power
            doubles = np.where((doubles > 0) & (doubles < least), least, doubles)
        array = _narrowed(dtype, doubles)
        lost = np.isfinite(doubles) & ~np.isfinite(array.astype(np.float64))
    if lost.any():
        index = int(np.flatnonzero(lost)[0])
        import ml_dtypes  # of the programs of few users, and of these the wrong ones

        bound = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]  # it has no types
        expected = f"{float(bound.min):g} to {float(bound.max):g}, the range of {dtype}"
        raise Violation("literal", "literal", f"{doubles[index]:g}", expected)
    return array


def _narrowed(dtype: DType, doubles: np.ndarray) -> np.ndarray:
    """Rounded as XLA's reader does: f16 and bf16 by way of f32, smaller types once."""
    if dtype.bits < 16:
        from hlo.ops.numerics.representation import rounded_to_odd  # few texts have such types

        doubles = rounded_to_odd(doubles)
    elif dtype.bits == 16:
        doubles = doubles.astype(np.float32)
    return doubles.astype(dtype.numpy)


def nan_bits(dtype: DType, token: Token) -> int:
    """The bits of a NaN: sign and payload as written, the quiet bit where there is no payload."""
    form = dtype.float_format
    assert form is not None, "a float type"
    payload, negative = _payload(token), token.value[0] == "-"
    if form.nan == "ieee":
        if payload == QUIET:
            fraction = 1 << (form.mantissa - 1)
        elif payload < 1 << form.mantissa:
            fraction = payload
        else:
            raise Violation("literal", "literal", token.value, f"a NaN payload that fits {dtype}")
        return _packed(form, negative=negative, fraction=fraction)
    if payload != QUIET:
        raise Violation("literal", "literal", token.value, f"no NaN payload: {dtype} has none")
    if form.nan == "ones":
        return _packed(form, negative=negative and form.has_sign, fraction=(1 << form.mantissa) - 1)
    if form.nan == "none":
        return (
            0 if negative else 1 << (dtype.bits - 1)
        )  # XLA's conversion gives a zero, sign flipped
    return 1 << (dtype.bits - 1)  # the single NaN of the fnuz types


def _payload(token: Token) -> int:
    _, found, digits = token.value.partition("(0x")
    return int(digits[:-1], 16) if found else QUIET


def _packed(form: FloatFormat, *, negative: bool, fraction: int) -> int:
    exponent = ((1 << form.exponent) - 1) << form.mantissa
    return (int(negative) << (form.exponent + form.mantissa)) | exponent | fraction


def _complexes(dtype: DType, pairs: Sequence[tuple[Token, Token]]) -> np.ndarray:
    """Parts in the component type; a NaN real part stands for both parts, as in XLA."""
    component = dtype.component
    flat = np.array([_exact_double(t) for pair in pairs for t in pair], dtype=np.uint64)
    parts = rounded(component, flat.view(np.float64)).copy()
    unsigned = parts.view(_unsigned(component))
    for index, (real, _) in enumerate(pairs):
        if math.isnan(double(real)):
            unsigned[2 * index : 2 * index + 2] = nan_bits(component, real)
    assert dtype.numpy is not None, "a complex type"
    return parts.view(dtype.numpy)


def _exact_double(token: Token) -> int:
    """The bits of the token as a double, a NaN's payload included."""
    number = double(token)
    if math.isnan(number):
        return nan_bits(dt.F64, token)
    return int(np.float64(number).view(np.uint64))
