"""transpose-cancellation: between transposes that undo each other, nothing is turned.

    transpose(f(transpose(x, p), broadcast(y, d)), p^-1)   =>   f(x, broadcast(y, p[d]))
    reduce(f(transpose(x, p), ..), k)                      =>   reduce(f(x, ..), p[k])

A norm or a softmax over a dimension that a program brings last and puts back, and whatever JAX
computes of a transposed array: its text lays the result out as the array was. All that is
elementwise between the transposes is computed in the order of what they read. A region of such ops
is changed where nothing but broadcasts and counted numbers, in any order alike, and arrays turned
by p go in, and nothing but arrays that p's inverse turns back and reductions come out.
"""

from __future__ import annotations

from msgspec import Struct, field

from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.permutation import inverse
from hlo.ir.shape import Ints, Shape
from hlo.ops.making import make, transposed
from hlo.ops.table import Trait, has_trait
from hlo.passes.liveness import awaited, replace, replaceable
from hlo.passes.patterns.matching import ints, is_plain
from hlo.passes.patterns.reduction import reducer_opcode

_MOST_MEMBERS = 256  # Longer chains end in several kernels, each of which may turn what it reads.


def transpose_cancellation(module: Module) -> bool:
    """Compute what stands between transposes that undo each other in the order before them.

    A region is looked at once for each permutation. O(edges).
    """
    changed = False
    refused: set[tuple[Instruction, Ints]] = set()
    for back in replaceable(module, "transpose"):
        if back.computation is None or not is_plain(back.shape):
            continue  # It went away with another one's region.
        region = _Region(ints(back, "dimensions"), back.operands[0].shape.dims)
        if (back.operands[0], region.back) in refused:
            continue
        if region.grows_from(back.operands[0]):
            region.turn()
            changed = True
        else:
            refused.update((member, region.back) for member in region.members)
    return changed


class _Region(Struct):
    """Elementwise ops of one shape that use each other.

    back: the permutation that ends it; dims: of the ops; members, and the transposes and
    reductions behind them (ends), in the order in which they were found.
    """

    back: Ints
    dims: Ints
    members: dict[Instruction, None] = field(default_factory=dict)
    ends: dict[Instruction, None] = field(default_factory=dict)

    @property
    def source_dims(self) -> Ints:
        """The dimensions in the order before the region."""
        return tuple(self.dims[k] for k in self.back)

    def grows_from(self, start: Instruction) -> bool:
        """Find all members; whether the region is one that can be turned."""
        if not self._may_join(start):
            return False
        stack = [start]
        while stack:
            member = stack.pop()
            if member in self.members:
                continue
            self.members[member] = None
            if len(self.members) > _MOST_MEMBERS:
                return False
            joining = self._before(member), self._behind(member)
            if joining[0] is None or joining[1] is None:
                return False
            stack += joining[0] + joining[1]
        return True

    def _before(self, member: Instruction) -> list[Instruction] | None:
        """The operands that are members too; None where one is read in this order alone."""
        found = []
        for operand in member.operands:
            if self._may_join(operand):
                found.append(operand)
            elif not operand.shape.is_scalar and not self._is_had_in_any_order(operand):
                return None
        return found

    def _behind(self, member: Instruction) -> list[Instruction] | None:
        """The users that are members too; None where one needs this order."""
        found = []
        for user in member.users:
            if self._may_join(user):
                found.append(user)
            elif self._ends(user, member):
                self.ends[user] = None
            else:
                return None
        return found

    def _may_join(self, instruction: Instruction) -> bool:
        shape, computation = instruction.shape, instruction.computation
        return (
            has_trait(instruction, Trait.ELEMENTWISE)
            and shape.is_array
            and not shape.is_dynamic
            and shape.dims == self.dims
            and not instruction.is_root
            and "control-predecessors" not in instruction.attributes
            and computation is not None
            and instruction not in awaited(computation)
        )

    def _is_had_in_any_order(self, operand: Instruction) -> bool:
        """Whether the operand is as easily had in the order before the region."""
        if operand.opcode in ("broadcast", "iota"):
            return not operand.shape.is_dynamic
        return (
            operand.opcode == "transpose"
            and ints(operand, "dimensions") == inverse(self.back)
            and is_plain(operand.operands[0].shape)
        )

    def _ends(self, user: Instruction, member: Instruction) -> bool:
        if "control-predecessors" in user.attributes or user.computation is None:
            return False
        if user in awaited(user.computation):
            return False
        if user.opcode == "transpose":
            return ints(user, "dimensions") == self.back and is_plain(user.shape)
        is_plain_reduction = user.opcode == "reduce" and len(user.operands) == 2
        if not is_plain_reduction or reducer_opcode(user) is None:
            return False  # A reducer that is no commutative op sees the order of its terms.
        return user.operands[0] is member and is_plain(user.shape)

    def turn(self) -> None:
        """Compute the members in the order before the region, and leave the transposes out."""
        made: dict[Instruction, Instruction] = {}
        for member in self._operands_first():
            for operand in member.operands:
                if operand not in made:
                    made[operand] = self._turned(operand)
            shape = Shape.array(member.shape.dtype, self.source_dims)
            kept = {k: v for k, v in member.attributes.items() if k != "metadata"}
            operands = [made[o] for o in member.operands]
            made[member] = make(member, member.opcode, *operands, shape=shape, **kept)
        for end in self.ends:
            value = made[end.operands[0]]
            replace(end, value if end.opcode == "transpose" else self._reduced(end, value))

    def _operands_first(self) -> list[Instruction]:
        """The members, each behind those that it uses."""
        waits = {m: sum(o in self.members for o in dict.fromkeys(m.operands)) for m in self.members}
        order = [member for member, operands in waits.items() if not operands]
        for member in order:  # it grows meanwhile
            for user in dict.fromkeys(member.users):
                if user in waits:
                    waits[user] -= 1
                    if not waits[user]:
                        order.append(user)
        return order

    def _turned(self, operand: Instruction) -> Instruction:
        """What stands for an operand that is no member."""
        if operand.shape.is_scalar:
            return operand
        if operand.opcode == "transpose":
            return operand.operands[0]
        shape, place = Shape.array(operand.shape.dtype, self.source_dims), inverse(self.back)
        if operand.opcode == "iota":
            counted = operand["iota_dimension"]
            assert isinstance(counted, int), "an iota counts one dimension"
            return make(operand, "iota", shape=shape, iota_dimension=place[counted])
        dimensions = tuple(place[k] for k in ints(operand, "dimensions"))
        order = tuple(sorted(range(len(dimensions)), key=lambda k: dimensions[k]))
        spread = transposed(operand.operands[0], order)
        ascending = tuple(sorted(dimensions))
        return make(operand, "broadcast", spread, shape=shape, dimensions=ascending)

    def _reduced(self, reduce: Instruction, value: Instruction) -> Instruction:
        """The reduction of a turned array, with the dimensions that are kept in their order."""
        place, reduced = inverse(self.back), set(ints(reduce, "dimensions"))
        dimensions = tuple(sorted(place[k] for k in reduced))
        kept = [place[k] for k in range(len(self.dims)) if k not in reduced]
        made = make(
            reduce, "reduce", value, reduce.operands[1],
            dimensions=dimensions, to_apply=reduce["to_apply"],
        )  # fmt: skip
        return transposed(made, tuple(sorted(kept).index(k) for k in kept))
