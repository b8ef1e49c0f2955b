"""Fused loops: the loop kernels, which compute all that has no other kernel family.

    instruction (a fusion, or one op) --fused_kernel--> Kernel

Results are cut into domains: boxes of index space in which no concatenate or pad has a seam, and
results that share no outer dimensions. The loops of each are chosen (loops/choose.py) before any
code is written, and lowered: parallel units (outer dimensions, or blocks of the last one), inside
of them a loop over lanes; reductions appear as loops where their value is first known, so softmax
is one kernel of three stages per row.
"""

from __future__ import annotations

from msgspec.structs import replace

from hlo.analysis.decisions import COLUMNS, decisions_of
from hlo.analysis.leaves import leaves_of
from hlo.backend.emitters.elemental import Elemental
from hlo.backend.emitters.structural import elemental_of
from hlo.backend.ir.functions import (
    BEGIN,
    BOUNDED_PARAMETERS,
    END,
    HIGH,
    LOW,
    PARAMETERS,
    Function,
)
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.records import Label
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.target import Target
from hlo.backend.kernels.lower import lower
from hlo.backend.kernels.stored import enter_outputs
from hlo.backend.kernels.unit_limits import unit_limits
from hlo.backend.lanes.nest import Nest
from hlo.backend.loops import costs
from hlo.backend.loops.chains import table_of
from hlo.backend.loops.choose import schedules_of
from hlo.backend.loops.expression import Expression, Leaf, moved_as, waits_in
from hlo.backend.loops.in_place import in_place_pairs, with_repeats
from hlo.backend.loops.nest_schedule import FEW_VECTORS
from hlo.backend.loops.outputs import outputs_of
from hlo.backend.loops.own_leaves import own_leaves, spread_leaves
from hlo.backend.loops.schedule import LoopSchedule, Table
from hlo.backend.loops.spans import spans_of, total_of
from hlo.indexing.maps import CASES
from hlo.ir.computation import Computation
from hlo.ir.dtype import F32
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.ops.effects import with_callees

# Elements of a loop in which long formulas stand where they are called, and how many in a kernel:
# each takes LLVM some milliseconds, and saves a third of a nanosecond an element.
_MANY, _MOST_INLINED = 1 << 16, 4


def fused_kernel(instruction: Instruction, target: Target) -> Kernel:
    """The kernel of a fusion or of one op; HloError "unsupported" where it is left to others."""
    if target.is_bounded:
        from hlo.analysis.blocks.seen_columns import is_told  # of blocks of scores alone

        if not is_told(instruction):
            return _in_versions(instruction, replace(target, is_bounded=False))
        made, kept = _made(instruction, target, underflows_in(instruction, target))
        if kept.issuperset(m for m in with_callees(instruction) if decisions_of(m).sums == COLUMNS):
            return made
    return _in_versions(instruction, replace(target, is_bounded=False))


def _in_versions(instruction: Instruction, target: Target) -> Kernel:
    """The kernel; one that a loop calls in a version for subnormal numbers, too."""
    around, mode = underflows_in(instruction, target), target.isa.float_mode
    if around is None or mode is None or not mode.met or target.runs_once:
        return _made(instruction, target, around)[0]
    # Few programs underflow.
    from hlo.analysis.flow import is_body
    from hlo.backend.emitters.subnormal_products import looks
    from hlo.backend.kernels.versions import of_met

    if not is_body(around) or not looks(instruction, around) or _is_few(instruction, target):
        return _made(instruction, target, around)[0]
    usual = _made(instruction, target, None)[0]
    unseen = replace(target, schedules=None)
    careful = _made(instruction, unseen, around, is_careful=True)[0]
    if careful.text == usual.text:
        return usual
    made = of_met(usual, careful, mode)
    if target.schedules is not None:
        target.schedules.enter_same(made.text, usual.text)
    return made


def _is_few(instruction: Instruction, target: Target) -> bool:
    """Whether all that it computes is so few vectors that a loop hands them on in registers, and
    looking at them takes less than a call between two versions, which keeps them in memory.
    """
    most = FEW_VECTORS * lanes_of(instruction, target)
    members = [m for m in with_callees(instruction) if m.opcode != "parameter"]
    return all(array.size <= most for m in members for array in _arrays(m.shape))


def _made(
    instruction: Instruction,
    target: Target,
    around: Computation | None,
    *,
    is_careful: bool = False,
) -> tuple[Kernel, set[Instruction]]:
    """The kernel, and of a bounded one the reductions that keep to the bounds."""
    expression, lanes = Expression(target), lanes_of(instruction, target)
    expression.is_raw = _only_moves(instruction)
    expression.runs_once = target.runs_once and not _has_loops(instruction)
    expression.underflows_in, expression.is_careful = around, is_careful
    count = enter_operands(expression, instruction)
    outputs = outputs_of(expression, instruction, count)
    said = decisions_of(instruction).loop_order
    schedules = schedules_of(expression, outputs, lanes, said)
    spans, w = spans_of(schedules), Writer()
    if max((s.domain.size for s in schedules), default=0) >= _MANY and not target.is_small:
        w.inlines = _MOST_INLINED
    elemental = elemental_of(Nest(w, target), lanes, expression)
    elemental.enter_leaves()
    enter_outputs(elemental, outputs)
    elemental.scratch_slot = count + len(leaves_of(instruction.shape))
    record = elemental.nest.begin_record() if target.schedules is not None else None
    begin, end, units = BEGIN, END, total_of(spans)
    if target.is_bounded:
        elemental.bounds = (LOW, HIGH)
    if target.is_bounded or units == 1:  # whoever calls it has all units run
        begin, end = w.int(0), w.int(units)
    for schedule, span in zip(schedules, spans, strict=True):
        lower(elemental, schedule, *unit_limits(w, span, begin, end, units))
    assert elemental.nest.depth == 0, "all loops are closed"
    function = function_of(w, BOUNDED_PARAMETERS if target.is_bounded else PARAMETERS)
    if target.schedules is not None and record is not None:
        from hlo.backend.kernels.lower_squares import are_fenced
        from hlo.backend.loops.nests import loop_nests  # for --emit=loops alone
        from hlo.backend.loops.placing import placed

        trees = loop_nests(expression, schedules, spans, are_fenced=are_fenced(target))
        nests = placed(trees, record.loops)
        shown = LoopSchedule(units, elemental.scratch_bytes, nests, _tables(elemental))
        target.schedules.enter(function.text, shown, record)
    domains = [schedule.domain for schedule in schedules]
    made = Kernel(
        function,
        units,
        *w.beside,
        scratch_bytes=elemental.scratch_bytes,
        in_place=with_repeats(in_place_pairs(expression, outputs, schedules, count), instruction),
        must_alias=frozenset(o.alias for o in outputs if o.alias is not None),
        bytes_moved=costs.bytes_moved(expression, outputs, domains),
        # In f32's lanes, as the machine's rates are: vectors hold more of narrower numbers.
        flops=costs.flops(domains) * target.lanes(F32) // lanes,
        own=own_leaves(expression, outputs, schedules, count),
        spread=spread_leaves(expression, schedules, count),
        is_open=any(domain.trace.is_open for domain in domains),
        is_bounded=target.is_bounded,
    )
    return made, elemental.bounded


def _tables(elemental: Elemental) -> tuple[Table, ...]:
    """What the kernel looks up: the chains whose tables are known at its entry."""
    known, expression = elemental.nest.path[0].memo, elemental.expression
    chains = [c for c in expression.chains.values() if c is not None]
    return tuple(table_of(expression, c) for c in chains if ("table", c.root, c.source) in known)


def function_of(w: Writer, parameters: tuple[Value, ...] = PARAMETERS) -> Function:
    """The kernel's function around what was written."""
    w.ret()
    return Function(records=[Label("entry"), *w.records], parameters=parameters)


def _arrays(shape: Shape) -> list[Shape]:
    return [leaf for leaf in leaves_of(shape) if leaf.is_array]


def _only_moves(instruction: Instruction) -> bool:
    """Whether elements are copied as they are, so that their bits need no meaning."""
    free = ("constant", "parameter", "tuple", "get-tuple-element", "fusion")
    return all(m.opcode in CASES or m.opcode in free for m in with_callees(instruction))


def _has_loops(instruction: Instruction) -> bool:
    """Whether elements go through whiles."""
    return any(m.opcode == "while" for m in with_callees(instruction))


def underflows_in(instruction: Instruction, target: Target) -> Computation | None:
    """The computation around, if numbers in it may underflow and keep the machine waiting."""
    around = instruction.computation
    if around is None or target.is_small or not waits_in(around, target):
        return None
    return around


def lanes_of(instruction: Instruction, target: Target) -> int:
    """As many elements as a full vector has of the widest type; narrow floats count as f32.

    What a reduction's results are converted to at last is not counted: they are few.
    """
    members = [m for m in with_callees(instruction) if not _is_last(m)]
    shapes = [s for m in members for s in _arrays(m.shape) if s.size > 1]
    shapes += [s for o in instruction.operands for s in _arrays(o.shape) if s.size > 1]
    kinds = {s.dtype.component for s in shapes}
    if kinds and _only_moves(instruction):
        return target.vector_bytes // max(moved_as(s.dtype).component.item_bytes for s in shapes)
    if kinds and all(k.item_bytes <= 2 and not k.is_float for k in kinds):
        return target.vector_bytes // max(k.item_bytes for k in kinds)
    return min((target.lanes(k) for k in kinds), default=target.vector_bytes // 4)


def _is_last(member: Instruction) -> bool:
    """Whether it converts one of a reduction's several results, or stands for what others make."""
    if member.opcode in ("tuple", "fusion"):
        return True
    if member.opcode != "convert":
        return False
    (source,) = member.operands
    return source.opcode == "get-tuple-element" and source.operands[0].opcode == "reduce"


def enter_operands(expression: Expression, instruction: Instruction) -> int:
    """Operands' arrays become leaves; returns how many leaves there are."""
    is_fusion = instruction.opcode == "fusion"
    callees = instruction.called_computations() if is_fusion else []
    sources = callees[0].parameters if callees else instruction.operands
    expression.entered.update(callees)
    number = 0
    for source, operand in zip(sources, instruction.operands, strict=True):
        for path, leaf in _paths(operand.shape):
            if leaf.is_array and (source, path) not in expression.leaves:
                expression.leaves[source, path] = Leaf(
                    expression.storage(leaf.dtype), leaf.size, number
                )
            number += 1
    return number


def _paths(shape: Shape, prefix: tuple[int, ...] = ()) -> list[tuple[tuple[int, ...], Shape]]:
    if not shape.is_tuple:
        return [(prefix, shape)]
    return [pair for k, e in enumerate(shape.elements) for pair in _paths(e, (*prefix, k))]
