"""Mask skipping: scores that a mask of counted rows and columns leaves out are not computed.

    select(mask, scores, number) --> the same, which says what some bands of rows see of it;
    results = conditional(guards hold, results, results of all scores)

A causal attention's first rows see few columns; what is left out comes to exact zeros in whatever
is summed up, as analysis/scores/skipped_columns.py proves under guards that a run checks: values of
ordinary size, row maxima far above the mask's number. Where they do not hold (an infinity in the
values, a row that sees nothing), all is computed. Blocks of rows keep to what these see
(analysis/blocks/seen_columns.py); where scores come into no blocks, all are computed.
"""

from __future__ import annotations

from hlo.analysis.decisions import GRANULE, Decisions, Seen, config_of
from hlo.analysis.fusibility import is_scalar_constant
from hlo.analysis.large_values import LEAST_SCORES_BYTES
from hlo.analysis.scores.column_facts import ORDINARY, Guard
from hlo.analysis.scores.masks import Mask, masks_of
from hlo.analysis.scores.region import Region, region_around
from hlo.analysis.scores.skipped_columns import Assumed, ScoreFacts, Span
from hlo.ir.computation import Computation
from hlo.ir.dtype import PRED
from hlo.ir.graph import clone_instruction, post_order
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.making import make
from hlo.passes.fusion.fusion import called_by_ops
from hlo.passes.liveness import awaited, wrapped_operations
from hlo.passes.loop_making import adopted, element, new_computation, parameter, reducer
from hlo.passes.scores.mask_guards import held
from hlo.passes.simplify.cse import cse

LEAST_ROWS = 512  # Of fewer, blocks of which take many rows at a time, little is left out.
BANDS, STRIPS = 8, 16  # Parts of the rows, and of the columns, of which bands see whole ones.
# How large factors of scores may be, as powers of two: the first that proves what a mask hides. 40
# does for masks of -inf and of a type's least number, 12 for -1e9, 4 for -1e4 and scaled scores.
FACTORS = (ORDINARY, 12, 6, 4)
MOST_SEEN = 0.875  # Of the scores; bands that see more are not worth it.


def skip_masked_scores(module: Module) -> bool:
    """Leave out scores of which a mask shows that nothing comes of them.

    O(instructions) for each select over large scores.
    """
    changed = False
    left = called_by_ops(module) | wrapped_operations(module) | _branches(module)
    for computation in tuple(module.computations):
        if computation in left:
            continue
        for masked in computation.instructions:
            if masked not in computation:
                continue
            if (found := _bands(masked)) is not None and not _is_awaited(found[0], computation):
                _Skipping(module, computation, masked, *found).apply()
                changed = True
                break  # what is left of it has been looked at
    if changed:
        cse(module)  # each band makes the numbers that it compares with
    return changed


def _branches(module: Module) -> set[Computation]:
    return {
        callee
        for c in module.computations
        for i in c.instructions
        if i.opcode == "conditional"
        for callee in i.called_computations()
    }


def _is_awaited(region: Region, computation: Computation) -> bool:
    return not region.members.keys().isdisjoint(awaited(computation))


Bands = list[tuple[Span, frozenset[Guard]]]


def _bands(masked: Instruction) -> tuple[Region, Bands] | None:
    """The region of masked scores and its bands, with what each asks for; None: none that pay."""
    shape = masked.shape
    if not shape.is_array or shape.size_bytes < LEAST_SCORES_BYTES or not shape.dtype.is_float:
        return None
    for mask in masks_of(masked, LEAST_ROWS):
        dims, roles = shape.dims, mask.roles
        assert roles.row is not None, "scores have both"
        assert roles.column is not None, "scores have both"
        alone = Region(mask.members, dims[roles.row], dims[roles.column])
        if not _seen(mask, ScoreFacts(alone, Assumed(mask.far))):
            continue
        region = region_around(masked, roles)
        if region is None or mask.shown not in region.members or _has_lookups(region):
            return None
        for most in FACTORS:
            assumed = Assumed(mask.far, most)
            spans = _seen(mask, ScoreFacts(alone, assumed))
            if spans and (found := _guarded(spans, ScoreFacts(region, assumed))) is not None:
                return region, found
        return None
    return None


def _guarded(spans: list[Span], scores: ScoreFacts) -> Bands | None:
    """Bands, with what each asks for, where factors of scores are as small as is assumed."""
    found: Bands = []
    for span in spans:
        guards = _guards(scores, span)
        if guards is None:
            return None
        found.append((span, guards))
    return found


def _has_lookups(region: Region) -> bool:
    """Whether members read lookups in large tables, as rows of scores that are shifted: bands would
    keep what blocks of rows compute where they read it.
    """
    return any(
        operand.opcode == "gather" and operand.operands[0].shape.size_bytes >= LEAST_SCORES_BYTES
        for member, roles in region.members.items()
        if roles.has_both
        for operand in member.operands
    )


def _seen(mask: Mask, scores: ScoreFacts) -> list[Span] | None:
    """What each band of rows sees, if that is little enough."""
    region = scores.region
    strips, size = _Strips(mask, scores), -(-region.rows // BANDS)
    bands: list[Span] = []
    for first in range(0, region.rows, size):
        span = strips.seen(first, min(first + size, region.rows))
        if span is None:
            return None
        bands.append(span)
    area = sum((b.last - b.first) * (b.end - b.start) for b in bands)
    return bands if area <= MOST_SEEN * region.rows * region.columns else None


class _Strips:
    """Columns in strips, of which some rows see a stretch, near that of the rows before."""

    def __init__(self, mask: Mask, scores: ScoreFacts) -> None:
        self._mask, self._scores = mask, scores
        columns = scores.region.columns
        strip = -(-columns // (STRIPS * GRANULE)) * GRANULE
        self._starts = [*range(0, columns, strip), columns]
        self._begin = self._end = 0

    def seen(self, first: int, last: int) -> Span | None:
        """Of these rows; None where they see nothing."""
        starts, most = self._starts, len(self._starts) - 1

        def is_masked(begin: int, end: int) -> bool:
            part = Span(first, last, starts[begin], starts[end])
            return begin == end or self._scores.is_masked(self._mask, part)

        while self._begin > 0 and not is_masked(0, self._begin):
            self._begin -= 1
        while self._begin < most and is_masked(0, self._begin + 1):
            self._begin += 1
        if self._begin == most:
            return None
        while self._end < most and not is_masked(self._end, most):
            self._end += 1
        while self._end > self._begin + 1 and is_masked(self._end - 1, most):
            self._end -= 1
        return Span(first, last, starts[self._begin], starts[self._end])


def _guards(scores: ScoreFacts, seen: Span) -> frozenset[Guard] | None:
    """What has to hold for the columns beside those that a band sees to count for nothing."""
    found: frozenset[Guard] = frozenset()
    beside = ((0, seen.start), (seen.end, scores.region.columns))
    for start, end in beside:
        if start < end:
            asked = scores.skipped(Span(seen.first, seen.last, start, end))
            if asked is None:
                return None
            found |= asked
    return found


class _Skipping:
    """Says of a region's scores what is seen, and has its results computed anew where that does not
    hold.
    """

    def __init__(
        self,
        module: Module,
        computation: Computation,
        masked: Instruction,
        region: Region,
        bands: Bands,
    ) -> None:
        self._module, self._computation, self._masked = module, computation, masked
        self._region, self._bands = region, bands
        self._order = [i for i in post_order(computation) if i in region.members]
        self._levels = region.levels(post_order(computation))
        like = self._order[0]
        self._all_of = reducer(module, like, "and", Shape.array(PRED, ()))

    def apply(self) -> None:
        """Level by level: what is outside of the region and inside of it again comes later."""
        levels, outputs = self._levels, list(self._region.outputs())
        for level in sorted({levels[member] for member in self._order}):
            if given := [o for o in outputs if levels[o] == level]:
                self._check(given, level)
        spans = tuple((s.first, s.last, s.start, s.end) for s, _ in self._bands)
        self._say(self._masked, spans)
        self._computation.reorder(post_order(self._computation))

    def _say(self, masked: Instruction, spans: tuple[tuple[int, int, int, int], ...]) -> None:
        roles = self._region.members[self._masked]
        assert roles.row is not None, "scores have both"
        assert roles.column is not None, "scores have both"
        said = config_of(Decisions(seen=Seen(roles.row, roles.column, spans)))
        attributes = {**masked.attributes, "backend_config": said}
        assert masked.computation is not None, "in a computation"
        masked.computation.set_attributes(masked, attributes)

    def _check(self, outputs: list[Instruction], level: int) -> None:
        """Outputs as they are if the guards hold, else of all scores, for who is outside.

        All scores give what guards look at, too: then both are made by the same kernels.
        """
        members, root = self._region.members, self._computation.root
        outside = {o: [u for u in o.users if u not in members] for o in outputs}
        like = outputs[-1]
        needed = _needed(outputs, self._region)
        guards = self._asked(needed, level)
        results = list(dict.fromkeys((*outputs, *(g.value for g in guards if g.value in needed))))
        kept = make(like, "tuple", *results)
        whole = [m for m in self._order if m in needed]
        read = dict.fromkeys(o for m in whole for o in m.operands if o not in needed)
        given = [o for o in read if not is_scalar_constant(o)]
        others = make(like, "tuple", *given)
        branches = self._kept(kept), self._whole(whole, given, results)
        chosen = make(
            like, "conditional", self._hold(guards), kept, others,
            true_computation=branches[0], false_computation=branches[1],
        )  # fmt: skip
        for number, output in enumerate(outputs):
            final = element(chosen, number)
            for user in outside[output]:
                operands = [final if o is output else o for o in user.operands]
                self._computation.set_operands(user, operands)
            if root is output:
                self._computation.root = final

    def _asked(self, needed: set[Instruction], level: int) -> list[Guard]:
        """The guards that are about what is needed."""
        found: dict[Guard, None] = {}
        for _, guards in self._bands:
            for guard in sorted(guards, key=lambda g: (g.value.name, g.what.name)):
                is_member = guard.value in self._region.members
                if guard.value in needed if is_member else self._levels[guard.value] <= level:
                    found[guard] = None
        return list(found)

    def _hold(self, guards: list[Guard]) -> Instruction:
        """pred[]: whether all guards hold."""
        hold = [held(guard, guard.value, self._all_of) for guard in guards]
        every = hold[0]
        for one in hold[1:]:
            every = make(one, "and", every, one)
        return every

    def _kept(self, results: Instruction) -> Computation:
        kept = new_computation(results, "seen_scores")
        given = parameter(kept, 0, results.shape)
        elements = (element(given, n) for n in range(len(results.operands)))
        kept.root = make(given, "tuple", *elements)
        return adopted(self._module, results, kept)

    def _whole(
        self, members: list[Instruction], given: list[Instruction], outputs: list[Instruction]
    ) -> Computation:
        """The region as it was, of a tuple of what it is made from, and of numbers."""
        made = new_computation(outputs[0], "all_scores")
        whole = parameter(made, 0, Shape.tuple(g.shape for g in given))
        twins = {g: element(whole, n) for n, g in enumerate(given)}
        for number in dict.fromkeys(o for m in members for o in m.operands):
            if is_scalar_constant(number) and number not in self._region.members:
                twins[number] = made.adopt(clone_instruction(number, ()))
        for member in members:
            operands = tuple(twins[o] for o in member.operands)
            twins[member] = made.adopt(clone_instruction(member, operands))
        made.root = make(whole, "tuple", *(twins[o] for o in outputs))
        if self._masked in twins:
            self._say(twins[self._masked], ((0, self._region.rows, 0, self._region.columns),))
        return adopted(self._module, outputs[0], made)


def _needed(outputs: list[Instruction], region: Region) -> set[Instruction]:
    """The members that outputs are made from."""
    found, waiting = set(outputs), list(outputs)
    while waiting:
        for operand in waiting.pop().operands:
            if operand in region.members and operand not in found:
                found.add(operand)
                waiting.append(operand)
    return found
