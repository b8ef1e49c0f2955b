"""Mask skipping: scores that a mask of counted rows and columns leaves out are not computed.

    scores, masked --> for each of some bands of rows: the scores of the columns that it sees;
    results = conditional(guards hold, bands put together, all scores)

A causal attention's first rows see few columns; what is left out comes to exact zeros in whatever
is summed up, as analysis/skipped_columns.py proves under guards that a run checks: values of
ordinary size, row maxima far above the mask's number. Where they do not hold (an infinity in the
values, a row that sees nothing), all is computed.
"""

from __future__ import annotations

from itertools import pairwise

from hlo.analysis.column_facts import ORDINARY, Guard
from hlo.analysis.fusibility import is_scalar_constant
from hlo.analysis.large_values import LEAST_SCORES_BYTES
from hlo.analysis.score_masks import Mask, masks_of
from hlo.analysis.score_region import Region, region_around
from hlo.analysis.skipped_columns import Assumed, ScoreFacts, Span
from hlo.ir.computation import Computation
from hlo.ir.dtype import PRED
from hlo.ir.graph import clone_instruction, post_order
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.making import make
from hlo.passes.cse import cse
from hlo.passes.dce import remove_unread
from hlo.passes.fusion import called_by_ops
from hlo.passes.liveness import awaited, wrapped_operations
from hlo.passes.loop_making import adopted, element, new_computation, parameter, reducer
from hlo.passes.mask_bands import Band, held, joined, summed

LEAST_ROWS = 256  # Of a band, so that its blocks are as long as those of the whole.
MOST_BANDS = 4  # Four leave out 3/8 of a triangle's square; each is compiled by itself.
STRIPS = 16  # Parts of the columns of which bands take whole ones.
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
                _Skipping(module, computation, *found).apply()
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
    for mask in masks_of(masked):
        dims, roles = shape.dims, mask.roles
        assert roles.row is not None, "scores have both"
        assert roles.column is not None, "scores have both"
        alone = Region(mask.members, dims[roles.row], dims[roles.column])
        if not _seen(mask, ScoreFacts(alone, Assumed(mask.far))):
            continue
        region = region_around(masked, roles)
        if region is None or mask.shown not in region.members or _has_lookups(region):
            return None
        asked = (_guarded(mask, ScoreFacts(region, Assumed(mask.far, most))) for most in FACTORS)
        found = next((bands for bands in asked if bands is not None), None)
        return None if found is None else (region, found)
    return None


def _guarded(mask: Mask, scores: ScoreFacts) -> Bands | None:
    """Bands, with what each asks for, where factors of scores are as small as is assumed."""
    found: Bands = []
    for span in _seen(mask, scores) or ():
        guards = _guards(scores, span)
        if guards is None:
            return None
        found.append((span, guards))
    return found or None


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
    count = min(MOST_BANDS, region.rows // LEAST_ROWS)
    if count < 2:
        return None
    strip = -(-region.columns // STRIPS)
    starts = [*range(0, region.columns, strip), region.columns]
    size = -(-region.rows // count)
    bands: list[Span] = []
    for first in range(0, region.rows, size):
        last = min(first + size, region.rows)
        strips = [Span(first, last, a, b) for a, b in pairwise(starts)]
        hidden = [scores.is_masked(mask, s) for s in strips]
        if all(hidden):
            return None
        begin = hidden.index(False)
        end = len(hidden) - hidden[::-1].index(False)
        bands.append(Span(first, last, starts[begin], starts[end]))
    area = sum((b.last - b.first) * (b.end - b.start) for b in bands)
    return bands if area <= MOST_SEEN * region.rows * region.columns else None


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
    """Puts bands in the place of a region."""

    def __init__(
        self, module: Module, computation: Computation, region: Region, bands: Bands
    ) -> None:
        self._module, self._computation, self._region = module, computation, region
        self._bands = [(Band(region, span), guards) for span, guards in bands]
        self._order = [i for i in post_order(computation) if i in region.members]
        self._levels = region.levels(post_order(computation))
        like = self._order[0]
        self._all_of = reducer(module, like, "and", Shape.array(PRED, ()))

    def apply(self) -> None:
        """Level by level: what is outside of the region and inside of it again comes later."""
        levels, outputs = self._levels, list(self._region.outputs())
        for level in sorted({levels[member] for member in self._order}):
            for member in self._order:
                if levels[member] == level:
                    for band, _ in self._bands:
                        band.copy(member)
            if given := [o for o in outputs if levels[o] == level]:
                self._check(given, level)
        remove_unread(self._computation, self._order)
        self._computation.reorder(post_order(self._computation))

    def _check(self, outputs: list[Instruction], level: int) -> None:
        """Outputs of bands if the guards hold, else of all scores; they take the outputs' place."""
        like = outputs[-1]
        values = [self._put_together(output) for output in outputs]
        bands = make(like, "tuple", *values)
        needed = _needed(outputs, self._region)
        whole = [m for m in self._order if m in needed]
        read = dict.fromkeys(o for m in whole for o in m.operands if o not in needed)
        given = [o for o in read if not is_scalar_constant(o)]
        others = make(like, "tuple", *given)
        branches = self._kept(bands), self._whole(whole, given, outputs)
        chosen = make(
            like, "conditional", self._hold(needed, level), bands, others,
            true_computation=branches[0], false_computation=branches[1],
        )  # fmt: skip
        for number, output in enumerate(outputs):
            self._replace(output, element(chosen, number))

    def _replace(self, output: Instruction, final: Instruction) -> None:
        """What is outside of the region, and of its copies, reads the result that was chosen."""
        for user in tuple(output.users):
            if user not in self._region.members:
                operands = [final if o is output else o for o in user.operands]
                self._computation.set_operands(user, operands)
        if self._computation.root is output:
            self._computation.root = final

    def _put_together(self, output: Instruction) -> Instruction:
        roles = self._region.members[output]
        parts = [band.copies[output] for band, _ in self._bands]
        if roles.row is not None:
            return joined(parts, roles.row)
        wide = [
            band.widened(output, part) for (band, _), part in zip(self._bands, parts, strict=True)
        ]
        return summed(wide, output.shape.dtype)

    def _hold(self, needed: set[Instruction], level: int) -> Instruction:
        """pred[]: whether all guards hold that are about what is needed."""
        found: dict[tuple[Guard, Instruction], None] = {}
        for band, guards in self._bands:
            for guard in sorted(guards, key=lambda g: (g.value.name, g.what.name)):
                if guard.value in self._region.members:
                    if guard.value in needed:
                        found[guard, band.copies[guard.value]] = None
                elif self._levels[guard.value] <= level:
                    found[guard, guard.value] = None
        hold = [held(guard, value, self._all_of) for guard, value in found]
        every = hold[0]
        for one in hold[1:]:
            every = make(one, "and", every, one)
        return every

    def _kept(self, bands: Instruction) -> Computation:
        kept = new_computation(bands, "bands")
        whole = parameter(kept, 0, bands.shape)
        kept.root = make(whole, "tuple", *(element(whole, n) for n in range(len(bands.operands))))
        return adopted(self._module, bands, kept)

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
