"""What a result's index says of an operand's, one dimension of the operand after the other.

    instruction, operand number --steps--> for each dimension of the operand, what moves it

Whoever plans asks these rather than attributes: which dimension of a result an operand's is, and
whether it is taken whole or in part, reduced, or at a position that is found at run time only.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import lru_cache

from msgspec import Struct

from hlo.indexing import affine, spaces
from hlo.indexing.affine import Atom, DivMod, Expr, Index, Opaque, Variable
from hlo.indexing.maps import CASES, Case, cases, scattered
from hlo.indexing.reductions import REDUCTIONS, term_cases, term_extents
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.ops.table import OPS, Trait, has_trait


class Step(Struct, frozen=True):
    """What moves an operand's index in one of its dimensions.

    dims: of the result's, those that it depends on. is_whole: it is the result's index in the only
    one of them, which is as long. is_reduced: it depends on a term's position. is_placed: on values
    that are known at run time only. is_partial: only for some indices in these dimensions is an
    element of this operand read.
    """

    dims: tuple[int, ...]
    is_whole: bool = False
    is_reduced: bool = False
    is_placed: bool = False
    is_partial: bool = False

    def is_dim(self, d: int) -> bool:
        """Whether the operand's dimension is the result's dimension d."""
        return self.is_whole and self.dims == (d,)


Steps = tuple[Step, ...]
OperandDims = tuple[int | None, ...]  # a dimension of each operand, or for each of an operand's


def steps(instruction: Instruction, number: int) -> Steps | None:
    """For each dimension of an operand; None where any of its elements may be read, or none is."""
    operand = instruction.operands[number].shape
    if not operand.is_array:
        return None
    if not operand.dims:
        return ()
    if is_at_own_index(instruction):
        return own_steps(operand.rank) if operand.dims == result_dims(instruction) else None
    if instruction.computation is None:
        return _all_steps(instruction).get(number)
    known, key = instruction.computation.facts, (_all_steps, instruction)
    if key not in known:
        # Found once for all operands: a concatenate may have many.
        known[key] = _all_steps(instruction)
    found: dict[int, Steps] = known[key]  # type: ignore[assignment]  # what is kept there above
    return found.get(number)


def kept_dims(instruction: Instruction, number: int) -> tuple[int | None, ...]:
    """The dimension of the result that each of an operand is as a whole, if it is one."""
    found = steps(instruction, number)
    if found is None:
        return (None,) * instruction.operands[number].shape.rank
    return tuple(s.dims[0] if s.is_whole else None for s in found)


def operand_dims(reduction: Instruction) -> tuple[list[OperandDims], list[OperandDims]]:
    """Which dimension of each operand runs with a dimension of a reduction's result, and with one
    of its terms' index: for each of these, None where none does.
    """
    own, term = _frame(result_dims(reduction)).index, _term(reduction)
    found = [{e: d for d, e in enumerate(case.index)} for case in term_cases(reduction, own, term)]
    of_own, of_term = ([tuple([dims.get(e) for dims in found]) for e in i] for i in (own, term))
    return of_own, of_term


def keeps_positions(instruction: Instruction) -> bool:
    """Whether the elements of the only operand stand in the result in their row-major order, all of
    them and nothing else.
    """
    operand, dims = instruction.operands[0].shape, instruction.shape.dims
    if operand.size != instruction.shape.size:
        return False
    index = tuple(map(affine.of, spaces.variables_of(dims)))
    (case,) = cases(instruction, index, _at_run_time)
    return affine.linear(case.index, operand.dims) == affine.linear(index, dims)


def origin(x: Instruction, index: Index) -> tuple[Instruction, Index]:
    """What stands at an index of an array: the array behind all ops that only move its elements,
    and the index there. Where elements come from several arrays, they are x's own.
    """
    while x.opcode in CASES and _moves_elements(x):
        found = cases(x, index, _at_run_time)
        if len(found) != 1 or found[0].conditions:
            break
        x, index = x.operands[found[0].operand], found[0].index
    return x, index


def start_limits(instruction: Instruction) -> dict[int, int]:
    """The greatest starts that are as they are, neither clamped nor left out, by the number of the
    operand that gives them.
    """
    found: dict[int, int] = {}

    def start(number: int, at: Index, low: int, high: int) -> Expr:
        found[number] = min(found.get(number, high), high)
        return _at_run_time(number, at, low, high)

    if instruction.opcode == "scatter":
        scattered(instruction, _frame(instruction.operands[-1].shape.dims).index, start)
    elif instruction.opcode in CASES and _moves_elements(instruction):
        cases(instruction, _frame(instruction.shape.dims).index, start)
    return found


def written_dims(scatter: Instruction) -> OperandDims:
    """The updates' dimension that runs along each of the operand's: a window's or a batch's."""
    frame = _frame(scatter.operands[-1].shape.dims)
    found = scattered(scatter, frame.index, _at_run_time)
    return tuple(next((frame.dim_of[a] for a in e.terms if a in frame.dim_of), None) for e in found)


def is_at_own_index(instruction: Instruction) -> bool:
    """Whether an element is computed from the operands' at its own index."""
    if instruction.opcode == "bitcast-convert":
        return keeps_width(instruction)
    return instruction.opcode == "map" or (
        instruction.opcode in OPS and has_trait(instruction, Trait.ELEMENTWISE)
    )


def keeps_width(convert: Instruction) -> bool:
    """Whether a bitcast-convert regroups no bytes: both types have as many bits."""
    return convert.shape.dtype.bits == convert.operands[0].shape.dtype.bits


def result_dims(instruction: Instruction) -> tuple[int, ...]:
    """Those of an array, or of the first of several that are made together."""
    shape = instruction.shape
    return shape.elements[0].dims if shape.is_tuple else shape.dims


@lru_cache(maxsize=64)
def own_steps(rank: int) -> Steps:
    """Of an operand whose index is the result's."""
    return tuple(Step((d,), is_whole=True) for d in range(rank))


# -- maps as they are asked ------------------------------------------------------------------


class _Frame(Struct, frozen=True):
    """An index of the result, and which dimension each of its variables is.

    Dimensions of one element have variables, too: they are followed as others are.
    """

    dims: tuple[int, ...]
    index: Index
    dim_of: dict[Atom, int]


@lru_cache(maxsize=256)
def _frame(dims: tuple[int, ...]) -> _Frame:
    variables = [Variable(f"x{d}", 0, max(n - 1, 0)) for d, n in enumerate(dims)]
    index = tuple(Expr({v: 1}, 0) for v in variables)
    return _Frame(dims, index, {v: d for d, v in enumerate(variables)})


def _all_steps(instruction: Instruction) -> dict[int, Steps]:
    """By number, those of all operands of which it is known what is read."""
    if instruction.opcode not in CASES and instruction.opcode not in REDUCTIONS:
        return {}
    own = OPS[instruction.opcode].attrs if instruction.opcode in OPS else ()
    said = [(k, v) for k, v in instruction.attributes.items() if k in own and k != "to_apply"]
    shapes = tuple([o.shape for o in instruction.operands])
    return _steps_of(instruction.opcode, instruction.shape, shapes, tuple(said))


@lru_cache(maxsize=1024)
def _steps_of(
    opcode: str, shape: Shape, operands: tuple[Shape, ...], said: tuple[tuple[str, object], ...]
) -> dict[int, Steps]:
    """Those of an instruction of such shapes and attributes, as layers of a model have many."""
    parameters = tuple([Instruction("", "parameter", operand) for operand in operands])
    instruction = Instruction("", opcode, shape, parameters, dict(said))
    frame = _frame(result_dims(instruction))
    dim_of, found = frame.dim_of, dict[int, Steps]()
    for case in _cases(instruction, frame):
        open_ = [c.index for c in case.conditions if not c.always]
        cut = {dim_of[a] for e in open_ for a in _atoms(e) if a in dim_of}
        pairs = zip(case.index, operands[case.operand].dims, strict=True)
        found[case.operand] = tuple([_step(e, n, cut, frame) for e, n in pairs])
    return found


def _cases(instruction: Instruction, frame: _Frame) -> Sequence[Case]:
    if instruction.opcode in CASES:
        if not _moves_elements(instruction):
            return ()
        return cases(instruction, frame.index, _at_run_time)
    if instruction.opcode not in REDUCTIONS:
        return ()
    return term_cases(instruction, frame.index, _term(instruction))


def _term(reduction: Instruction) -> Index:
    """A term's index, whose dimensions of one element have variables, too."""
    terms = (Variable("t", 0, max(n - 1, 0)) for n in term_extents(reduction))
    return tuple(Expr({t: 1}, 0) for t in terms)


def _moves_elements(instruction: Instruction) -> bool:
    """A bitcast may regroup bytes."""
    if instruction.opcode != "bitcast":
        return True
    return instruction.operands[0].shape.size == instruction.shape.size


def _at_run_time(_: int, at: Index, low: int, high: int) -> Expr:
    return affine.of(Opaque("start", low, max(low, high), at))


def _step(e: Expr, size: int, cut: Set[int], frame: _Frame) -> Step:
    """cut: the result's dimensions in which an operand is read for some indices only."""
    dim_of = frame.dim_of
    if len(e.terms) == 1:
        (atom,) = e.terms
        if atom in dim_of:
            d = dim_of[atom]
            is_own = d not in cut and frame.dims[d] == size and e == frame.index[d]
            return Step((d,), is_whole=is_own, is_partial=d in cut)
    met = _atoms(e)
    dims = tuple(sorted(dim_of[a] for a in met if a in dim_of))
    return Step(
        dims,
        is_reduced=any(isinstance(a, Variable) and a not in dim_of for a in met),
        is_placed=any(isinstance(a, Opaque) for a in met),
        is_partial=any(d in cut for d in dims),
    )


def _atoms(e: Expr) -> set[Atom]:
    """What an index depends on, also in quotients, and where run-time values stand."""
    found: set[Atom] = set()
    for atom in e.terms:
        if isinstance(atom, DivMod):
            found |= _atoms(atom.inner)
        else:
            found.add(atom)
            if isinstance(atom, Opaque):
                found.update(a for inner in atom.inner for a in _atoms(inner))
    return found
