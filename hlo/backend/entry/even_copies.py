"""Even copies: what kernels of a loop copy, in pieces of the size that its other kernels work with.

    load <32 x i16>, store   =>   two of <16 x i16>, where f16 arithmetic takes 16 at a time

LLVM keeps an array in registers where all accesses are alike. A wide load of what was stored in
parts does worse than go through memory: it waits until all parts are there.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

MOST_PIECES = 4

_NAME = re.compile(r"%[\w.$-]+")
_ACCESS = re.compile(r"(?:load|store) (?:<(\d+) x (\w+)>|(float|double|half|i\d+))")
_LOAD = re.compile(r"^  (%[\w.]+) = load <(\d+) x (\w+)>, ptr (%[\w.]+), align 1$", re.MULTILINE)
_STORE = re.compile(r"^  store <(\d+) x (\w+)> (%[\w.]+), ptr (%[\w.]+), align 1$", re.MULTILINE)


def even(texts: Sequence[str]) -> list[str]:
    """The kernels' texts with their copies cut. O(length of the texts)."""
    copied = [_copied(text) for text in texts]
    others: dict[str, set[int]] = defaultdict(set)  # sizes of what is no copy
    for text, values in zip(texts, copied, strict=True):
        for line in text.split("\n"):
            found = _ACCESS.search(line)
            if found is None or not values.isdisjoint(_NAME.findall(line)):
                continue
            lanes, element, scalar = found.groups()
            others[element or scalar].add(int(lanes or 1))
    return [_cut(t, values, others) for t, values in zip(texts, copied, strict=True)]


def _copied(text: str) -> set[str]:
    """Vectors that are loaded and stored, and nothing else."""
    loaded = {match[1] for match in _LOAD.finditer(text)}
    stored = {match[3] for match in _STORE.finditer(text)}
    both = loaded & stored
    if not both:
        return both
    uses = Counter(_NAME.findall(text))
    return {value for value in both if uses[value] == 2}


def _cut(text: str, copied: set[str], others: dict[str, set[int]]) -> str:
    def pieces(lanes: str, element: str) -> int:
        sizes = [n for n in others.get(element, ()) if int(lanes) % n == 0]
        return int(lanes) // max(sizes) if sizes and int(lanes) <= MOST_PIECES * max(sizes) else 1

    def part(value: str, element: str, size: int, address: str, n: int, what: str) -> list[str]:
        place, kind = f"{value}.{what}{n}", f"<{size} x {element}>" if size > 1 else element
        moved = f"{kind}, ptr {place}, align 1" if what == "l" else f"{kind} {value}.l{n}v"
        return [
            f"  {place} = getelementptr inbounds {element}, ptr {address}, i64 {n * size}",
            f"  {place}v = load {moved}"
            if what == "l"
            else f"  store {moved}, ptr {place}, align 1",
        ]

    def load(match: re.Match[str]) -> str:
        value, lanes, element, address = match.groups()
        count = pieces(lanes, element)
        if value not in copied or count == 1:
            return match[0]
        size = int(lanes) // count
        parts = [part(value, element, size, address, n, "l") for n in range(count)]
        return "\n".join(line for lines in parts for line in lines)

    def store(match: re.Match[str]) -> str:
        lanes, element, value, address = match.groups()
        count = pieces(lanes, element)
        if value not in copied or count == 1:
            return match[0]
        size = int(lanes) // count
        parts = [part(value, element, size, address, n, "s") for n in range(count)]
        return "\n".join(line for lines in parts for line in lines)

    return _STORE.sub(store, _LOAD.sub(load, text)) if copied else text
