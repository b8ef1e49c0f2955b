"""Trees of shapes -> Shape; what stands in a layout after `:` is read token by token.

XLA reads a layout's properties in a fixed order and only notes errors inside one, so that
`{1,0:T}` has one empty tile (docs/text.md 3.3); `_Properties` does the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo.ir import dtype as dt
from hlo.ir.dtype import DTYPES, DType
from hlo.ir.layout import COMBINE, Layout, SplitConfig
from hlo.ir.shape import UNBOUNDED, Shape
from hlo.parser.engine import Fault
from hlo.parser.layout_rules import layout_problem
from hlo.parser.lexer import Token, plain_shape

# Tuples in tuples that a text may have; DEEPEST_TUPLE of ir/shape.py bounds those of any module.
DEEPEST_WRITTEN = 100
_XLAS_UNBOUNDED = -1 << 63  # the bound that XLA holds for `?`


def number(token: Token) -> int:
    """An INT: stored in 64 bits, so 2^63 and more wrap."""
    value = int(token.value.lstrip("0") or "0") if token.value[0] == "0" else int(token.value)
    return value - (1 << 64) if value >= 1 << 63 else value


def array_shape(parts: Sequence[object]) -> Shape:
    """SHAPE; or TYPE, dimensions as (size, dynamic), at the end perhaps a Layout."""
    word, *rest = parts
    assert isinstance(word, Token), "a shape begins with its type"
    if word.type == "SHAPE":
        plain = plain_shape(word.value)
        assert plain is not None, "the lexer has read it"
        return plain
    dtype = DTYPES[word.value]
    last = rest[-1] if rest else None
    layout = last if isinstance(last, Layout) else None
    if layout is not None:
        rest.pop()
    dims: list[tuple[int, bool]] = rest  # type: ignore[assignment]  # what `dim` gives
    if not dtype.is_array:
        if dims or layout is not None:
            raise _fault(word, f"{word.value} with dimensions or a layout", f"{word.value}[]")
        return Shape.token() if dtype is dt.TOKEN else Shape.opaque()
    if layout is not None and len(layout.minor_to_major) != len(dims):
        found = f"a layout of {len(layout.minor_to_major)} dimensions"
        raise _fault(word, found, f"{len(dims)}, the rank of the shape", "layout")
    return Shape.array(
        dtype, (size for size, _ in dims), layout=layout, dynamic=(d for _, d in dims)
    )


def dimension(parts: Sequence[Token]) -> tuple[int, bool]:
    """`4`, `<=4` or `?` as (size or bound, whether it is dynamic)."""
    token = parts[-1]
    if token.type == "QUESTION":
        return UNBOUNDED, True
    size = number(token)
    if size == _XLAS_UNBOUNDED and len(parts) == 2:
        return UNBOUNDED, True
    if size < 0:
        raise _fault(token, f"a dimension of size {size}", "0 or more")
    return size, len(parts) == 2


def tuple_shape(parts: Sequence[Shape], place: int) -> Shape:
    """A tuple, of bounded depth: shapes are compared and printed by recursion."""
    for part in parts:
        problem = layout_problem(part.elements[0] if part.dtype is dt.BUFFER else part)
        if problem:
            message = f"{part} with {problem} in a tuple, expected a valid layout"
            raise Fault("layout", message, place, place)
    level: list[Shape] = [e for e in parts if e.elements]
    depth = 1
    while level:
        depth += 1
        level = [e for part in level for e in part.elements if e.elements]
    if depth > DEEPEST_WRITTEN:
        message = f"a tuple of depth {depth}, expected at most {DEEPEST_WRITTEN}"
        raise Fault("nesting", message, place, place)
    return Shape.tuple(parts)


def buffer_shape(parts: Sequence[object]) -> Shape:
    """`b(f32[2])`."""
    word, element = parts
    assert isinstance(word, Token), "`b`"
    assert isinstance(element, Shape), "a shape in `b(...)`"
    if not element.is_array:
        raise _fault(word, f"a buffer of {element}", "a buffer of an array")
    return Shape.buffer(element)


def layout(tokens: Sequence[Token]) -> Layout:
    """LAYOUT, minor-to-major, perhaps COLON and properties, RBRACE."""
    numbers: list[int] = []
    at = 1
    while tokens[at].type == "INT":
        numbers.append(number(tokens[at]))
        at += 1
    if tokens[at].type != "COLON":
        return Layout(tuple(numbers))
    return _Properties(tokens, at + 1).layout(tuple(numbers))


def _signed_byte(value: int) -> int:
    """The lower 8 bits with their sign: what XLA keeps of a memory space."""
    return (value + 128) % 256 - 128


def _fault(token: Token, found: str, expected: str, code: str = "syntax") -> Fault:
    return Fault(code, f"{found}, expected {expected}", token.start_pos, token.end_pos)


class _Properties:
    """A cursor over the tokens of a layout's properties."""

    def __init__(self, tokens: Sequence[Token], at: int) -> None:
        self.tokens = tokens
        self.at = at

    def layout(self, minor_to_major: tuple[int, ...]) -> Layout:
        if self._word("D"):
            self._level_types()
        tiles = self._tiles() if self._word("T") else ()
        tail = self._number() if self._word("L") else 1
        if tail is not None and tail <= 0:
            raise self._wrong("a tail padding alignment of 1 or more")
        index = self._type() if self._take("HASH") else None
        pointer = self._type() if self._take("STAR") else None
        size = self._number() if self._word("E") else 0
        space = _signed_byte(self._number() or 0) if self._word("S") else 0
        splits = self._splits() if self._word("SC") else ()
        if self._word("P"):
            raise self._wrong("no physical shape: the array is not sparse")
        prefix = self._number() if self._word("M") else 0
        if self._kind != "RBRACE":
            raise self._wrong("'}' at the end of the layout")
        return Layout(
            minor_to_major,
            tuple(tiles),
            1 if tail is None else tail,
            index,
            pointer,
            size or 0,
            space,
            tuple(splits),
            prefix or 0,
        )

    @property
    def _kind(self) -> str:
        return self.tokens[self.at].type

    def _take(self, kind: str) -> bool:
        if self._kind != kind:
            return False
        self.at += 1
        return True

    def _word(self, word: str) -> bool:
        if self._kind != "IDENT" or self.tokens[self.at].value != word:
            return False
        self.at += 1
        return True

    def _int(self) -> int | None:
        if self._kind != "INT":
            return None
        self.at += 1
        return number(self.tokens[self.at - 1])

    def _number(self) -> int | None:
        """`(n)`; None where it is not there."""
        if not self._take("LPAR"):
            return None
        found = self._int()
        if found is not None:
            self._take("RPAR")
        return found

    def _type(self) -> DType | None:
        """`(u32)`: each token is taken if it is the right one."""
        self._take("LPAR")
        found = None
        if self._kind == "TYPE":
            found = DTYPES[self.tokens[self.at].value]
            self.at += 1
            found = found if found.is_integral else dt.F32  # all print as "invalid"
        elif self._word("invalid"):  # what we print must read back; XLA does not read it
            found = dt.F32
        self._take("RPAR")
        return found

    def _level_types(self) -> None:
        """`(D,C+,S~)`: read and dropped."""
        if not self._take("LPAR"):
            return
        while any(map(self._word, "DCSH")):
            self._take("PLUS")
            self._take("TILDE")
            if not self._take("COMMA"):
                break
            if self._kind == "RPAR":
                return  # nothing takes a `)` behind a comma
        self._take("RPAR")

    def _tiles(self) -> list[tuple[int, ...]]:
        """`(8,128)(2,1)`; stops quietly at the first token that does not belong."""
        tiles: list[tuple[int, ...]] = []
        while True:
            tile: list[int] = []
            complete = self._take("LPAR") and self._tile(tile)
            tiles.append(tuple(tile))
            if not complete or self._kind != "LPAR":
                return tiles

    def _tile(self, tile: list[int]) -> bool:
        while self._kind != "RPAR" or tile:
            size = COMBINE if self._take("STAR") else self._int()
            if size is None:
                return False
            if size < 0 and self.tokens[self.at - 1].type == "INT":
                raise self._wrong("tile sizes of 0 or more")
            tile.append(size)
            if not self._take("COMMA"):
                break
        return self._take("RPAR")

    def _splits(self) -> list[SplitConfig]:
        """`(dimension:i,j)(dimension:k)`."""
        splits: list[SplitConfig] = []
        while self._take("LPAR"):
            dim = self._int()
            if dim is None or not self._take("COLON"):
                return splits
            indices: list[int] = []
            while (index := self._int()) is not None:
                indices.append(index)
                if not self._take("COMMA"):
                    break
                if self._kind == "RPAR":
                    return splits
            splits.append(SplitConfig(dim, tuple(indices)))
            if not self._take("RPAR"):
                return splits
        return splits

    def _wrong(self, expected: str) -> Fault:
        token = self.tokens[self.at]
        return _fault(token, f"'{token.value}' in a layout", expected, "layout")
