"""Placing: reductions put at the axes of a schedule in whose loops they were made.

    nodes without reductions, what was opened --placed--> nodes

The axes say which loops there are, and what is written again for their tails; between these stand
the reductions. One that lanes make each for themselves belongs to the axis that has the lanes.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from hlo.backend.loops.opened import Made, Opened, Steps, Stored, over
from hlo.backend.loops.schedule import Cache, Loop, LoopNest, Node, Reduction, Role


def placed(nests: Sequence[LoopNest], seen: Steps) -> tuple[LoopNest, ...]:
    """The nests with their reductions; seen: a loop over the units of each."""
    outer, found = _Walk(list(seen)), []
    for nest in nests:
        entry = outer.taken(lanes=True)
        body, rest = _placed(nest.body, outer.entered())
        body = (*body, *rest.taken(lanes=True))
        # What is filled there lies there.
        filled = {value for reduction in entry for value in reduction.fills}
        caches = [n for n in body if isinstance(n, Cache) and n.value in filled]
        body = tuple(n for n in body if n not in caches)
        found.append(replace(nest, body=body, entry=(*caches, *entry)))
    return tuple(found)


_HERE = Opened(None, None, 0)  # Stands for code that is written without a loop.


class _Walk(Struct):
    """What a loop holds, from some place on."""

    steps: Steps

    def taken(self, *, lanes: bool) -> list[Reduction]:
        """The reductions before the next loop, those in lanes only if asked for."""
        found, left = [], []
        self.steps = [s for s in self.steps if not isinstance(s, Stored)]
        while self.steps and isinstance(self.steps[0], Made):
            made = self.steps.pop(0)
            assert isinstance(made, Made)
            if lanes or made.reduction.lanes == 1:
                found.append(_whole(made))
            else:
                left.append(made)
        self.steps[:0] = left
        return found

    def entered(self) -> _Walk:
        """What the next loop holds."""
        if self.steps and isinstance(opened := self.steps[0], Opened):
            self.steps.pop(0)
            return _Walk(list(opened.inner))
        return _Walk([])


def _whole(made: Made) -> Reduction:
    """A reduction with those that were made for it inside of its loops."""
    found: dict[str, Reduction] = {}
    stack = list(made.inner)
    while stack:
        step = stack.pop(0)
        if isinstance(step, Made):
            found.setdefault(step.reduction.value, _whole(step))
        elif isinstance(step, Opened):
            stack[:0] = step.inner
    return replace(made.reduction, body=tuple(found.values()))


def _placed(nodes: Sequence[Node], walk: _Walk) -> tuple[tuple[Node, ...], _Walk]:
    found: list[Node] = []
    for node in nodes:
        if not isinstance(node, Loop):
            if not isinstance(node, Cache):
                found += walk.taken(lanes=True)
            found.append(node)
            continue
        if node.axis.role is Role.PARALLEL:
            body, walk = _placed(node.body, walk)
            found.append(replace(node, body=body))
            continue
        unrolled = over(node.axis, lambda: [_HERE])
        found += walk.taken(lanes=not (_HERE in unrolled[:1] and _has_lanes(node)))
        bodies = []
        for step in unrolled:
            inner = walk if step is _HERE else walk.entered()
            body, after = _placed(node.body, inner)
            bodies.append((*body, *after.taken(lanes=True)))
        found.append(replace(node, body=bodies[0] if bodies else node.body))
    return tuple(found), walk


def _has_lanes(loop: Loop) -> bool:
    """Whether it runs over lanes, or what is written out in it does."""
    if loop.axis.role is Role.VECTOR:
        return True
    return any(_has_lanes(node) for node in loop.body if isinstance(node, Loop))
