"""Which instructions form one kernel: the plan of the fusion pass.

    computation --plan--> groups: a root and the producers computed with it

Users are looked at before producers. A producer joins its users' group when each of its elements is
computed once there (or costs next to nothing to compute again). A group's members know which root
dimension each of their dimensions is; what depends on leading root dimensions only is computed once
per row, so a reduction may stand between members (softmax, layer norm) without recomputation.
Where reductions keep other dimensions than the leading ones, loops run over those that they keep
first.
Costs: bytes moved and ops per element (fusibility.op_cost). O(edges * members' rank).
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Literal

from hlo.analysis.fusibility import (
    CONTRACTIONS,
    FINISHING,
    MOST_SEARCHED,
    finishes,
    is_elementwise,
    is_fusible,
    is_padded,
    is_scalar_constant,
    is_spread_constant,
    is_wide_concatenate,
    leaves_updated_alone,
    op_cost,
)
from hlo.analysis.loop_order import loop_order
from hlo.analysis.reducers import scanned_dimension
from hlo.ir.computation import Computation
from hlo.ir.graph import post_order
from hlo.ir.instruction import Instruction
from hlo.machine import COMMON_LANES
from hlo.ops.table import Trait, has_trait, opcodes
from hlo.passes.fusion.axes import STAGES, UNKNOWN, Axes, Group, fixed_dims, joint_axes
from hlo.passes.fusion.repeats import (
    CHEAP,
    MOST_REPEATED,
    PLACED,
    counted,
    evaluations,
    is_made_by_much,
    is_made_of_little,
    is_read_often,
    is_worth_repeating,
    joins_unknown_parts,
    may_repeat,
    picks_few,
    wasted_lanes,
    wasted_sums,
    whole_users,
)
from hlo.passes.fusion.stencils import places_in, repeats_more_than_memory
from hlo.passes.fusion.views import views_memory
from hlo.passes.liveness import awaited
from hlo.passes.patterns.matching import ints
from hlo.passes.remarks import NOT_FUSED, Message, remark

# Elements that one core handles in a few microseconds: parallelism does not matter.
_SMALL = 16 * 1024
_MOST_OPERANDS = 60
_MOST_FORMS = 64  # Ways to an element among which a kernel's code chooses.
_MOST_CONCATENATED = 8
_MOVING = opcodes(Trait.PICKS | Trait.PERMUTES | Trait.PADS)
_FINISHING = FINISHING | {"constant"}
_PARTS = Trait.PICKS | Trait.CUTS_AT | Trait.JOINS | Trait.PADS
# A reduction of so many times fewer elements than a group has shares none of its arrays with it.
_FEW_INPUTS = 4


def plan(computation: Computation, max_size: int) -> list[Group]:
    """Groups of a computation, users first; some have one member only."""
    homes: dict[Instruction, dict[Group, None]] = {}
    groups: list[Group] = []
    kept = awaited(computation)
    for instruction in reversed(post_order(computation)):
        if instruction in kept:
            homes[instruction] = {Group(instruction, [instruction]): None}
            continue
        joined = _join(instruction, homes, max_size)
        if joined:
            homes[instruction] = joined
            continue
        group = Group(instruction, [instruction])
        if instruction.opcode in CONTRACTIONS and _finish(instruction, homes, max_size):
            homes[instruction] = {group: None}  # nothing joins its factors
            continue
        if instruction.opcode in CONTRACTIONS and not instruction.is_root:
            _stays(instruction, "nothing can finish its tiles: its results are written first")
        if is_fusible(instruction) and instruction.opcode not in ("parameter", "constant", "tuple"):
            own = tuple(("d", k) for k in range(len(group.dims)))
            _enter(group, instruction, own)
            groups.append(group)
        homes[instruction] = {group: None}
    return groups


def is_worth_a_call(group: Group) -> bool:
    """Whether there is anything beside the root and constants."""
    return len(group.roots) > 1 or any(
        m.opcode != "constant" and m is not group.root for m in group.members
    )


def _join(
    producer: Instruction, homes: dict[Instruction, dict[Group, None]], max_size: int
) -> dict[Group, None] | Literal[False]:
    """The groups that the producer is computed in, False where it has to be a root itself."""
    if not _may_join(producer):
        return False
    stays = partial(_stays, producer)
    found: dict[Group, None] = {}
    for user in producer.users:
        found.update(homes[user])
    if not all(g.members for g in found):
        return stays(lambda: f"{_outside(producer, homes)} takes arrays from memory")
    if any(is_wide_concatenate(g.root) for g in found):
        # To look at its operands for each of them is quadratic.
        return stays("the concatenate that uses it has so many operands that it only copies")
    axes = {group: joint_axes(group, producer) for group in found}
    whole = whole_users(producer, axes)
    if whole > 1 and not (may_repeat(producer, whole) or _is_shared(producer, [*found])):
        return stays(f"{whole} kernels use it, and to compute it in each costs more than memory")
    for group, own in axes.items():
        if own is None:
            return stays(lambda g=group: f"how its elements meet %{g.root.name}'s is not known")  # type: ignore[misc]
        if not _accepts(group, producer, own, max_size):
            return False
    for group, own in axes.items():
        assert own is not None
        _enter(group, producer, own)
    return found


def _is_shared(producer: Instruction, groups: list[Group]) -> bool:
    """Whether what several groups read is computed once for all of them."""
    if not groups[0].has_reduce:
        return False
    from hlo.passes.fusion.siblings import will_share  # few producers have several reductions

    return will_share(producer, groups)


def _may_join(producer: Instruction) -> bool:
    """Whether a kernel of others can hold the producer at all."""
    if producer.is_root or not producer.users or producer.opcode in ("parameter", "tuple"):
        return False
    if producer.opcode == "constant" and not is_scalar_constant(producer):
        return False
    if producer.opcode in CONTRACTIONS:
        return False  # others may finish its tiles
    if not is_fusible(producer) or not producer.shape.is_array:
        return _stays(producer, f"{producer.opcode} has a kernel of its own, or none")
    if is_read_often(producer):
        return _stays(producer, "it is made once, for its elements are read often")
    if has_trait(producer, Trait.UPDATES) or producer.opcode in ("reduce-window", "map"):
        return _stays(producer, f"{producer.opcode} ends the kernel that it is in")
    if producer.opcode == "bitcast-convert" and is_made_by_much(producer):
        return _stays(producer, "its bits are made by much, or of wider numbers")
    return True


def _stays(producer: Instruction, why: Message) -> Literal[False]:
    """A producer is in no other's kernel; why, for whoever listens."""
    return remark(NOT_FUSED, producer, why)


def _outside(producer: Instruction, homes: dict[Instruction, dict[Group, None]]) -> str:
    """A user in no kernel of loops."""
    found = [u for u in producer.users if not all(g.members for g in homes[u])]
    return f"%{found[0].name} ({found[0].opcode})"


def _finish(
    contraction: Instruction, homes: dict[Instruction, dict[Group, None]], max_size: int
) -> bool:
    """Let the one group that uses a contraction finish its tiles, where it can.

    That saves a write and a read of each element, two accesses of memory against an access of L1;
    all else is computed as often as before. So it pays whatever the sizes are.
    """
    if contraction.is_root or contraction.shape.is_dynamic or not contraction.users:
        return False
    if "control-predecessors" in contraction.attributes or is_padded(contraction):
        return False
    found: dict[Group, None] = {}
    for user in contraction.users:
        found.update(homes[user])
    (group, *others) = found
    if others or not group.members or group.contraction or group.reductions:
        return False
    if len(group.members) >= max_size or any(is_scalar_constant(o) for o in contraction.operands):
        return False
    if _has_short_dots(contraction, group):
        return False
    group.members[contraction] = ()
    if not finishes(members_in_order(group), contraction, group.root):
        del group.members[contraction]
        return False
    group.contraction = contraction
    _count(group, contraction)
    return True


def _has_short_dots(contraction: Instruction, group: Group) -> bool:
    """Whether a vector meets rows of a matrix that are so short that what finishes their sums takes
    longer: those of a few rows come at a time, which are less than a vector.
    """
    if contraction.opcode != "dot":
        return False
    sides = [(o.shape, ints(contraction, f"{side}_contracting_dims"))
             for o, side in zip(contraction.operands, ("lhs", "rhs"), strict=True)]  # fmt: skip
    for (vector, contracted), (matrix, across) in (sides, sides[::-1]):
        if vector.rank == len(contracted) == 1 and matrix.rank == 2 and across == (1,):
            return matrix.dims[1] < COMMON_LANES * sum(map(op_cost, group.members))
    return False


def members_in_order(group: Group) -> list[Instruction]:
    """The members, operands first."""
    order: dict[Instruction, None] = {}
    stack = [(root, False) for root in reversed(group.roots)]
    while stack:
        top, is_ready = stack.pop()
        if is_ready:
            order[top] = None
        elif top not in order:
            stack.append((top, True))
            stack += [
                (o, False) for o in reversed(top.operands) if o in group.members and o not in order
            ]
    return list(order)


def _enter(group: Group, member: Instruction, axes: Axes) -> None:
    group.members[member] = axes
    _count(group, member)
    group.counts[member] = counted(member, group.counts) or {None: 1.0}
    group.places[member] = places_in(group, member)
    group.forms[member] = group.forms_of(member)
    if member.opcode == "reduce":
        group.reductions += 1


def _count(group: Group, member: Instruction) -> None:
    """What a new member changes in what its group reads, and in its length."""
    group.outside.pop(member, None)
    group.outside.update((o, None) for o in member.operands if o not in group.members)
    if not is_spread_constant(member):
        group.length += 1 if _is_plain(member) else 3


# -- acceptance ------------------------------------------------------------------------------


def _accepts(group: Group, producer: Instruction, axes: Axes, max_size: int) -> bool:
    """Whether the producer's elements cost no more inside the group than in a kernel of its own."""
    stays, root = partial(_stays, producer), group.root
    hindrance = _hindrance(group, producer, max_size) or wasted_sums(group, producer, axes)
    if hindrance:
        return stays(hindrance)
    if producer.opcode == "constant":
        return True
    if scanned_dimension(root) is not None:
        return stays(f"%{root.name} accumulates what it reads, in memory and once")
    if root.opcode in ("reduce-window", "map"):
        is_view = op_cost(producer) == 0 and producer.shape.size >= root.shape.size
        return is_view or stays(f"windows of %{root.name} would compute it again for each")
    if producer.opcode == "reduce":
        return _accepts_reduce(group, producer, axes) or stays(
            f"its sums would be made again, or on too few threads, for %{root.name}"
        )
    if joins_unknown_parts(producer, group.members):
        return stays("which of its parts is read is not known before the run")
    return _accepts_elements(group, producer, axes)


def _accepts_elements(group: Group, producer: Instruction, axes: Axes) -> bool:
    """Whether elements that are computed where they are used cost no more there."""
    stays, root, cost = partial(_stays, producer), group.root, op_cost(producer)
    wasted = wasted_lanes(group, producer, axes)
    if not wasted and (group.has_reduce or _is_moved(producer)):
        from hlo.passes.fusion.moves import wasted_moves  # few programs have such moves

        wasted = wasted_moves(group, producer, axes)
    if wasted:
        return stays(wasted)
    is_long = repeats_more_than_memory(group, producer, MOST_REPEATED)
    if is_long is not None:
        return not is_long or stays(
            f"the kernel of %{root.name} would compute it and what it is made of at several places"
        )
    is_once = cost == 0 or picks_few(producer, axes) or _is_once(group, producer, axes)
    if is_once or (_finishes_reduction(producer) and _reorder(group, producer, axes)):
        return True
    most = MOST_REPEATED if is_made_of_little(producer) else CHEAP
    repeated = cost * max(1, round(evaluations(producer, group.counts)) - 1)
    if group.repeated + repeated > most:
        return stays(f"the kernel of %{root.name} would compute its elements more than once")
    group.repeated += repeated
    return True


def _is_moved(producer: Instruction) -> bool:
    """Whether elements are moved before a producer, by it, or behind it."""
    is_moved = any(i.opcode in _MOVING for i in (producer, *producer.operands))
    return is_moved or any(user.opcode == "transpose" for user in producer.users)


def _hindrance(group: Group, producer: Instruction, max_size: int) -> str:
    """What keeps the group from holding a producer, whatever its elements cost; "" for nothing."""
    root = group.root
    if _is_full(group, max_size) and not _is_read(producer):
        return f"the kernel of %{root.name} has {len(group.members)} instructions already"
    is_bounded = len(group.outside) + len(producer.operands) <= _MOST_OPERANDS  # some count twice
    if not is_bounded and _operand_count(group, producer) > _MOST_OPERANDS:
        return f"the kernel of %{root.name} would have more than {_MOST_OPERANDS} operands"
    if producer.opcode == "concatenate" and len(producer.operands) > _MOST_CONCATENATED:
        return f"it joins more than {_MOST_CONCATENATED} arrays"
    if group.forms_of(producer) > _MOST_FORMS and not views_memory(producer):
        return f"the kernel of %{root.name} would choose among too many ways to its elements"
    is_finishing = producer.opcode in _FINISHING or is_elementwise(producer)
    if group.contraction and not is_finishing:
        return f"tiles of %{group.contraction.name} are finished element by element"
    if root.opcode == "dynamic-update-slice" and producer.opcode != "constant":
        return (
            "" if leaves_updated_alone(root, producer) else f"%{root.name} writes over its source"
        )
    return ""


def _is_full(group: Group, max_size: int) -> bool:
    """Whether a group has as many members as it may; of one instruction each, three times as many.

    Rounds of a random number generator or of a hash are long and plain. Numbers, and numbers as
    arrays, are no instructions: a polynomial has as many of them as of products. Without reductions
    the kernel is one loop, which may be longer: what else goes through memory costs more.
    """
    if not group.reductions:
        max_size += max_size // 2
    return group.length >= 3 * max_size


def _is_read(producer: Instruction) -> bool:
    """Whether it is what lies in memory anyway, or a number, or has each of fewer elements several
    times: no kernel writes it out for another one, however long that is, which reads it, or the
    few, in the same time.
    """
    if views_memory(producer) or is_spread_constant(producer):
        return True
    return producer.opcode == "broadcast" and producer.operands[0].shape.size < producer.shape.size


def _is_plain(member: Instruction) -> bool:
    """Whether it is one instruction of the machine."""
    return member.shape.is_array and not member.shape.dtype.is_float and op_cost(member) <= 1


def _operand_count(group: Group, producer: Instruction) -> int:
    """How many operands the group would have, the producer itself among them."""
    return len(group.outside) + sum(o not in group.outside for o in set(producer.operands))


def _volume(group: Group, axes: Axes) -> int:
    """How often an expression on these axes is evaluated if each (row of) root element asks."""
    fixed = fixed_dims(group, axes)
    if fixed is None:
        return -1
    return prod(group.loop_dims[:fixed])


def _is_once(group: Group, producer: Instruction, axes: Axes) -> bool:
    """Whether every element is computed once: by rows of the root, or by elements of a
    reduction."""
    if any(a == UNKNOWN for a in axes) and producer.shape.size > 1:
        return (
            all(u.opcode in PLACED or is_elementwise(u) for u in producer.users)
            and producer.shape.size >= prod(group.dims)
            and is_worth_repeating(producer, evaluations(producer, group.counts))
        )
    parts = {n % 100: k for k, (kind, n) in enumerate(axes) if kind == "p"}
    if parts:
        own = producer.shape.dims
        cut = (own[parts[d]] if d in parts else n for d, n in enumerate(group.dims))
        places = places_in(group, producer) or ()
        is_one = len(places) < 2 or is_worth_repeating(producer, len(places))
        return is_one and prod(cut) <= producer.shape.size
    fixed = fixed_dims(group, axes)
    if fixed is not None:
        return _volume(group, axes) <= producer.shape.size or _volume(group, axes) <= 1
    # Reduced dimensions: once if all root dimensions that it is evaluated for are its own.
    dims = [n for kind, n in axes if kind == "d"]
    leading = max((group.level(n) for n in dims), default=0)
    if any(kind == "u" for kind, _ in axes):
        return True
    outer = max(leading, _reduction_level(group, axes))
    return prod(group.loop_dims[:outer]) <= prod(group.dims[n] for n in dims)


def _reduction_level(group: Group, axes: Axes) -> int:
    """How many root dimensions the reduction around an expression is evaluated for."""
    members = list(group.members)
    numbers = {n // 100 for kind, n in axes if kind == "r"}
    if STAGES in axes:
        numbers |= {
            n for n, m in enumerate(members) if m.opcode == "reduce" and m is not group.root
        }
    levels = [fixed_dims(group, group.members[members[n]]) for n in numbers if n < len(members)]
    return max((len(group.dims) if n is None else n for n in levels), default=0)


def _accepts_reduce(group: Group, producer: Instruction, axes: Axes) -> bool:
    """A reduction inside a group: each result once, for leading dimensions with enough
    parallelism."""
    inputs = producer.operands[0].shape
    if any(has_trait(u, _PARTS) for u in producer.users):
        return False
    if _FEW_INPUTS * inputs.size <= prod(group.dims):
        return False
    fixed = fixed_dims(group, axes)
    if fixed is None:
        return False
    if group.order and fixed != group.order.kept:
        return False  # the kernel has one order for all reductions
    if prod(group.loop_dims[:fixed]) > max(1, producer.shape.size):
        return _reorder(group, producer, axes)
    if fixed < len(group.dims) and group.root.opcode in ("concatenate", "dynamic-update-slice"):
        return False
    if fixed == len(group.dims):
        # At every root element: lanes or rows reduce for themselves, which has to suit all members.
        return producer.shape.size == prod(group.dims)
    # What all elements need is made before any of them, so that one thread makes all.
    return fixed > 0 or max(inputs.size, _most_evaluated(group)) <= _SMALL


def _most_evaluated(group: Group) -> int:
    """How many elements the longest loop of a group runs over."""
    reduced = (m.operands[0].shape.size for m in group.members if m.opcode == "reduce")
    return max(prod(group.dims), *reduced, 0)


def _finishes_reduction(producer: Instruction) -> bool:
    """Whether it is computed from a reduction's results alone, by ops that nothing else uses."""
    top, size = producer, producer.shape.size
    for _ in range(MOST_SEARCHED):
        if top.opcode == "reduce":
            return top.operands[0].shape.size > size
        inputs = [o for o in top.operands if not is_spread_constant(o)]
        if len(inputs) != 1 or inputs[0].shape.size != size or len(inputs[0].users) != 1:
            return False
        (top,) = inputs
    return False


def _reorder(group: Group, producer: Instruction, axes: Axes) -> bool:
    """Let loops run first over what the group's first reduction keeps, if that repeats nothing.

    Only where lanes run over a last dimension that is kept: strips of it, whose stages share what
    the cache holds.
    """
    if any(kind not in ("1", "d") for kind, _ in axes):
        return False
    kept = sorted({n for kind, n in axes if kind == "d"})
    reduced = [d for d in range(len(group.dims)) if d not in kept]
    if group.order or group.reductions or group.contraction or not is_elementwise(group.root):
        return False
    last = len(group.dims) - 1
    if last not in kept or group.dims[last] < COMMON_LANES:
        return False
    from hlo.passes.fusion.strips import fits_strips  # few programs get so far

    columns = prod(group.dims[d] for d in kept)
    if columns > producer.shape.size or not fits_strips(group, producer, reduced, columns):
        return False
    group.order = loop_order(group.dims, [kept])
    if group.order is None:
        return False
    repeated = sum(op_cost(m) for m, own in group.members.items() if not _is_once(group, m, own))
    if group.repeated + repeated > CHEAP:
        group.order = None
        return False
    group.repeated += repeated
    return True
