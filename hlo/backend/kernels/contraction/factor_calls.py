"""Factor calls: what makes factors ready for a product.

Before the product, before the loop around it, or when the program is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from hlo.backend.ir.kernel import Kernel, KnownLeaves, Prepared, Preparing
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction import loop_listing
from hlo.backend.kernels.contraction.calls import Calls, Made
from hlo.backend.kernels.contraction.packing.form import Packing
from hlo.backend.kernels.contraction.packing.panels import packing_kernel
from hlo.backend.kernels.contraction.problem.axes import Axes, Contraction, Operand, extent
from hlo.backend.kernels.contraction.problem.offsets import start_buffers
from hlo.backend.kernels.contraction.problem.ring import Ring
from hlo.backend.kernels.contraction.words.words import Words
from hlo.ir.shape import Shape


class FactorCalls(Calls):
    """The kernels that make a contraction's factors ready, and where these are then.

    prepared: by their places; early: places that do not wait for an iteration; checking: by
    sides, flags for subnormal numbers of factors that are looked at while they are packed.
    """

    def __init__(self, target: Target, first: int, known: KnownLeaves) -> None:
        super().__init__(target, first)
        self.known = known
        self.prepared: dict[int, Prepared] = {}
        self.early: set[int] = set(known.kept)
        self.checking: dict[str, int] = {}

    def add_before(
        self, kernel: Kernel, source: int, size: int, schedule: Made, starts: Sequence[int] = ()
    ) -> int:
        """A kernel that writes a new temporary from a buffer (from starts in it); the temporary's
        place.
        """
        place = self.temporary(size)
        self.call(kernel, schedule, source, place, *starts, is_early=source in self.early)
        if source in self.early:
            self.early.add(place)
        return place

    def is_known(self, place: int) -> bool:
        """Whether a buffer is a constant, or made of one when the program is compiled."""
        return place in self.known.leaves or place in self.prepared

    def keeps_either(self, c: Contraction) -> bool:
        """Whether what is made of a factor is made once for many products."""
        places = (c.lhs.buffer, c.rhs.buffer)
        return any(self.is_known(place) or place in self.early for place in places)

    def prepare(self, step: Preparing, source: int, size: int) -> int:
        """A new temporary that is made of a known buffer when the program is compiled."""
        place, number = self.next_place, len(self.temporaries)
        before = self.prepared.get(source) or Prepared(0, source, ())
        self.prepared[place] = Prepared(number, before.leaf, (*before.steps, step))
        self.temporaries.append(size)
        return place

    def in_words(self, words: Words, side: str) -> int:
        """The place of a factor's words."""
        source, size = words.source.buffer, words.size_bytes
        if words.is_joined or not words.is_copied:
            return source
        if self.is_known(source):
            from hlo.backend.kernels.contraction.prepacking import PrepackedWords

            return self.prepare(PrepackedWords(words), source, size)
        from hlo.backend.kernels.contraction.words.packing import words_kernel, words_schedule

        kernel, starts = words_kernel(words, self.target), start_buffers([words.source])
        return self.add_before(kernel, source, size, partial(words_schedule, words, side), starts)

    def in_memory(self, c: Contraction, side: str) -> Contraction:
        """The product of a factor that a kernel before it has computed."""
        factor: Operand = getattr(c, side)
        if factor.prologue is None:
            return c
        from hlo.backend.kernels.contraction.problem.computed import materialised

        place = self.temporary(factor.prologue.root.shape.size_bytes)
        self.calls.append(materialised(factor.prologue, self.target, place))
        return replace(c, **{side: replace(factor, buffer=place, prologue=None)})

    def in_order(self, shape: Shape, order: tuple[int, ...], source: int) -> int:
        """The place of an array with its dimensions in another order. Of a constant it is made when
        the program is compiled, unless subnormal numbers have to be looked for.
        """
        if self.is_known(source) and source not in self.known.subnormal:
            from hlo.backend.kernels.contraction.prepacking import PrepackedOrder

            step = PrepackedOrder(shape.dims, order, shape.dtype.item_bytes)
            return self.prepare(step, source, shape.size_bytes)
        from hlo.backend.kernels.contraction.problem.computed import in_order, materialised

        place, is_early = self.temporary(shape.size_bytes), source in self.early
        call = materialised(in_order(shape, order, source), self.target, place)
        self.calls.append(replace(call, is_early=is_early))
        if is_early:
            self.early.add(place)
        return place

    def byte(self, side: str) -> tuple[int, ...]:
        """The flag that is set for subnormal numbers, of a factor that is looked at while it is
        packed.
        """
        return (self.checking[side],) if side in self.checking else ()

    def is_prepared(self, factor: Operand, ring: Ring) -> bool:
        """Whether a factor's numbers become the ring's when the program is compiled."""
        if not self.is_known(factor.buffer):
            return False
        from hlo.backend.kernels.contraction.prepacking import is_prepacked

        return is_prepacked(factor.dtype, ring)

    def apart(self, packing: Packing, c: Contraction, side: str) -> int:
        """The place of a factor's panels, which a kernel of their own makes, or the compiler."""
        operand: Operand = getattr(c, side)
        batch: Axes = tuple(a for a in c.batch if getattr(a, side))
        size_bytes = extent(batch) * packing.size_bytes
        if self.is_prepared(operand, packing.ring):
            from hlo.backend.kernels.contraction.prepacking import PrepackedPanels

            strides = tuple((a.size, getattr(a, side)) for a in batch)
            step = PrepackedPanels(packing, strides, operand.offset)
            return self.prepare(step, operand.buffer, size_bytes)
        starts, byte = start_buffers([operand]), self.byte(side)
        kernel = packing_kernel(packing, batch, operand, side, checks=bool(byte))
        made = partial(loop_listing.packing, packing, batch, side, operand.read_from)
        return self.add_before(kernel, operand.buffer, size_bytes, made, (*starts, *byte))
