"""Whether a reducer picks one of two (value, index) pairs by an order: arg-max and arg-min.

Decided by running the computation's own comparisons on a small table of values and indices (NaN and
signed zeros included), through the op table's NumPy readings. Only selections are asked: every op
is a compare, select, logical or constant op, so the table covers all that they can tell apart.

    is_symmetric_selection   f(a, b) = f(b, a) and f is associative: any order of elements will do
    ordering_index           f(a, b) where a's index is the smaller one is such a function: elements
                             in ascending order, partial results joined with the earlier one left

The second kind takes the earlier of two NaNs by standing left, as JAX's argmax does. Which of two
zeros becomes the value may depend on how elements were grouped; which index may not.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from hlo.indexing import affine, spaces
from hlo.indexing.queries import origin
from hlo.indexing.reductions import reduction_dims
from hlo.ir.computation import Computation
from hlo.ir.dtype import DType
from hlo.ir.graph import post_order
from hlo.ir.instruction import Instruction
from hlo.ops.movement import IotaAttributes
from hlo.ops.table import OPS, Trait, attributes_of, evaluation_keywords, opcodes

Pairs = list[np.ndarray]  # A table: a column of values and one of indices.

_LOGIC = opcodes(Trait.CHOOSES) | {"tuple", "parameter"}
_known: dict[object, bool] = {}  # a computation's form -> what its table says


def is_symmetric_selection(computation: Computation) -> bool:
    """Symmetric and associative on a table that holds every order of values and indices."""
    return _is_selection(computation) and _remembered(computation, "symmetric", _is_symmetric)


def ordering_index(reduce: Instruction) -> int | None:
    """Which of a reduce's results orders partial results, so that these may be joined in any order.

    Its array ascends along the single reduced dimension; the reducer takes the better of two pairs,
    or the earlier one.
    """
    reduced = reduction_dims(reduce).reduced
    computation = reduce["to_apply"]
    assert isinstance(computation, Computation), "what it calls"
    if len(reduced) != 1 or len(reduce.operands) != 4 or not _is_selection(computation):
        return None
    for k in (1, 0):
        if ascends(reduce.operands[k], reduced[0]):
            holds = _remembered(computation, k, partial(_is_ordered, index=k))
            return k if holds else None
    return None


def ascends(x: Instruction, d: int) -> bool:
    """Whether the integers of x grow along dimension d: those of an iota, moved by other ops."""
    variables = spaces.variables_of(x.shape.dims)
    source, index = origin(x, tuple(map(affine.of, variables)))
    kind, dims = source.shape.dtype, source.shape.dims
    if source.opcode != "iota" or not kind.is_integral:
        return False
    counted = IotaAttributes.of(source.attributes).iota_dimension
    if dims[counted] - 1 > kind.int_range[1]:
        return False
    return x.shape.dims[d] <= 1 or (index[counted].coefficient(variables[d]) or 0) > 0


def _is_selection(computation: Computation) -> bool:
    """Two pairs come in, one goes out, and nothing but comparisons decides which."""
    if any(i.opcode not in _LOGIC or i.shape.dims for i in computation.instructions):
        return False
    parameters, root = computation.parameters, computation.root
    return len(parameters) == 4 and root.opcode == "tuple" and len(root.operands) == 2


def _remembered(
    computation: Computation, question: object, answer: Callable[[Computation], bool]
) -> bool:
    """answer(computation), asked once for all computations of the same form."""
    number = {i: n for n, i in enumerate(computation.instructions)}
    form = (question, *(_form(i, number) for i in computation.instructions))
    if form not in _known:
        _known[form] = answer(computation)
    return _known[form]


def _form(instruction: Instruction, number: dict[Instruction, int]) -> object:
    dtype = "" if instruction.shape.is_tuple else instruction.shape.dtype.name
    which: tuple[object, ...] = ()
    if instruction.opcode == "parameter":
        which = (instruction["parameter_number"],)
    operands = tuple(number[o] for o in instruction.operands)
    return instruction.opcode, dtype, operands, which, attributes_of(instruction)


# -- in any order ----------------------------------------------------------------------------


def _is_symmetric(computation: Computation) -> bool:
    kinds = [p.shape.dtype for p in computation.parameters[:2]]
    columns = [_samples(k) for k in kinds]
    if any(c is None for c in columns):
        return False
    rows = list(itertools.product(*columns))  # type: ignore[arg-type]  # none is None
    pairs = list(itertools.product(rows, repeat=2))
    left, right = (_taken([p[k] for p in pairs], kinds) for k in range(2))
    if not _same(_run(computation, left, right), _run(computation, right, left)):
        return False
    triples = list(itertools.product(rows, repeat=3))
    a, b, c = (_taken([t[k] for t in triples], kinds) for k in range(3))
    first = _run(computation, _run(computation, a, b), c)
    second = _run(computation, a, _run(computation, b, c))
    return _same(first, second)


def _samples(kind: DType) -> list[object] | None:
    if kind.is_float:
        return [-np.inf, -1.0, -0.0, 0.0, 2.0, np.inf, np.nan]
    if kind.is_integral:
        least, greatest = kind.int_range
        return [least, 0, 1, greatest]
    return [False, True] if kind.is_pred else None


# -- in the order of an index ----------------------------------------------------------------


def _is_ordered(computation: Computation, index: int) -> bool:
    """Three elements, reduced from z in every grouping, give what they give one after the other."""
    kinds = [p.shape.dtype for p in computation.parameters[:2]]
    values = _few_samples(kinds[1 - index])
    if values is None:
        return False
    indices = [-1, 0, 1, 3, 100] if kinds[index].is_signed else [0, 1, 3, 100]
    columns: list[Sequence[object]] = [values, indices, *([values] * 3)]
    counts = np.indices([len(c) for c in columns]).reshape(len(columns), -1)
    value = [_column(c, kinds[1 - index])[n] for c, n in zip(columns, counts, strict=True)]
    place = [np.full_like(counts[0], k).astype(kinds[index].numpy) for k in range(3)]
    place.insert(0, _column(indices, kinds[index])[counts[1]])
    del value[1]
    z, *elements = ([v, k] if index else [k, v] for v, k in zip(value, place, strict=True))
    reduced: dict[tuple[int, ...], Pairs] = {(): z}

    def joined(which: tuple[int, ...]) -> Pairs:
        if which not in reduced:
            reduced[which] = _run(computation, joined(which[:-1]), elements[which[-1]])
        return reduced[which]

    def join(a: Pairs, b: Pairs) -> Pairs:
        swaps = b[index] < a[index]
        left = [np.where(swaps, y, x) for x, y in zip(a, b, strict=True)]
        right = [np.where(swaps, x, y) for x, y in zip(a, b, strict=True)]
        return _run(computation, left, right)

    whole = joined((0, 1, 2))
    for size in range(4):
        for some in itertools.combinations(range(3), size):
            others = tuple(k for k in range(3) if k not in some)
            if not _close(join(joined(some), joined(others)), whole):
                return False
            earlier = not some or not others or max(some) < min(others)
            if earlier and not _close(_run(computation, joined(some), joined(others)), whole):
                return False
    a, b, c = (joined((k,)) for k in range(3))
    trees = [join(join(p, q), r) for p, q, r in itertools.permutations((a, b, c))]
    return all(_close(tree, whole) for tree in trees)


def _few_samples(kind: DType) -> list[object] | None:
    """Every order of four values, and NaN; infinities compare as numbers do."""
    if kind.is_float:
        return [-1.0, -0.0, 0.0, 2.0, 3.0, np.nan]
    if kind.is_integral:
        least, greatest = kind.int_range
        return [least, 0, 1, greatest]
    return [False, True] if kind.is_pred else None


def _close(a: Pairs, b: Pairs) -> bool:
    """Equal numbers, any NaN equal to any NaN."""
    return all(
        bool(((x == y) | ((x != x) & (y != y))).all())  # noqa: PLR0124  # what only a NaN does
        for x, y in zip(a, b, strict=True)
    )


# -- running it ------------------------------------------------------------------------------


def _column(values: Sequence[object], kind: DType) -> np.ndarray:
    """Values of a type. Of any float type as f32: they are exact there, and it is NumPy's own."""
    with np.errstate(invalid="ignore"):  # a type without a NaN takes what the cast makes of it
        column = np.array(values).astype(kind.numpy)
    return column.astype(np.float32) if kind.is_float else column


def _taken(rows: list, kinds: list[DType]) -> Pairs:  # type: ignore[type-arg]  # rows of scalars
    with np.errstate(invalid="ignore"):  # a type without a NaN takes what the cast makes of it
        return [np.array([row[k] for row in rows]).astype(d.numpy) for k, d in enumerate(kinds)]


def _run(computation: Computation, a: Pairs, b: Pairs) -> Pairs:
    values: dict[object, object] = dict(zip(computation.parameters, [*a, *b], strict=True))
    for instruction in post_order(computation):
        if instruction.opcode not in ("parameter", "tuple"):
            operands = [values[o] for o in instruction.operands]
            evaluate = OPS[instruction.opcode].evaluate
            values[instruction] = evaluate(*operands, **evaluation_keywords(instruction))
    return [values[o] for o in computation.root.operands]  # type: ignore[misc]  # arrays


def _same(a: Pairs, b: Pairs) -> bool:
    """Equal bits, any NaN equal to any NaN."""
    return all(_equal(x, y) for x, y in zip(a, b, strict=True))


def _equal(x: np.ndarray, y: np.ndarray) -> bool:
    if x.dtype.kind in "biu":
        return bool((x == y).all())
    wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
    nan = np.isnan(wide_x) & np.isnan(wide_y)
    return bool((nan | ((wide_x == wide_y) & (np.signbit(wide_x) == np.signbit(wide_y)))).all())
