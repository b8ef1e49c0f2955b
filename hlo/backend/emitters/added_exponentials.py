"""Added exponentials: powers of e that a kernel only adds to numbers which hide small ones.

    1 / (1 + exp(-x))       log(exp(x) + 1)       1 - exp(-x)

What is subnormal of such a power is lost in the sum, so that none of it need be computed.
"""

from __future__ import annotations

from math import isfinite

from hlo.backend.ir.writer import Value
from hlo.backend.lanes import types
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.types import Lanes
from hlo.backend.loops.chains import uniform
from hlo.backend.loops.expression import Expression
from hlo.backend.math.term import Term
from hlo.ir import dtype as dt
from hlo.ir.instruction import Instruction

# No sum with a number from here on tells numbers below 2^-124 apart, which are all that the powers'
# functions disagree on.
_LEAST_BESIDE = 2.0**-60


def is_added(expression: Expression, exponential: Instruction) -> bool:
    """Whether all users are sums with such constants, and are the kernel's own: those of what it
    hands on are not.
    """
    computation = exponential.computation
    if computation is None or computation.root is exponential or not exponential.users:
        return False
    if exponential.shape.dtype not in (dt.F32, dt.F64, dt.BF16):
        return False
    is_own = computation in expression.entered
    return is_own and all(_hides(expression, user, exponential) for user in exponential.users)


def _hides(expression: Expression, user: Instruction, exponential: Instruction) -> bool:
    """Whether a user adds the power to a constant that is large enough, or takes one from the
    other, and nothing else.
    """
    others = [o for o in user.operands if o is not exponential]
    if user.opcode not in ("add", "subtract") or len(others) != 1:
        return False
    literal = uniform(expression, expression.source(others[0], ()))
    if literal is None or not literal.array.size:
        return False
    number = abs(float(literal.array.flat[0]))
    return isfinite(number) and number >= _LEAST_BESIDE


def added_exponential(nest: Nest, exponential: Instruction, lanes: Lanes) -> Lanes:
    """The power, rounded to its type."""
    from hlo.backend.math.exponential import exp_of_sums  # few programs have such sums

    assert isinstance(lanes, Value), "a real number"
    power = exp_of_sums(Term(nest.w, nest.target, lanes)).value
    dtype = exponential.shape.dtype
    if not dtype.is_narrow_float:
        return power
    return types.rounded(nest.w, nest.target, power, dtype)
