"""Lanes that are rarely seen, behind a branch: what they need costs the others nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlo.backend.math.term import Term


def unless_rare(
    rare: Term, results: Sequence[Term], others: Callable[[], Sequence[Term]]
) -> list[Term]:
    """The results; where the mask holds in any lane, `others()` instead, in all of them.

    Only inside an outlined function: it opens basic blocks.
    """
    w = rare.w
    before, slow, after = (w.new_label(name) for name in ("before", "slow", "after"))
    found = rare.any()
    w.branch(before)
    w.label(before)
    w.branch_if(found.value, slow, after)
    w.label(slow)
    with w.region():
        instead = others()
    last = w.new_label("patched")
    w.branch(last)
    w.label(last)
    w.branch(after)
    w.label(after)
    merged = []
    for fast, slower in zip(results, instead, strict=True):
        ways = (fast.value, before), (slower.value, last)
        merged.append(fast.of(w.phi(fast.type, *ways, is_tight=True).value))
    return merged
