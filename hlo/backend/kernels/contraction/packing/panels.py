"""Panels made by a kernel of their own, before the product: what several units would pack again."""

from __future__ import annotations

from collections.abc import Sequence

from hlo.backend.ir.arithmetic import add, advanced, clipped, split_index, times
from hlo.backend.ir.control import ranged
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.packing.assembly_copies import CHUNK, is_assembly, packed
from hlo.backend.kernels.contraction.packing.form import Packing, PanelRange
from hlo.backend.kernels.contraction.packing.work import packing_work
from hlo.backend.kernels.contraction.problem.addressing import moved
from hlo.backend.kernels.contraction.problem.axes import Axes, Operand, extent
from hlo.backend.kernels.contraction.problem.offsets import element_0, offsets_of


def packing_kernel(
    packing: Packing, batch: Axes, factor: Operand, side: str, *, checks: bool = False
) -> Kernel:
    """buffers: source, panels, starts, the flag set for subnormal numbers where it `checks`.
    batch: the axes that move the factor, in the panels' order.
    """
    w = Writer()
    ring, source, panels = packing.ring, packing.source, packing.panels
    group, chunks = shares(packing)
    groups, depth = -(-panels.count // group), source.depth_size
    units = extent(batch) * groups * chunks
    memory, target = (w.buffer_address(i) for i in (0, 1))
    place = element_0(w, memory, factor, 2)
    flag = w.buffer_address(2 + offsets_of(factor)) if checks else None

    def unit(u: Value) -> None:
        b, g, chunk = split_index(w, u, (1 << 40, groups, chunks))
        axes = [(a.size, getattr(a, side)) for a in batch]
        base = moved(w, place, b, axes, source.dtype)
        first = times(w, g, group)
        start = add(w, times(w, b, panels.count), first)
        to = advanced(w, target, times(w, start, packing.panel_size), ring.scalar)
        block = PanelRange(
            base, to, first, clipped(w, first, group, panels.count),
            times(w, chunk, CHUNK if chunks > 1 else depth),
            clipped(w, times(w, chunk, CHUNK), CHUNK, depth) if chunks > 1 else w.int(depth), flag,
        )  # fmt: skip
        packed(w, packing, block)

    ranged(w, BEGIN, END, unit)
    bytes_moved = 2 * extent(batch) * packing.size_bytes
    code, is_glue = w.kernel_function(), is_assembly(packing)
    work = packing_work(packing, batch, checks=checks)
    return Kernel(code, units, *w.beside, bytes_moved=bytes_moved, is_glue=is_glue, work=work)


def shares(packing: Packing) -> tuple[int, int]:
    """Panels of a unit; in how many chunks units share depth."""
    count, source = packing.panels.count, packing.source
    group = -(-count // max(1, min(8, count // 4)))
    is_along = source.is_free_contiguous and len(source.depth) == 1
    return group, -(-source.depth_size // CHUNK) if is_along else 1


def packed_strides(batch: Sequence[tuple[int, int]], packing: Packing) -> list[tuple[int, int]]:
    """Strides of the batch axes in panels; an axis that does not move the factor stays 0."""
    step = packing.panels.count * packing.panel_size
    result: list[tuple[int, int]] = []
    for size, stride in reversed(batch):
        result.insert(0, (size, step if stride else 0))
        step *= size if stride else 1
    return result
