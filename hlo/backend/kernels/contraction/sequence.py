"""A contraction's kernels in sequence: what multiplies its factors, after what makes them ready.

Contraction, of a dot or convolution (contraction.py) --ContractionSequence--> KernelSequence

What some contractions need alone, as words or matrix units, is imported where one of them is met:
most programs start without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from hlo.backend.ir.kernel import KernelSequence, KnownLeaves, Sums
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction import loop_listing
from hlo.backend.kernels.contraction.factor_calls import FactorCalls
from hlo.backend.kernels.contraction.problem.axes import Contraction, Operand, normal
from hlo.backend.kernels.contraction.problem.buffer_numbers import BufferNumbers
from hlo.backend.kernels.contraction.problem.offsets import start_buffers
from hlo.backend.kernels.contraction.problem.result import Epilogue, EpilogueOf
from hlo.backend.kernels.contraction.problem.ring import Ring, ring_of
from hlo.backend.kernels.contraction.problem.tiles import tiles_of
from hlo.backend.kernels.contraction.problem.work import reach
from hlo.backend.kernels.contraction.products.band_limits import is_addable
from hlo.backend.kernels.contraction.products.exchange import is_exchanged
from hlo.backend.kernels.contraction.products.form import read_in_memory
from hlo.backend.kernels.contraction.products.lhs_prepacking import with_prepacked_lhs
from hlo.backend.kernels.contraction.products.narrow import is_narrow, planned_narrow
from hlo.backend.kernels.contraction.products.plan import ProductPlan, Reading
from hlo.backend.kernels.contraction.products.planning import (
    limited_plan,
    packed_ahead,
    planned,
    planned_small,
)
from hlo.backend.kernels.contraction.products.product import product_kernel
from hlo.backend.kernels.contraction.products.split_k import (
    parts_sums,
    split_depth,
    split_stream,
    sum_kernel,
)
from hlo.backend.kernels.contraction.products.symmetric_product import (
    MIRRORED,
    UPPER,
    mirror_kernel,
    upper_half,
)
from hlo.backend.kernels.contraction.products.windows import in_runs
from hlo.backend.kernels.contraction.vectors.plan import (
    is_turned,
    lies_across,
    streams,
    streams_panels,
    vector_sums,
    writes_apart,
)
from hlo.backend.kernels.contraction.vectors.turning import (
    columns_along_depth,
    elements_along_depth,
    meets_words,
    on_copy,
    on_rows,
    rows_as_numbers,
)
from hlo.backend.kernels.contraction.vectors.word_plan import (
    dots_of_words,
    word_stream_sums,
    words_streamed,
)
from hlo.backend.kernels.contraction.words.words import Worded, in_words
from hlo.backend.loops.schedule import Plan
from hlo.ir import dtype as dt
from hlo.ir.shape import Shape

if TYPE_CHECKING:  # of some contractions alone
    from hlo.backend.kernels.contraction.matrix_units.amx import TilePlan
    from hlo.backend.kernels.contraction.vectors.axpys import Axpys
    from hlo.backend.kernels.contraction.vectors.gemv import Dots


class ContractionSequence(FactorCalls):
    """Made by `finished`."""

    def __init__(
        self, target: Target, epilogue_of: EpilogueOf, buffers: BufferNumbers, known: KnownLeaves
    ) -> None:
        super().__init__(target, buffers.temporaries, known)
        self.finish_by(epilogue_of)
        self.buffers = buffers
        self.stores_once = True  # each result
        self.is_added = False  # to what lies there, of which some stays
        self.keeps_bounds: list[bool] = []  # each product
        # The flag that is set for subnormal numbers in factors that are looked at while copied.
        self.sums: Sums | None = None

    def finish_by(self, epilogue_of: EpilogueOf) -> None:
        """Have that done to each sum."""
        self.epilogue_of, self.epilogue = epilogue_of, epilogue_of(self.target)

    def finished(self, contraction: Contraction) -> KernelSequence:
        """Packing kernels, then the product. Nothing at all for an empty result."""
        ring = ring_of(contraction.out, self.target)
        c = normal(contraction, ring.lanes)
        self.reach = reach(c)
        if c.batches * c.m * c.n == 0:
            return KernelSequence(())
        further = len(self.epilogue.further) if self.epilogue else 0
        results = range(c.out_buffer, c.out_buffer + 1 + further)
        others = (*results, *(self.epilogue.others if self.epilogue else ()))
        if self.epilogue and self.epilogue.gates > 1:
            from hlo.backend.kernels.contraction.products.gates import gated_plan

            plan = gated_plan(c, ring, self.epilogue.gates)
            self.sums = plan.sums
            self._product(plan, self.epilogue, *others)
            return self.made()
        if is_narrow(c, ring, self.epilogue):
            self._add_narrow(c.swapped, ring, others)
            return self.made()
        if is_turned(c, ring):
            c = self._turned(self.in_memory(c, "rhs"), ring)
        if is_exchanged(c, ring) or self._is_streamed_across(c, ring):
            c = c.swapped
        c = self.in_memory(c, "lhs")
        # The other ways compute all that is bounded, and hand an epilogue results in runs.
        is_apart = self.epilogue is not None and writes_apart(c, ring)
        if c.bounded_side or is_apart:
            self._add_blocked(c, ring, others)
            return self.made()
        if self._add_word_stream(c, ring, others):
            return self.made()
        is_tiled = self._is_packed_once(c, ring)
        if not is_tiled and (packing := rows_as_numbers(c, ring)) is not None:
            c = on_rows(c, packing, self.apart(packing, c, "lhs"))
        if not is_tiled and (split := split_stream(c, ring, self.next_place)) is not None:
            self._add_parts(c, ring, split, others)
        elif not is_tiled and streams(c, ring):
            self.sums = vector_sums(c, ring)
            self._stream(c, ring, self.epilogue, *others)
        else:
            self._add_blocked(c, ring, others)
        return self.made()

    def _add_narrow(self, c: Contraction, ring: Ring, others: tuple[int, ...]) -> None:
        """A product of few rows, which lie so in the result, by many columns along depth."""
        c = self.in_memory(c, "lhs")
        if c.rhs.prologue is not None and not self._reads_computed(c, ring, None):
            c = self.in_memory(c, "rhs")
        plan = planned_narrow(c, ring)
        self.sums, self.stores_once = plan.sums, not plan.columns.overlaps
        self._product(self._with_prepared(plan), self.epilogue, *others)

    def _is_streamed_across(self, c: Contraction, ring: Ring) -> bool:
        """Whether few columns meet a matrix that is streamed with the factors exchanged."""
        if self.epilogue is not None or not lies_across(c, ring) or c.bounded_side:
            return False
        return words_streamed(c.swapped, ring) is not None or streams(c.swapped, ring)

    def _add_blocked(self, c: Contraction, ring: Ring, others: tuple[int, ...]) -> None:
        """A product of blocks of rows and columns, by what multiplies them best; the columns may be
        computed where they are packed as numbers of the ring.
        """
        tiles, worded = self._tiles(c, ring), self._in_words(c, ring)
        if c.rhs.prologue is not None and not self._reads_computed(c, ring, worded):
            c = self.in_memory(c, "rhs")
            tiles, worded = self._tiles(c, ring), self._in_words(c, ring)
        if tiles is not None:
            self._unless_subnormal(
                c, ring, others, partial(self._add_tiles, tiles, others), ("lhs", "rhs")
            )
        elif worded is not None:
            add = partial(self._add_words, worded, others)
            packed = ("rhs",) if worded.rhs.is_joined else ()
            self._unless_subnormal(c, ring, others, add, packed)
        else:
            self._add_product(c, ring, others)

    def _tiles(self, c: Contraction, ring: Ring) -> TilePlan | None:
        """The product on matrix units, if they serve."""
        if tiles_of(c, ring) is None:
            return None
        from hlo.backend.kernels.contraction.matrix_units.amx import tile_plan

        return tile_plan(c, ring)

    def _in_words(self, c: Contraction, ring: Ring) -> Worded | None:
        """The product on words, if they serve."""
        return in_words(c, ring, self.early, (*self.known.leaves, *self.prepared))

    def _reads_computed(self, c: Contraction, ring: Ring, worded: Worded | None) -> bool:
        """Whether columns are computed where they are packed, as the ring's numbers or as words."""
        if worded is None or self._tiles(c, ring) is not None:
            from hlo.backend.kernels.contraction.computed_columns import packs_computed

            return packs_computed(c, ring)
        return worded.rhs.is_joined

    def _is_packed_once(self, c: Contraction, ring: Ring) -> bool:
        """Whether few rows meet columns that a loop keeps, of which panels are made before it."""
        return c.rhs.buffer in self.early and streams_panels(c, ring)

    def made(self) -> KernelSequence:
        """What was called so far."""
        pairs = self.epilogue.in_place if self.epilogue and self.stores_once else frozenset()
        return KernelSequence(
            tuple(self.calls),
            tuple(self.temporaries),
            pairs,
            pairs if self.is_added else frozenset(),
            sums=self.sums,
            prepared=tuple(self.prepared.values()),
            is_bounded=all(self.keeps_bounds) and (self.stores_once or not self.is_added),
        )

    def _turned(self, c: Contraction, ring: Ring) -> Contraction:
        """Few columns as rows of the exchanged product, copied if they do not lie along depth, or
        their parts side by side.
        """
        if c.depth[-1].rhs == 1 and ring.parts == 1:
            return c.swapped
        if not self.keeps_either(c) and meets_words(c, ring):
            place = self.in_order(Shape.array(c.rhs.dtype, (c.k, c.n)), (1, 0), c.rhs.buffer)
            return elements_along_depth(c, place).swapped
        packing = columns_along_depth(c, ring)
        place = self.apart(packing, c, "rhs")
        return on_copy(c, packing, place).swapped

    def _add_tiles(self, tiles: TilePlan, others: tuple[int, ...]) -> None:
        """The product on matrix units, after what packs its columns."""
        from hlo.backend.kernels.contraction.matrix_units.packing import tile_packing_kernel
        from hlo.backend.kernels.contraction.matrix_units.product import AmxProduct

        self.sums = tiles.sums
        if tiles.c.adds and not (self.epilogue and self.epilogue.in_place):
            tiles = replace(tiles, c=replace(tiles.c, bounded=None))
        self.is_added = tiles.c.adds
        source = tiles.c.rhs.buffer
        left, right = ("rhs", "lhs") if tiles.is_turned else ("lhs", "rhs")
        starts, checks = start_buffers([tiles.c.lhs]), right in self.checking
        if self.is_known(source):
            from hlo.backend.kernels.contraction.prepacking import PrepackedTiles

            blocks = self.prepare(PrepackedTiles(tiles), source, tiles.rhs_bytes)
        elif source not in self.early and (own := tiles.packing_columns).packs_columns:
            tiles, blocks = own, source
            starts = start_buffers([tiles.c.lhs, tiles.c.rhs])
        else:
            packed = partial(loop_listing.tile_packing, tiles)
            kernel = tile_packing_kernel(tiles, checks=checks)
            read = (*start_buffers([tiles.c.rhs]), *self.byte(right))
            blocks = self.add_before(kernel, source, tiles.rhs_bytes, packed, read)
            checks = False
        product = AmxProduct(tiles, self.epilogue, checks=(left in self.checking, checks))
        made = partial(loop_listing.tiles, product)
        kernel, flag = product.kernel(), self.byte(left) or self.byte(right) * checks
        self.keeps_bounds.append(kernel.is_bounded)
        self.call(kernel, made, tiles.c.lhs.buffer, blocks, *others, *starts, *flag)

    def _add_words(self, worded: Worded, others: tuple[int, ...]) -> None:
        """The product on words, after what makes them."""
        c = worded.contraction
        for side, words in (("lhs", worded.lhs), ("rhs", worded.rhs)):
            place = self.in_words(words, side)
            c = replace(c, **{side: replace(getattr(c, side), buffer=place)})
        if worded.lhs.is_moved:
            from hlo.backend.kernels.contraction.words.zeros import without_zeros

            result, *rest = others
            zeros = self._zeros(c, worded.ring)
            self.epilogue = without_zeros(c, worded.ring, zeros, self.epilogue)
            others = (result, zeros, *rest)
        self._add_product(c, worded.ring, others)

    def _zeros(self, c: Contraction, ring: Ring) -> int:
        """Where what rows of zeros give lies. c: of words."""
        from hlo.backend.kernels.contraction.words.zeros import (
            WORD_BYTES,
            zero_word_kernel,
            zeros_bytes,
            zeros_contraction,
        )

        if self.is_known(c.rhs.buffer):
            from hlo.backend.kernels.contraction.prepacking import PrepackedZeros

            row = zeros_contraction(c, c.lhs.buffer)
            assert ring.dot is not None, "of words"
            return self.prepare(PrepackedZeros(row, ring.dot), c.rhs.buffer, zeros_bytes(c))
        word = self.temporary(WORD_BYTES)
        self.call(zero_word_kernel(), partial(Plan, ("zero: a word of zeros, moved",)), word)
        place = self.temporary(zeros_bytes(c))
        s32 = replace(ring, result=dt.S32)
        row = normal(zeros_contraction(c, word), ring.lanes)
        self._product(planned(row, s32), None, place)
        return place

    def _unless_subnormal(
        self,
        c: Contraction,
        ring: Ring,
        others: tuple[int, ...],
        add: Callable[[], None],
        packed: Sequence[str],
    ) -> None:
        """A product on instructions that read subnormal numbers of bf16 as zero; strict mode checks
        for them first, at factors that it copies (packed) while it does, and where there are any
        the product is made once more by others. Factors of other types become normal numbers.
        """
        factors = [(side, f) for side, f in (("lhs", c.lhs), ("rhs", c.rhs)) if f.dtype is dt.BF16]
        if not factors or self.target.mode != "strict":
            add()
            return
        looked = [
            (side, factor.buffer)
            for side, factor in factors
            if not self.is_known(factor.buffer) or factor.buffer in self.known.subnormal
        ]
        early = [one for one in looked if one[1] in self.early]
        later = [one for one in looked if one not in early]
        copied = [one for one in later if one[0] in packed and not self.is_known(one[1])]
        if c.adds:  # once: the first product does not run where the other one will
            copied = []
        before = self.flagged(c, early, is_early=True) if early else None
        flag = self.flagged(c, [one for one in later if one not in copied], before=before)
        self.checking = {side: flag for side, _ in copied}
        other = self.other(flag) if c.adds else None
        first = len(self.calls)
        add()
        if other is not None:
            self.only_if(other, first)
        self.checking = {}
        self._once_more(c, ring, others, flag)

    def _once_more(self, c: Contraction, ring: Ring, others: tuple[int, ...], flag: int) -> None:
        """The product where a byte says that the one before was not right, or does not run: where
        it took subnormal numbers for zeros, and that may matter.
        """
        if self.factors and c.lhs.prologue is None and c.rhs.prologue is None:
            from hlo.backend.kernels.contraction.small_results import can_be_told

            if can_be_told(c, self.at_most_two()):
                flag, _ = self.flagged_small(c, when=flag)
        fast, sums = len(self.calls), self.sums
        plan = planned_small(c, ring)
        self._product(plan, self.epilogue, *others)
        self.only_if(flag, fast)
        self.sums, self.stores_once = sums, c.adds and self.stores_once and is_addable(plan)

    def _add_word_stream(self, c: Contraction, ring: Ring, others: tuple[int, ...]) -> bool:
        """The product of few rows on words that nothing of the matrix is copied for, if it is one;
        where subnormal numbers are met, it is made once more. Factors that are known, or kept by a
        loop, become words beforehand.
        """
        if self.keeps_either(c):
            return False
        if (worded := dots_of_words(c, ring)) is not None:
            self.sums = vector_sums(worded.contraction, worded.ring)
            from hlo.backend.kernels.contraction.vectors.word_dots import WordDots

            words = self.in_words(worded.lhs, "lhs")
            self._call_stream(WordDots(worded, self.epilogue), words, c.rhs.buffer, *others)
            return True
        if (found := words_streamed(c, ring)) is None:
            return False
        flag = None
        if self.target.mode == "strict" and c.rhs.dtype is dt.BF16:
            flag = self.flagged(c, [("lhs", c.lhs.buffer)])
        from hlo.backend.kernels.contraction.vectors.word_stream import WordStream

        stream = WordStream(found, self.epilogue, checks=flag is not None)
        left, starts = self.in_words(found.lhs, "lhs"), start_buffers((stream.c.lhs, c.rhs))
        byte = () if flag is None else (flag,)
        made = partial(loop_listing.word_stream, stream)
        self.keeps_bounds.append(False)
        self.call(stream.kernel(), made, left, c.rhs.buffer, *others, *starts, *byte)
        self.sums = word_stream_sums(stream.c)
        if flag is not None:
            self._once_more(c, ring, others, flag)
        return True

    def _stream(self, c: Contraction, ring: Ring, epilogue: Epilogue | None, *others: int) -> None:
        """A product of few rows, which reads the other factor once."""
        from hlo.backend.kernels.contraction.vectors.gemv import streamed

        stream = streamed(c, ring, epilogue)
        self._call_stream(stream, c.lhs.buffer, c.rhs.buffer, *others)

    def _call_stream(self, stream: Dots | Axpys, *places: int) -> None:
        starts = start_buffers((stream.c.lhs, stream.c.rhs))
        self.keeps_bounds.append(False)
        self.call(stream.kernel(), partial(loop_listing.vectors, stream), *places, *starts)

    def _product(self, plan: ProductPlan, epilogue: Epilogue | None, *others: int) -> None:
        """The blocked product, after what packs its factors before it."""
        factors = self._packed(plan, "lhs"), self._packed(plan, "rhs")
        made = partial(loop_listing.product, plan, epilogue)
        starts = start_buffers(read_in_memory(plan))
        byte = () if plan.rhs is Reading.PACKED else self.byte("rhs")
        kernel = product_kernel(plan, epilogue, checks=bool(byte))
        self.keeps_bounds.append(kernel.is_bounded)
        self.call(kernel, made, *factors, *others, *starts, *byte)

    def _with_prepared(self, plan: ProductPlan) -> ProductPlan:
        """The plan with constants, what a loop keeps, and rows that are copied again and again
        packed before, where it would pack them."""
        plan = with_prepacked_lhs(plan)
        for side in ("lhs", "rhs"):
            factor: Operand = getattr(plan.contraction, side)
            if self.is_prepared(factor, plan.ring) or factor.buffer in self.early:
                plan = packed_ahead(plan, side)
        if self._is_packed_once(plan.contraction, plan.ring):
            plan = replace(plan, rhs=Reading.PACKED)
        return plan

    def _add_product(self, c: Contraction, ring: Ring, others: tuple[int, ...]) -> None:
        """The blocked product; of a long depth in parts."""
        c = upper_half(in_runs(c, ring), ring, self.epilogue)
        self._add_whole(c, ring, others)
        if c.bands == UPPER:
            dtype = self.epilogue.dtype if self.epilogue else c.out
            self.call(mirror_kernel(c, ring, dtype), lambda: MIRRORED, c.out_buffer)

    def _add_whole(self, c: Contraction, ring: Ring, others: tuple[int, ...]) -> None:
        """The product of all depths, or of parts of them."""
        plan = planned(c, ring)
        if c.adds:
            self.is_added = bool(self.epilogue and self.epilogue.in_place) and is_addable(plan)
            if not self.is_added:  # some would be added twice, or to something else
                c = replace(c, bounded=None)
                plan = planned(c, ring)
        is_whole = plan.is_whole or bool(c.bounded_side)
        split = None if is_whole else split_depth(c, ring, self.next_place)
        if split is not None:
            self._add_parts(c, ring, split, others)
            return
        self.sums = plan.sums
        self.stores_once = not plan.columns.overlaps
        if (fewer := limited_plan(plan)) is None:
            self._product(self._with_prepared(plan), self.epilogue, *others)
            return
        flag = self.flagged_zeros(fewer.contraction)
        self._product(self._with_prepared(fewer), self.epilogue, *others)
        first = len(self.calls)
        self._product(plan, self.epilogue, *others)
        self.only_if(flag, first)
        self.stores_once = False

    def _add_parts(
        self, c: Contraction, ring: Ring, split: tuple[Contraction, int], others: tuple[int, ...]
    ) -> None:
        """Products of the parts of depth, and their sum."""
        parted, parts = split
        parted = replace(parted, bounded=None)
        place = self.temporary(c.batches * parts * c.m * c.n * parted.out.item_bytes)
        is_tiled = self._is_packed_once(parted, ring)
        if not is_tiled and streams(parted, ring):
            self.sums = parts_sums(vector_sums(parted, ring), parts)
            self._stream(parted, ring, None, place)
        else:
            plan = planned(parted, ring)
            self.sums = parts_sums(plan.sums, parts)
            self._product(self._with_prepared(plan), None, place)
        joined = partial(loop_listing.parts, c, ring, parts, self.epilogue)
        self.call(sum_kernel(c, ring, parts, self.epilogue), joined, place, *others)

    def _packed(self, plan: ProductPlan, side: str) -> int:
        """Where the product finds a factor: as it is, or packed by a kernel of its own."""
        operand: Operand = getattr(plan.contraction, side)
        if getattr(plan, side) is not Reading.PACKED:
            return operand.buffer
        packing = plan.lhs_packing if side == "lhs" else plan.rhs_packing
        return self.apart(packing, plan.contraction, side)
