"""index-narrower: the indices that an arg-max hands on are as narrow as the elements beside them.

    reduce(x, iota s64, z, c), best   =>   (v, convert(k))  of  reduce(x, iota s32, z, c'), best'

Where a reducer does nothing with its indices but compare and select them, any type that holds all
of them will do; lanes of one width are as many as the narrowest vectors hold.
"""

from __future__ import annotations

from msgspec import Struct

from hlo.ir import dtype as dt
from hlo.ir.computation import Computation
from hlo.ir.dtype import DType
from hlo.ir.graph import clone_computation, computed_from, post_order
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.making import make, make_constant
from hlo.ops.movement import IotaAttributes
from hlo.ops.table import Trait, opcodes
from hlo.passes.liveness import fused_computations
from hlo.passes.loop_making import adopted, element
from hlo.passes.rewriting import is_pinned
from hlo.passes.simplify.word_arithmetic import compute_in_words

_SIGNED, _UNSIGNED = (dt.S8, dt.S16, dt.S32), (dt.U8, dt.U16, dt.U32)
_FLOAT_BITS = 32  # Bits of the lanes in which narrower floats are computed.
_PICKS = opcodes(Trait.TAKES_ONE)
_FOLLOWING = _PICKS | {"compare"}


class _Indices(Struct, frozen=True):
    """Which of a reduce's two arrays are indices, and the type that holds them."""

    which: int
    dtype: DType


def index_narrower(module: Module) -> bool:
    """Reduce an arg-max's indices in its elements' width, compute counted integers in 32 bits.

    O(instructions). The second is word_arithmetic.py's.
    """
    fused = fused_computations(module)
    made: dict[tuple[Computation, _Indices], Computation] = {}
    changed = False
    for computation in tuple(module.computations):
        if computation in fused:
            continue
        changed |= compute_in_words(computation)
        for reduce in [i for i in computation.instructions if i.opcode == "reduce"]:
            indices = _indices(reduce)
            if indices is not None:
                _rewrite(module, reduce, indices, made)
                changed = True
    return changed


def _indices(reduce: Instruction) -> _Indices | None:
    """What can be narrowed, None where nothing can."""
    computation = reduce.computation
    assert computation is not None, "a reduce in a computation"
    if len(reduce.operands) != 4 or is_pinned(reduce) or computation.root is reduce:
        return None
    if any(o.shape.is_dynamic for o in reduce.operands):
        return None
    if not all(u.opcode == "get-tuple-element" for u in reduce.users):
        return None
    for which in (1, 0):
        greatest = _greatest(reduce.operands[which])
        start = reduce.operands[2 + which]
        if greatest is None or start.opcode != "constant" or _literal(start).is_elided:
            continue
        first = int(_literal(start).array)
        dtype = _narrowest(reduce, which, min(first, 0), max(first, greatest))
        if dtype is not None and _picks_only(reduce["to_apply"], which):  # type: ignore[arg-type]
            return _Indices(which, dtype)
    return None


def _greatest(x: Instruction) -> int | None:
    """The greatest of an iota's numbers, seen through broadcasts and reshapes."""
    while x.opcode in ("broadcast", "reshape"):
        (x,) = x.operands
    if x.opcode != "iota" or not x.shape.dtype.is_integral or x.shape.is_dynamic:
        return None
    greatest = x.shape.dims[IotaAttributes.of(x.attributes).iota_dimension] - 1
    return greatest if 0 <= greatest <= x.shape.dtype.int_range[1] else None


def _narrowest(reduce: Instruction, which: int, least: int, greatest: int) -> DType | None:
    """The type for the indices, at least as wide as the lanes of the elements."""
    kind, indices = (reduce.operands[k].shape.dtype for k in (1 - which, which))
    if kind.is_complex:
        return None
    bits = max(kind.bits, _FLOAT_BITS) if kind.is_float else kind.bits
    for dtype in _SIGNED if indices.is_signed else _UNSIGNED:
        low, high = dtype.int_range
        if bits <= dtype.bits < indices.bits and low <= least and greatest <= high:
            return dtype
    return None


def _picks_only(computation: Computation, which: int) -> bool:
    """Whether indices are compared with indices, picked, and handed on, and nothing else."""
    found = _carriers(computation, which)
    root = computation.root
    if root.opcode != "tuple" or [o in found for o in root.operands] != [which == 0, which == 1]:
        return False
    for instruction in computation.instructions:
        picked = instruction.operands[1:] if instruction.opcode == "select" else ()
        inside = [o in found for o in picked or instruction.operands]
        if instruction is root or not any(o in found for o in instruction.operands):
            continue
        if not all(inside) or instruction.opcode not in _FOLLOWING:
            return False
    return True


def _carriers(computation: Computation, which: int) -> set[Instruction]:
    """The values that are indices."""
    found = {computation.parameters[which], computation.parameters[2 + which]}
    for instruction in post_order(computation):
        if instruction.opcode in _PICKS and any(o in found for o in instruction.operands):
            found.add(instruction)
    return found


def _rewrite(
    module: Module,
    reduce: Instruction,
    indices: _Indices,
    made: dict[tuple[Computation, _Indices], Computation],
) -> None:
    which, dtype = indices.which, indices.dtype
    body = reduce["to_apply"]
    assert isinstance(body, Computation), "a COMPUTATION"
    if (body, indices) not in made:
        made[body, indices] = adopted(module, reduce, _narrowed_reducer(body, indices))
    operands = list(reduce.operands)
    operands[which] = _narrowed(operands[which], dtype)
    first = _literal(operands[2 + which]).array.astype(dtype.numpy)
    operands[2 + which] = make_constant(reduce, Literal.of(first, Shape.array(dtype, ())))
    elements = list(reduce.shape.elements)
    elements[which] = elements[which].with_dtype(dtype)
    narrow = make(
        reduce, "reduce", *operands, shape=Shape.tuple(elements),
        dimensions=reduce["dimensions"], to_apply=made[body, indices],
    )  # fmt: skip
    computation = reduce.computation
    assert computation is not None, "a reduce in a computation"
    for user in list(reduce.users):
        k = user["index"]
        assert isinstance(k, int), "an INT64"
        result = element(narrow, k)
        if k == which:
            result = make(user, "convert", result, shape=user.shape)
        computation.replace_uses(user, result)
        computation.remove(user)
    computation.remove(reduce)


def _narrowed(x: Instruction, dtype: DType) -> Instruction:
    """The same integers of another type."""
    made: dict[Instruction, Instruction] = {}
    for one in computed_from(x):
        shape = one.shape.with_dtype(dtype)
        operands = [made[o] for o in one.operands]
        assert one.computation is not None, "an operand in a computation"
        made[one] = one.computation.new(
            one.opcode, shape, operands, one.attributes, like=one, name=one.opcode
        )
    return made[x]


def _narrowed_reducer(body: Computation, indices: _Indices) -> Computation:
    copy = clone_computation(body)
    for instruction in _carriers(copy, indices.which):
        instruction.shape = instruction.shape.with_dtype(indices.dtype)
    copy.root.shape = Shape.tuple([o.shape for o in copy.root.operands])
    return copy


def _literal(constant: Instruction) -> Literal:
    literal = constant["literal"]
    assert isinstance(literal, Literal), "a constant has a literal"
    return literal
