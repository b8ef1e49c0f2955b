"""What may stand in a fusion, and what its elements cost: the one predicate of pass and kernels.

A loop kernel (kernels/fused_loops.py) can run every computation whose members are all `is_fusible`.
Does not know: how the loops look.
"""

from __future__ import annotations

from collections.abc import Iterable

from hlo.analysis.call_budget import MOST_COPIED
from hlo.indexing.queries import keeps_width
from hlo.ir.computation import Computation
from hlo.ir.dtype import F32, F64, DType
from hlo.ir.graph import calls, computed_from, post_order
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ops.table import INDEX_MAPS, OPS, KernelFamily, Opcodes, Trait, has_trait, opcodes

_MOST_JOINED = 64  # The most operands of a concatenate that are a loop nest each.
MOST_SEARCHED = 64  # Instructions behind a producer that are looked at.
# Parts of a product's columns that are finished together: so many stay in registers on all
# machines, in multiples of the longest vectors, over depths that no plan cuts.
MOST_GATES, WHOLE_PART, MOST_DEPTH = 4, 16, 2048
MOVEMENT = opcodes(INDEX_MAPS) & opcodes(Trait.MOVEMENT)
# Ops that an output fusion may hold beside elementwise ones.
FINISHING = opcodes(Trait.FINISHES)
CONTRACTIONS = Opcodes(lambda opcode: OPS[opcode].family is KernelFamily.CONTRACTION)
_ELEMENTWISE = opcodes(Trait.ELEMENTWISE)
_FUSIBLE = MOVEMENT | opcodes(Trait.FUSES)
SCALAR_STRUCTURE = frozenset({"parameter", "constant", "tuple", "get-tuple-element"})
_MOVED = opcodes(Trait.REPEATS | Trait.REGROUPS | Trait.PERMUTES)
_CALLS_INSIDE = frozenset({"get-tuple-element", "fusion"})


def is_elementwise(instruction: Instruction) -> bool:
    """Whether the result's element depends on the operands' elements at its index only."""
    if instruction.opcode in _ELEMENTWISE:
        return True
    return instruction.opcode == "bitcast-convert" and keeps_width(instruction)


def moves_elements(instruction: Instruction) -> bool:
    """Whether each element is one of the operand's, and each of the operand's one or several."""
    return instruction.opcode in _MOVED or instruction.opcode == "copy"


def is_fusible(instruction: Instruction) -> bool:
    """Whether a loop kernel can hold the op."""
    if "control-predecessors" in instruction.attributes or instruction.shape.is_dynamic:
        return False
    opcode = instruction.opcode
    if opcode == "bitcast" and instruction.operands[0].shape.size != instruction.shape.size:
        return False  # bytes regrouped, not elements moved
    if is_wide_concatenate(instruction):
        return False
    if opcode in _FUSIBLE:
        return all(is_scalar_code(c) for c in instruction.called_computations())
    return is_elementwise(instruction)


def is_fusible_computation(computation: Computation, known: dict[Computation, int]) -> bool:
    """Whether a loop kernel can run a fusion's computation. What a fusion inside of it holds counts
    wherever the fusion stands.

    known: the sizes of computations that were asked for before, unchanged since.
    """
    pending = [computation]
    while pending:
        top = pending[-1]
        inside = [c for i in calls(top) if i.opcode == "fusion" for c in i.called_computations()]
        waiting = [c for c in inside if c not in known]
        pending += waiting
        if not waiting:
            pending.pop()
            known[top] = len(top) + sum(known[c] for c in inside)
            if not all(map(_is_held, top.instructions)):
                known[top] = MOST_COPIED + 1
    return known[computation] <= MOST_COPIED


def _is_held(member: Instruction) -> bool:
    """Whether a kernel can hold a member, what a fusion calls aside."""
    if member.opcode == "while":
        from hlo.analysis.while_loops.lane_loops import (  # for few programs
            is_asked_in_lanes,
            lane_loop,
        )

        found = lane_loop(member)
        return found is not None and is_asked_in_lanes(member, found)
    return is_fusible(member) or member.opcode in _CALLS_INSIDE


def is_row_loop(fusion: Instruction) -> bool:
    """Whether a fusion is a while that writes rows of arrays in its trips, with its start."""
    if fusion.opcode != "fusion":
        return False
    (callee,) = fusion.called_computations()
    if not any(m.opcode == "while" for m in callee.root.operands) and not any(
        o.opcode == "while" for m in callee.root.operands for o in m.operands
    ):
        return False
    from hlo.analysis.while_loops.lane_loops import row_loop_of  # for few programs

    return row_loop_of(fusion) is not None


def contraction_of(fusion: Instruction) -> Instruction | None:
    """The dot or convolution that an output fusion applies its expression to."""
    if fusion.opcode != "fusion" or fusion.attributes.get("kind") != "kOutput":
        return None
    (callee,) = fusion.called_computations()
    found = [m for m in callee.instructions if m.opcode in CONTRACTIONS]
    return found[0] if len(found) == 1 and is_output_fusion(callee, found[0]) else None


def is_matrix_pair(instruction: Instruction) -> bool:
    """Whether it is a matrix by a vector and a vector by that matrix (matrix_pairs.py)."""
    if instruction.opcode != "fusion" or instruction.attributes.get("kind") != "kOutput":
        return False
    (callee,) = instruction.called_computations()
    if callee.root.opcode != "tuple":
        return False
    from hlo.analysis.matrix_pairs import pair_of  # for the few programs that may have one

    return pair_of(instruction) is not None


def is_output_fusion(computation: Computation, contraction: Instruction) -> bool:
    """Whether a computation finishes the elements of a contraction of two of its parameters, or of
    slices of them or of what it computes from them (factors.py).
    """
    from hlo.analysis.factors import factor_of, prologue_of

    computed: set[Instruction] = set()
    for operand in contraction.operands:
        factor = factor_of(operand)
        if contraction.opcode != "dot" and (factor is None or factor.starts):
            return False
        if factor is None:
            if prologue_of(operand) is None:
                return False
            computed.update(computed_from(operand))
    root, has_prologue = computation.root, bool(computed)
    if has_prologue:
        computed -= beside(root, contraction)
    members = [m for m in computation.instructions if m.opcode != "parameter" and m not in computed]
    if root is contraction or (root.shape.is_array and finishes(members, contraction, root)):
        return True
    return not has_prologue and gates_of(computation, contraction) > 1


def beside(root: Instruction, contraction: Instruction) -> set[Instruction]:
    """What the root is computed from beside the contraction and what that alone reads."""
    found, waiting = {contraction}, [root]
    while waiting:
        top = waiting.pop()
        if top not in found:
            found.add(top)
            waiting += top.operands
    return found


def finishes(members: Iterable[Instruction], contraction: Instruction, root: Instruction) -> bool:
    """Whether the members, operands first, do arithmetic on a contraction's elements where they are
    (with elements of other arrays), and no more.
    """
    on_it = {contraction}
    for member in members:
        if member is contraction:
            continue
        if member.opcode not in FINISHING and not is_elementwise(member):
            return False
        if any(o in on_it for o in member.operands):
            if member.opcode not in ("reshape", "copy") and not is_elementwise(member):
                return False
            on_it.add(member)
    kinds = (contraction.shape.dtype, root.shape.dtype)
    return root in on_it and kinds[0].is_float and not kinds[1].is_complex


def gates_of(computation: Computation, contraction: Instruction) -> int:
    """Into how many equal parts of its columns a computation cuts a product, to do arithmetic on
    elements that are at one place in all parts, as recurrent networks do with their gates; 0 where
    it does anything else with it.
    """
    root, dims = computation.root, contraction.shape.dims
    roots = root.operands if root.opcode == "tuple" else (root,)
    width = roots[0].shape.dims[-1] if roots and roots[0].shape.dims else 0
    if not width or not _has_gates(contraction, width):
        return 0
    whole, cut = {contraction}, set[Instruction]()
    for member in post_order(computation):
        is_packed = member is root and root.opcode == "tuple"
        if member is contraction or member.opcode == "parameter" or is_packed:
            continue
        if member.opcode not in FINISHING and not is_elementwise(member):
            return 0
        on_whole = any(o in whole for o in member.operands)
        if on_whole and member.opcode == "slice" and _is_gate(member, width):
            cut.add(member)
        elif on_whole or any(o in cut for o in member.operands):
            if not is_elementwise(member):
                return 0
            (whole if on_whole else cut).add(member)
    part = (*dims[:-1], width)
    is_done = all(r in cut and r.shape.dims == part and _is_plain(r.shape.dtype) for r in roots)
    return dims[-1] // width if is_done else 0


def _has_gates(contraction: Instruction, width: int) -> bool:
    """Whether a product of two matrices has columns of several parts, in whole vectors each."""
    shapes = (contraction.shape, *(o.shape for o in contraction.operands))
    if contraction.opcode != "dot" or any(len(s.dims) != 2 for s in shapes):
        return False
    if contraction.get("lhs_contracting_dims") != (1,) or contraction.get("sparsity"):
        return False
    if {s.dtype for s in shapes} != {shapes[0].dtype} or not _is_plain(shapes[0].dtype):
        return False
    (rows, depth), columns = shapes[1].dims, shapes[0].dims[1]
    is_whole = width % WHOLE_PART == 0 and columns % width == 0
    is_few = 2 <= columns // width <= MOST_GATES
    return is_whole and is_few and rows > 0 and WHOLE_PART <= depth <= MOST_DEPTH


def _is_gate(slice: Instruction, width: int) -> bool:
    """Whether a slice is one of the parts."""
    (whole,) = slice.operands
    dims = slice["slice"]
    assert isinstance(dims, tuple), "SLICE"
    rest = zip(dims[:-1], whole.shape.dims[:-1], strict=True)
    is_all = all((s.start, s.limit, s.stride) == (0, n, 1) for s, n in rest)
    last = dims[-1]
    is_part = last.stride == 1 and last.start % width == 0 and last.limit == last.start + width
    return is_all and is_part


def _is_plain(dtype: DType) -> bool:
    return dtype in (F32, F64)


def is_padded(contraction: Instruction) -> bool:
    """Whether a convolution's windows reach beyond its base, or into holes of it, and it copies
    the base between zeros therefore.
    """
    window = contraction.attributes.get("window")
    if window is None:
        return False
    from hlo.attributes.window import Window

    assert isinstance(window, Window), "WINDOW"
    if not any(w.pad_low > 0 or w.pad_high > 0 or w.base_dilation > 1 for w in window.dims):
        return False
    # Most programs have no such convolutions, and start without this.
    from hlo.analysis.direct_convolution import is_direct

    return not is_direct(contraction)


def is_scalar_code(computation: Computation) -> bool:
    """Whether a computation acts on scalars by elementwise ops only (a reducer, say)."""
    return all(
        is_elementwise(i) or i.opcode == "copy" or i.opcode in SCALAR_STRUCTURE
        for i in computation.instructions
    ) and all(not i.shape.dims for i in computation.instructions)


def is_wide_concatenate(instruction: Instruction) -> bool:
    """Whether it joins so many arrays that they are copied by a table, and nothing is fused."""
    return instruction.opcode == "concatenate" and len(instruction.operands) > _MOST_JOINED


def op_cost(instruction: Instruction) -> int:
    """Arithmetic of one result element, in additions; 0 for movement."""
    weight = OPS[instruction.opcode].cost.operations
    dtype = instruction.shape.dtype
    return weight * _width(dtype) if instruction.shape.is_array else weight


def _width(dtype: DType) -> int:
    return 2 if dtype.component.item_bytes == 8 or dtype.is_complex else 1


def is_scalar_constant(instruction: Instruction) -> bool:
    """A constant that a fusion can hold as an immediate."""
    if instruction.opcode != "constant" or not instruction.shape.is_scalar:
        return False
    literal = instruction["literal"]
    return isinstance(literal, Literal) and not literal.is_elided


def is_zero(value: Instruction) -> bool:
    """Whether a value is made as a number everywhere of which no bit is set: no negative zero."""
    if value.opcode == "broadcast":
        (value,) = value.operands
    if not is_scalar_constant(value):
        return False
    literal = value["literal"]
    assert isinstance(literal, Literal), "a scalar constant's"
    return not any(literal.array.tobytes())


def is_large_fraction(instruction: Instruction) -> bool:
    """A scalar constant of a float type from a half to less than one, or the negative of such."""
    if not is_scalar_constant(instruction) or not instruction.shape.dtype.is_float:
        return False
    literal = instruction["literal"]
    assert isinstance(literal, Literal), "as was asked"
    return 0.5 <= abs(float(literal.array)) < 1.0


def is_spread_constant(instruction: Instruction) -> bool:
    """A scalar constant, or one as an array."""
    is_broadcast = instruction.opcode == "broadcast"
    return is_scalar_constant(instruction.operands[0] if is_broadcast else instruction)


def leaves_updated_alone(root: Instruction, producer: Instruction) -> bool:
    """The array updated in place stays an operand that nothing else in the kernel reads.

    What is computed from it by ops that fuse is left to a kernel of theirs, which reads it once:
    only their last ones here would leave the first ones to be stored for themselves. Where most of
    it is updated, element by element, the kernel writes another array, which is fewer passes.
    What reads an array that the target itself is made of by updates is computed before these, which
    may work on that array.
    """
    target = root.operands[0]
    earlier = _updated_before(target)
    seen: set[Instruction] = set()
    stack = [producer]
    while stack and len(seen) < MOST_SEARCHED:
        top = stack.pop()
        if top not in seen:
            seen.add(top)
            if _may_be_inside(top) and top is not target:
                stack += top.operands
    if not seen.isdisjoint(earlier):
        return False
    if target not in seen:
        return True
    seen = {i for i in seen if i is not target and i.operands and _may_be_inside(i)}
    is_plain = all(i.opcode in FINISHING or is_elementwise(i) for i in seen)
    return is_plain and _is_mostly_updated(root)


def _updated_before(target: Instruction) -> set[Instruction]:
    """The arrays whose memory a chain of updates hands on to a target."""
    found: set[Instruction] = set()
    while target.opcode == "dynamic-update-slice" and len(found) < MOST_SEARCHED:
        target = target.operands[0]
        found.add(target)
    return found


def _may_be_inside(instruction: Instruction) -> bool:
    """Whether a kernel may compute it for others: updates end the kernels that they are in."""
    return is_fusible(instruction) and not has_trait(instruction, Trait.UPDATES)


def _is_mostly_updated(root: Instruction) -> bool:
    """Whether a window at a known index covers most of the array."""
    target, update, *starts = root.operands
    is_placed = all(s.opcode == "constant" for s in starts)
    return is_placed and 2 * update.shape.size >= target.shape.size
