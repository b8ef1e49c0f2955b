"""convert_operand_folding: products read narrow factors as they lie in memory.

    dot(x, convert(w))  =>  dot(x, w)  where the conversion to the product's type loses nothing

A product means its factors in its own type, whatever theirs is. As a kernel of its own the
conversion writes the wide array and reads it again, which costs more than a product of few rows;
in the product's kernel it is done on the way to registers, or where the factor is packed anyway.
And factors that both were bf16 or integers of 8 bits may meet in instructions for such.
"""

from __future__ import annotations

from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.passes.liveness import replaceable
from hlo.passes.patterns.conversion import holds
from hlo.passes.patterns.matching import is_plain

_SMALL_BITS = 8  # Floats of so many bits are numbers of all IEEE formats of more.


def convert_operand_folding(module: Module) -> bool:
    """Let dots take factors whose conversion to the dot's type nothing else reads.

    dot(x, convert(w)) => dot(x, w). O(instructions).
    """
    converts = [i for i in replaceable(module, "convert") if _is_folded(i)]
    for convert in converts:
        computation = convert.computation
        assert computation is not None, "an instruction in a computation"
        computation.replace_uses(convert, convert.operands[0])
        computation.remove(convert)
    return bool(converts)


def _is_folded(convert: Instruction) -> bool:
    (x,) = convert.operands
    if convert.is_root or not is_plain(convert.shape):
        return False
    if x.shape.with_dtype(convert.shape.dtype) != convert.shape:  # in another order
        return False
    return _is_exact(convert.shape.dtype, x.shape.dtype) and all(
        _takes_any(user) and user.shape.dtype is convert.shape.dtype for user in convert.users
    )


def _is_exact(wide: DType, narrow: DType) -> bool:
    """Whether each number of `narrow` is one of `wide`; a NaN may become another."""
    a, b = wide.float_format, narrow.float_format
    if a is None or b is None or narrow.bits > _SMALL_BITS:
        return holds(wide, narrow)
    return b.has_sign and a.nan == "ieee" and wide.bits > _SMALL_BITS


def _takes_any(user: Instruction) -> bool:
    """Whether it is a product that takes factors of its type or of narrower ones."""
    attributes = user.attributes
    bound = "control-predecessors" in attributes or attributes.get("algorithm")
    return user.opcode == "dot" and not bound and not attributes.get("sparsity")
