"""Symbolic index maps: affine forms over loop variables, with floor division and remainder.

    e = c0 + c1*atom1 + ...     atom = Variable | Opaque (a run-time value) | e // n | e % n

Every atom has a known range, so `(i*8 + j) // 8` with 0 <= j < 8 is `i`, and a quotient and a
remainder that meet again (`8*(k // 8) + k % 8`) are `k`. What cannot be simplified stays an atom.
Immutable values. Does not know: LLVM (an atom only carries the value it stands for), HLO.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

Index = tuple["Expr", ...]


class Atom:
    """What an index depends on: inclusive range [low, high], depth of the loop that fixes it.

    `lanes` is 1, or the vector's length where neighbouring lanes hold different values. `value` is
    the LLVM value (of lane 0 for a loop variable that counts lanes; a vector for opaque lanes),
    `mask` the lanes that are in the loop's range (None: all).
    """

    __slots__ = ("depth", "high", "index", "lanes", "low", "mask", "name", "value")

    def __init__(
        self,
        name: str,
        low: int,
        high: int,
        depth: int = 0,
        lanes: int = 1,
        value: object = None,
        mask: object = None,
    ) -> None:
        self.name = name
        self.low = low
        self.high = high
        self.depth = depth
        self.lanes = lanes
        self.value = value
        self.mask = mask
        self.index: Expr | None = None  # itself, once somebody asked for it

    def __repr__(self) -> str:
        return self.name


class Variable(Atom):
    """A loop variable. With lanes > 1, lane l stands for value + l."""

    __slots__ = ()


class Opaque(Atom):
    """A value known at run time only: the clamped start index at `inner` of an array."""

    __slots__ = ("inner",)

    def __init__(self, name: str, low: int, high: int, inner: Index, **fields: object) -> None:
        super().__init__(name, low, high, **fields)  # type: ignore[arg-type]  # Atom's own fields
        self.inner = inner


class DivMod(Atom):
    """`inner // divisor` (is_quotient) or `inner % divisor`; equal when its parts are."""

    __slots__ = ("_hash", "_quotient", "divisor", "inner", "is_quotient")

    def __init__(self, inner: Expr, divisor: int, *, is_quotient: bool) -> None:
        if is_quotient:
            low, high = inner.low // divisor, inner.high // divisor
        else:
            low, high = 0, divisor - 1
        super().__init__("", low, high, inner.depth, inner.lanes)
        self.inner = inner
        self.divisor = divisor
        self.is_quotient = is_quotient
        self._hash: int | None = None
        self._quotient: Expr | None = None

    @property
    def quotient(self) -> Expr:
        """`inner // divisor`, which every sum with a remainder asks for: divided once."""
        if self._quotient is None:
            self._quotient = self.inner // self.divisor
        return self._quotient

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, DivMod)
            and self.divisor == other.divisor
            and self.is_quotient == other.is_quotient
            and self.inner == other.inner
        )

    def __hash__(self) -> int:
        found = self._hash
        if found is None:
            found = self._hash = hash((self.inner, self.divisor, self.is_quotient))
        return found

    def __repr__(self) -> str:
        return f"({self.inner} {'/' if self.is_quotient else '%'} {self.divisor})"


class Expr:
    """constant + sum of coefficient * atom; `terms` maps atoms to their non-zero coefficients."""

    __slots__ = ("_hash", "constant", "depth", "high", "lanes", "low", "terms")

    def __init__(self, terms: dict[Atom, int], constant: int) -> None:
        self.terms = terms
        self.constant = constant
        low = high = constant
        depth, lanes = 0, 1
        for atom, k in terms.items():
            if k > 0:
                low += k * atom.low
                high += k * atom.high
            else:
                low += k * atom.high
                high += k * atom.low
            if atom.depth > depth:  # noqa: PLR1730  # a call of max would take half the time
                depth = atom.depth
            if atom.lanes > lanes:  # noqa: PLR1730
                lanes = atom.lanes
        self.low = low
        self.high = high
        self.depth = depth
        self.lanes = lanes
        self._hash: int | None = None

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Expr)
            and self.constant == other.constant
            and self.terms == other.terms
        )

    def __hash__(self) -> int:
        found = self._hash
        if found is None:
            found = self._hash = hash((frozenset(self.terms.items()), self.constant))
        return found

    def __repr__(self) -> str:
        texts = [f"{k}*{a!r}" if k != 1 else repr(a) for a, k in self.terms.items()]
        if self.constant or not texts:
            texts.append(str(self.constant))
        return " + ".join(texts)

    @property
    def is_constant(self) -> bool:
        return not self.terms

    def __add__(self, other: Expr | int) -> Expr:
        if isinstance(other, int):
            return self if other == 0 else Expr(self.terms, self.constant + other)
        if not other.terms:
            return self + other.constant
        if not self.terms:
            return other + self.constant
        terms = dict(self.terms)
        for atom, k in other.terms.items():
            total = terms.get(atom, 0) + k
            if total:
                terms[atom] = total
            else:
                del terms[atom]
        return _recombined(terms, self.constant + other.constant)

    def __sub__(self, other: Expr | int) -> Expr:
        return self + (-other if isinstance(other, int) else other * -1)

    def __mul__(self, factor: int) -> Expr:
        if factor == 1:
            return self
        if factor == 0:
            return ZERO
        return Expr({a: k * factor for a, k in self.terms.items()}, self.constant * factor)

    def __floordiv__(self, divisor: int) -> Expr:
        assert divisor > 0, "a positive divisor"
        if divisor == 1:
            return self
        if self.low // divisor == self.high // divisor:
            return number(self.low // divisor)
        whole, rest = _divided(self, divisor)
        if rest.low // divisor == rest.high // divisor:
            return whole + rest.low // divisor
        return whole + _quotient(rest, divisor)

    def __mod__(self, divisor: int) -> Expr:
        assert divisor > 0, "a positive divisor"
        if divisor == 1:
            return ZERO
        if self.low // divisor == self.high // divisor:
            return self - (self.low // divisor) * divisor
        _, rest = _divided(self, divisor)
        if rest.low // divisor == rest.high // divisor:
            return rest - (rest.low // divisor) * divisor
        return _remainder(rest, divisor)

    def coefficient(self, variable: Atom) -> int | None:
        """How much the value grows per step of the variable; None where that is not constant."""
        if any(a is not variable and _depends(a, variable) for a in self.terms):
            return None
        return self.terms.get(variable, 0)

    def depends_on(self, variable: Atom) -> bool:
        """Whether the variable occurs, also in quotients and in where run-time values stand."""
        return any(_depends(a, variable) for a in self.terms)

    def substituted(self, values: Mapping[Atom, Expr]) -> Expr:
        """The index with variables replaced by indices, also in quotients and remainders."""
        total = number(self.constant)
        for atom, k in self.terms.items():
            total = total + _substituted(atom, values) * k
        return total

    def is_made_of(self, variables: Collection[Atom]) -> bool:
        """Whether it depends on nothing else, not on a value known at run time either."""
        return all(
            atom.inner.is_made_of(variables) if isinstance(atom, DivMod) else atom in variables
            for atom in self.terms
        )

    def parts(self) -> Iterable[DivMod]:
        """Quotients and remainders, innermost first."""
        for atom in self.terms:
            if isinstance(atom, DivMod):
                yield from atom.inner.parts()
                yield atom


def _substituted(atom: Atom, values: Mapping[Atom, Expr]) -> Expr:
    if not isinstance(atom, DivMod):
        return values.get(atom) or of(atom)
    inner = atom.inner.substituted(values)
    return inner // atom.divisor if atom.is_quotient else inner % atom.divisor


def _depends(atom: Atom, variable: Atom) -> bool:
    if isinstance(atom, DivMod):
        return atom.inner.depends_on(variable)
    if isinstance(atom, Opaque):
        return any(e.depends_on(variable) for e in atom.inner)
    return atom is variable


def loop_variables(exprs: Iterable[Expr]) -> set[Variable]:
    """All loop variables that occur, also in quotients and in where run-time values stand."""
    found: set[Variable] = set()
    pending = list(exprs)
    while pending:
        for atom in pending.pop().terms:
            if isinstance(atom, Variable):
                found.add(atom)
            elif isinstance(atom, DivMod):
                pending.append(atom.inner)
            elif isinstance(atom, Opaque):
                pending += atom.inner
    return found


def stride(position: Expr) -> int | None:
    """Elements between neighbouring lanes, None where they are irregular."""
    found: int | None = 0
    for atom, k in position.terms.items():
        if atom.lanes == 1:
            continue
        if not isinstance(atom, Variable):
            return None
        found = (found or 0) + k
    return found


def rests_on_values(e: Expr) -> bool:
    """Whether a run-time value occurs, also in quotients."""
    return any(
        isinstance(a, Opaque) or (isinstance(a, DivMod) and rests_on_values(a.inner))
        for a in e.terms
    )


def number(value: int) -> Expr:
    """A constant index."""
    return Expr({}, value)


def of(atom: Atom) -> Expr:
    """The atom as an index; a constant where its range has one value."""
    if atom.low == atom.high:
        return number(atom.low)
    if atom.index is None:
        atom.index = Expr({atom: 1}, 0)
    return atom.index


ZERO = number(0)


def _divided(e: Expr, divisor: int) -> tuple[Expr, Expr]:
    """(whole, rest) with e = divisor*whole + rest, terms that divide moved into whole."""
    whole: dict[Atom, int] = {}
    rest: dict[Atom, int] = {}
    for atom, k in e.terms.items():
        if k % divisor == 0:
            whole[atom] = k // divisor
        else:
            rest[atom] = k
    count, left = divmod(e.constant, divisor)
    return Expr(whole, count), Expr(rest, left)


def _quotient(e: Expr, divisor: int) -> Expr:
    """e // divisor as an atom, in lowest terms."""
    common = math.gcd(divisor, *e.terms.values())
    if common > 1:
        # (g*x + m) // (g*d) = (x + m // g) // d
        e = Expr({a: k // common for a, k in e.terms.items()}, e.constant // common)
        return e // (divisor // common)
    if coarse := _coarse(e, divisor):
        unit, multiple, _ = coarse
        return multiple // (divisor // unit)
    for atom, k in e.terms.items():
        if k == 1 and isinstance(atom, DivMod) and atom.is_quotient:
            # (x // n + d) // m = (x + n*d) // (n*m)
            whole = atom.inner + (e - of(atom)) * atom.divisor
            return whole // (atom.divisor * divisor)
    if len(e.terms) == 1 and not e.constant:
        (atom,) = e.terms
        if isinstance(atom, DivMod) and e.terms[atom] == 1 and atom.divisor % divisor == 0:
            # (x % (d*m)) // d = (x // d) % m
            return (atom.inner // divisor) % (atom.divisor // divisor)
    return of(DivMod(e, divisor, is_quotient=True))


def _remainder(e: Expr, divisor: int) -> Expr:
    """e % divisor as an atom, in lowest terms."""
    common = math.gcd(divisor, *e.terms.values())
    if common > 1:
        # (g*x + m) % (g*d) = g*((x + m // g) % d) + m % g
        inner = Expr({a: k // common for a, k in e.terms.items()}, e.constant // common)
        return (inner % (divisor // common)) * common + e.constant % common
    if coarse := _coarse(e, divisor):
        unit, multiple, small = coarse
        return (multiple % (divisor // unit)) * unit + small
    if len(e.terms) == 1 and not e.constant:
        (atom,) = e.terms
        if isinstance(atom, DivMod) and not atom.is_quotient and _is_once(e, atom, divisor):
            return atom.inner % divisor
    return of(DivMod(e, divisor, is_quotient=False))


def _is_once(e: Expr, remainder: DivMod, divisor: int) -> bool:
    """Whether e is a remainder by a multiple of the divisor."""
    return e.terms[remainder] == 1 and remainder.divisor % divisor == 0


def _coarse(e: Expr, divisor: int) -> tuple[int, Expr, Expr] | None:
    """(g, x, r) with e = g*x + r, 0 <= r < g and g a divisor of the divisor: r carries nothing."""
    for unit in sorted({abs(k) for k in e.terms.values() if k % divisor}):
        if unit > 1 and divisor % unit == 0:
            multiple, small = _divided(e, unit)
            if small.low >= 0 and small.high < unit:
                return unit, multiple, small
    return None


def _recombined(terms: dict[Atom, int], constant: int) -> Expr:
    """k*n*(e // n) + k*(e % n)  =>  k*e
    k*n*((e // n + d) % m) + k*(e % n)  =>  k*((e + n*d) % (n*m))
    """
    for atom, k in terms.items():
        if isinstance(atom, DivMod) and not atom.is_quotient:
            n = atom.divisor
            for other, c in terms.items():
                if c != k * n or other is atom:
                    continue
                quotient = atom.quotient
                rest = {a: x for a, x in terms.items() if a is not atom and a is not other}
                if quotient.terms.get(other) == 1 and len(quotient.terms) == 1:
                    return Expr(rest, constant - c * quotient.constant) + atom.inner * k
                if (
                    isinstance(other, DivMod)
                    and not other.is_quotient
                    and _contains(other.inner, quotient)
                ):
                    whole = atom.inner + (other.inner - quotient) * n
                    return Expr(rest, constant) + (whole % (n * other.divisor)) * k
    return Expr(terms, constant)


def _contains(e: Expr, quotient: Expr) -> bool:
    return len(quotient.terms) == 1 and all(e.terms.get(a) == k for a, k in quotient.terms.items())


def linear(index: Sequence[Expr], dims: Sequence[int]) -> Expr:
    """The row-major position of an index in an array.

    Hot: all terms are added up before the sum is made and looked at, once; sum by sum, planning a
    convolutional network took 1.06 to 1.1 times as long.
    """
    terms: dict[Atom, int] = {}
    constant = 0
    for e, stride in zip(index, row_major_strides(dims), strict=True):
        constant += e.constant * stride
        for atom, k in e.terms.items():
            terms[atom] = terms.get(atom, 0) + k * stride
    return _recombined({atom: k for atom, k in terms.items() if k}, constant)


def row_major_strides(dims: Sequence[int]) -> tuple[int, ...]:
    """Elements to the next index of each dimension of a dense array."""
    strides, stride = [], 1
    for size in reversed(dims):
        strides.append(stride)
        stride *= size
    return tuple(reversed(strides))


def delinearized(position: Expr, dims: Sequence[int]) -> Index:
    """The index of a row-major position that lies in the array."""
    index: list[Expr] = []
    stride = math.prod(dims)
    for k, size in enumerate(dims):
        stride //= max(size, 1)
        e = position // max(stride, 1)
        index.append(e if k == 0 else e % max(size, 1))
    return tuple(index)


def reshaped(index: Index, source: Sequence[int], target: Sequence[int]) -> Index:
    """The index into `target` dims of the element that `index` names in `source` dims.

    Dimensions are matched in groups with equal products, so that a group's quotients stay its own.
    """
    if tuple(source) == tuple(target):
        return index
    if 0 in source:
        return tuple(ZERO for _ in target)
    result: list[Expr] = []
    for i, j in matched_runs(source, target):
        position = linear(index[i.start : i.stop], source[i.start : i.stop])
        result += delinearized(position, target[j.start : j.stop])
    return tuple(result)


def matched_runs(source: Sequence[int], target: Sequence[int]) -> Iterator[tuple[range, range]]:
    """Runs of dimensions with equal products, from first to last; none has the size 0."""
    i = j = 0
    while i < len(source) or j < len(target):
        i_end, j_end = _group(source, i, target, j)
        yield range(i, i_end), range(j, j_end)
        i, j = i_end, j_end


def _group(source: Sequence[int], i: int, target: Sequence[int], j: int) -> tuple[int, int]:
    """Ends of the shortest runs from i and j with equal products; runs of ones close the array."""
    a = b = 1
    start = (i, j)
    while (i, j) == start or a != b:
        if a <= b and i < len(source) and not (a == b and i > start[0]):
            a *= source[i]
            i += 1
        elif j < len(target):
            b *= target[j]
            j += 1
        else:
            a *= source[i]
            i += 1
    return i, j
