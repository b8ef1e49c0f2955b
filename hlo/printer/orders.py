"""In which order computations and instructions are printed (docs/text.md 8.5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from hlo.ir.computation import Computation
from hlo.ir.graph import callees_first, is_topological, post_order
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.printer.options import PrintOptions


def printed_computations(module: Module, options: PrintOptions) -> list[Computation]:
    """All computations of the module, wrappers of asynchronous instructions included."""
    if options.as_written:
        return list(module.computations)
    if options.reads_back:
        return callees_first(module)
    if options.canonicalize_computations:
        return list(module.computations)
    return xla_post_order(module)


def xla_post_order(module: Module) -> list[Computation]:
    """XLA's own order, which marks callees when it pushes them.

    A callee of the first callee that is also the second one therefore comes after the first, and
    such a text cannot be read again.
    """
    called = {c for computation in module.computations for c in callees(computation)}
    done: dict[Computation, None] = {}
    for root in module.computations:
        if root not in called:
            seen: set[Computation] = set()
            for computation in _embedded(root, seen):
                done.setdefault(computation)
            done.setdefault(root)
    return list(done)


def _embedded(root: Computation, seen: set[Computation]) -> Iterator[Computation]:
    """The computations that root calls, directly or not."""
    walks: list[tuple[Computation | None, Iterator[list[Computation]]]] = [(None, _groups(root))]
    while walks:
        computation, groups = walks[-1]
        fresh: list[Computation] = []
        for group in groups:
            fresh = [c for c in dict.fromkeys(reversed(group)) if c not in seen]
            if fresh:
                break
        if not fresh:
            walks.pop()
            if computation is not None:
                yield computation
            continue
        seen.update(fresh)
        walks += [(c, _groups(c)) for c in fresh]  # the first callee on top


def _groups(computation: Computation) -> Iterator[list[Computation]]:
    """The called computations of each instruction in text order."""
    for instruction in computation.instructions:
        if instruction.attributes:
            group = instruction.called_computations()
            if group:
                yield group


def callees(computation: Computation) -> Iterable[Computation]:
    """What its instructions call, repeats kept."""
    for group in _groups(computation):
        yield from group


def printed_instructions(
    computation: Computation, fusions: set[Computation], *, scheduled: bool
) -> Sequence[Instruction]:
    """The schedule's order where there is one, else post order."""
    if scheduled and computation not in fusions:
        order = computation.instructions
        if is_topological(order):  # a pass may have added operands behind their users
            return order
    return post_order(computation)


def fusion_bodies(module: Module) -> set[Computation]:
    """Computations that are called by a fusion: they have no schedule of their own."""
    return {
        c
        for computation in module.computations
        for i in computation.instructions
        if i.opcode == "fusion"
        for c in i.called_computations()
    }
