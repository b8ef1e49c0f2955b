"""reduction-operand-transposer: what a reduction reads again and again lies as its lanes run.

    reduce-last(f(x[i, r], y[j, r]))   =>   t = transpose(y);  reduce-last(f(x[i, r], t[r, j]))

Distances of all pairs of rows, kernel matrices, mixtures, many points or small matrices times one
(which `dot-strength-reduction` writes so): the rows of y are short, and each is read for every i.
Lanes along such a row are summed across for each result, which is then finished alone; lanes over j
take a vector of results at a time, for which y has to be contiguous along j. Few results are worth
it too: 20,000 matrices of 2x2 to 8x8 times one take 0.1 to 0.55 of the time, distances to 2 to 12
rows 0.1 to 0.9 of it, but for rows of four times as many elements, which take up to twice as long.
Turning y once is next to nothing beside reading it for every i. The transpose that turns it back is
an index of the kernel's; `fusion` leaves the first one alone.
"""

from __future__ import annotations

from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.making import make, make_constant
from hlo.ops.table import Trait, has_trait
from hlo.passes.liveness import replace, replaceable
from hlo.passes.patterns.contraction import exchanged_dot
from hlo.passes.patterns.matching import ints, is_plain, literal_of, splat_literal

LEAST_READS = 8  # How often each element is read at least.
LEAST_LANES = 2  # Results along the dimension that lanes are to run over.
MOST_REDUCED = 16  # Along longer rows sums across lanes are few.
MOST_TO_LANES = 4  # Rows so many times as long as lanes have results are better summed across.
_MOST_MEMBERS = 64  # Of the expression that is reduced.


def reduction_operand_transposer(module: Module) -> bool:
    """Turn the short rows that reductions over pairs of rows read again for every pair.

    Reductions of the last dimension over an expression of broadcasts: of rows along the last two
    dimensions, and of others without the one before the last. O(instructions).
    """
    changed = False
    made: dict[Instruction, Instruction] = {}
    for reduce in replaceable(module, "reduce"):
        for rows in _turned(reduce):
            _turn(rows, made)
            changed = True
    for back in made.values():
        _exchange(back.operands[0])
    return changed


def _turned(reduce: Instruction) -> list[Instruction]:
    """The broadcasts of rows that lanes would read with strides."""
    whole = reduce.operands[0].shape
    if not is_plain(whole) or ints(reduce, "dimensions") != (whole.rank - 1,) or whole.rank < 2:
        return []
    lanes, length = whole.dims[-2:]
    if lanes < LEAST_LANES or not 1 < length <= MOST_REDUCED:
        return []
    if length >= MOST_TO_LANES * lanes:
        return []
    leaves = _leaves(reduce)
    rows = [b for b in leaves if _spread_over(b) == (True, True)]
    others = [b for b in leaves if _spread_over(b) == (False, True)]
    if len(rows) + len(others) != len(leaves) or not others:
        return []
    return [b for b in rows if _is_read_often(b) and not _is_turned(b)]


def _leaves(reduce: Instruction) -> list[Instruction]:
    """What the reduced arrays are elementwise of; numbers aside. None where that is too much, or
    where an array is read as it is.
    """
    seen: dict[Instruction, None] = {}
    leaves: list[Instruction] = []
    stack = list(reduce.operands[: len(reduce.operands) // 2])
    while stack:
        top = stack.pop()
        if top in seen or splat_literal(top) is not None:
            continue
        seen[top] = None
        if top.opcode == "broadcast":
            leaves.append(top)
        elif has_trait(top, Trait.ELEMENTWISE) and len(seen) < _MOST_MEMBERS:
            stack += top.operands
        else:
            return []
    return leaves


def _spread_over(broadcast: Instruction) -> tuple[bool, bool]:
    """Whether what it spreads has the dimension before the last one, and the last one, last."""
    rank, dimensions = broadcast.shape.rank, ints(broadcast, "dimensions")
    return rank - 2 in dimensions, dimensions[-1:] == (rank - 1,)


def _is_read_often(broadcast: Instruction) -> bool:
    (x,) = broadcast.operands
    dimensions = ints(broadcast, "dimensions")
    in_order = dimensions[-2:] == (broadcast.shape.rank - 2, broadcast.shape.rank - 1)
    return in_order and is_plain(x.shape) and LEAST_READS * x.shape.size <= broadcast.shape.size


def _is_turned(broadcast: Instruction) -> bool:
    """Whether it spreads a transpose of what lies as the lanes run already."""
    (x,) = broadcast.operands
    return x.opcode == "transpose" and ints(x, "dimensions")[-2:][:1] == (x.shape.rank - 1,)


def _turn(broadcast: Instruction, made: dict[Instruction, Instruction]) -> None:
    """Let it spread a transpose of what was turned before: once for all that spread the same.

    made: by what was turned, what turns it back.
    """
    (x,) = broadcast.operands
    if x not in made:
        order = (*range(x.shape.rank - 2), x.shape.rank - 1, x.shape.rank - 2)
        turned = _turned_rows(x, order)
        made[x] = make(turned, "transpose", turned, shape=x.shape, dimensions=order)
    computation = broadcast.computation
    assert computation is not None, "an instruction in a computation"
    computation.set_operands(broadcast, (made[x],))


def _exchange(turned: Instruction) -> None:
    """A product that nobody reads as it lay, made as it is to lie."""
    made = exchanged_dot(turned) if turned.opcode == "transpose" else None
    if made is not None:
        (dot,) = turned.operands
        replace(turned, made)
        assert dot.computation is not None, "an instruction in a computation"
        dot.computation.remove(dot)


def _turned_rows(x: Instruction, order: tuple[int, ...]) -> Instruction:
    """transpose(x); of a constant another constant."""
    shape = Shape.array(x.shape.dtype, [x.shape.dims[d] for d in order])
    if (literal := literal_of(x)) is not None:
        return make_constant(x, Literal.of(literal.array.transpose(order), shape))
    return make(x, "transpose", x, shape=shape, dimensions=order)
