"""masked-dot-rewriter: products of masked vectors are sums over what the mask leaves.

    dot(select(m, x, 0), y)  =>  reduce-add(select(m, x * y, 0 * y'))    m: a range of positions,
    y' what y is wherever m is false, one number

A loop that is to multiply rows up to the diagonal, or between two bounds of a sparse matrix, masks
whole ones in JAX. The sum's kernel runs over what the mask leaves (backend/loops/ranges.py); where
0 * y' is no zero (y' infinite, or NaN) the run sees it and sums all. Where y is not one number
outside, nobody knows of its infinities, and the product stays.
"""

from __future__ import annotations

from hlo.analysis.fusibility import is_elementwise
from hlo.analysis.masked_ranges import bounds_of
from hlo.indexing import affine
from hlo.indexing.affine import Variable
from hlo.ir.dtype import F32, F64
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.making import make
from hlo.ops.table import Trait, has_trait
from hlo.passes.liveness import replace, replaceable
from hlo.passes.loop_making import reducer
from hlo.passes.patterns.matching import ints, is_plain, is_splat, splat, splat_literal

_LEAST = 128  # Elements of vectors that are worth a part of them.
_MOST_SEARCHED = 64
_SPREADING = Trait.REPEATS | Trait.REGROUPS  # What is one number everywhere stays it.


def masked_dot_rewriter(module: Module) -> bool:
    """Write products of vectors that a mask cuts to a range as sums of what it leaves.

    O(products * instructions behind their factors that are looked at).
    """
    is_changed = False
    for dot in replaceable(module, "dot"):
        made = _sum_of_range(module, dot)
        if made is not None:
            replace(dot, made)
            is_changed = True
    return is_changed


def _sum_of_range(module: Module, dot: Instruction) -> Instruction | None:
    x, y = dot.operands
    dtype = dot.shape.dtype
    if dot.get("algorithm") or not all(map(is_plain, (dot.shape, x.shape, y.shape))):
        return None
    if dtype not in (F32, F64) or {x.shape.dtype, y.shape.dtype} != {dtype}:
        return None
    if dot.shape.rank or x.shape.rank != 1 or x.shape.size < _LEAST:
        return None
    for masked, other in ((x, y), (y, x)):
        if masked.opcode != "select" or not is_splat(masked.operands[2], 0):
            continue
        mask = masked.operands[0]
        rest = _outside(other, mask) if _is_range(mask) else None
        if rest is None:
            continue
        zero = make(dot, "multiply", splat(dot, 0, dot.shape), rest)
        terms = make(dot, "multiply", masked.operands[1], _inside(other, mask))
        others = make(dot, "broadcast", zero, shape=terms.shape, dimensions=())
        left = make(dot, "select", mask, terms, others)
        adder = reducer(module, dot, "add", dot.shape)
        return make(dot, "reduce", left, splat(dot, 0, dot.shape), dimensions=(0,), to_apply=adder)
    return None


def _is_range(mask: Instruction) -> bool:
    """Whether the positions at which a mask is true lie between bounds."""
    if mask.shape.rank != 1:
        return False
    along = Variable("along", 0, mask.shape.size - 1)
    return any(True for _ in bounds_of(mask, (affine.of(along),), along))


def _inside(value: Instruction, mask: Instruction) -> Instruction:
    """A value that is used where the mask is true."""
    is_masked = value.opcode == "select" and value.operands[0] is mask
    return value.operands[1] if is_masked else value


def _outside(value: Instruction, mask: Instruction) -> Instruction | None:
    """The number that a vector is wherever a mask is false; None where it is not one."""
    made: dict[Instruction, Instruction | None] = {}
    stack = [value]
    while stack:
        top = stack[-1]
        needed = [o for o in _needed(top, mask) if o not in made]
        if needed and len(made) + len(stack) < _MOST_SEARCHED:
            stack += needed
            continue
        made[stack.pop()] = None if needed else _number(top, mask, made)
    return made[value]


def _needed(value: Instruction, mask: Instruction) -> tuple[Instruction, ...]:
    """Of which operands the number outside has to be known first."""
    if value.shape.is_scalar or splat_literal(value) is not None:
        return ()
    if value.opcode == "select" and value.operands[0] is mask:
        return value.operands[2:]
    if value.opcode == "gather":
        return value.operands[1:]
    if has_trait(value, _SPREADING) or is_elementwise(value):
        return value.operands
    return ()


def _number(
    value: Instruction, mask: Instruction, made: dict[Instruction, Instruction | None]
) -> Instruction | None:
    """The number, made of those of the operands."""
    dtype = value.shape.dtype
    if value.shape.is_scalar:
        return value
    constant = splat_literal(value)
    if constant is not None:
        return splat(value, constant, Shape.array(dtype))
    needed = _needed(value, mask)
    numbers = [made[o] for o in needed]
    known = [n for n in numbers if n is not None]
    if not needed or len(known) < len(numbers):
        return None
    if value.opcode == "gather":
        return _looked_up(value, known[0])
    if len(known) == 1 and (value.opcode == "select" or has_trait(value, _SPREADING)):
        return known[0]
    attributes = {k: v for k, v in value.attributes.items() if k != "metadata"}
    return make(value, value.opcode, *known, shape=Shape.array(dtype), **attributes)


def _looked_up(gather: Instruction, index: Instruction) -> Instruction | None:
    """The element of a vector that a gather of single elements takes at one index."""
    (x, _), sizes = gather.operands, ints(gather, "slice_sizes")
    if x.shape.rank != 1 or sizes != (1,) or not is_plain(x.shape):
        return None
    one = make(gather, "dynamic-slice", x, index, dynamic_slice_sizes=(1,))
    return make(gather, "reshape", one, shape=Shape.array(x.shape.dtype))
