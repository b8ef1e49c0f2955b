"""Repetition: the equal parts of a computation that follow each other, as a network's layers do.

    computation --repetition--> strands: what each layer has at one place, layer after layer

A *shift* takes each instruction of a layer to its like in the next layer. It is guessed where the
sequence of instructions repeats, and followed through operands and users, so that parts that the
sequence tells less of (gradients, which go through the layers backwards) are found too. Following
it from its beginning gives *strands*; a strand's members are labelled by layers, and an operand of
a member is the member of a strand at a fixed distance in layers, or the same for all layers.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from hlo.analysis.fingerprint import SILENT, Fingerprints
from hlo.ir.instruction import Instruction
from hlo.ops.effects import has_effect

Pair = tuple[Instruction, Instruction]
SHORTEST_STRETCH, LONGEST_STRETCH = 8, 32  # Instructions that are compared as one.
MOST_TRIED = 3  # Distances at which something repeats.
MOST_DISTANCES = 4  # Of each length of stretches that are tried.


class Strand(Struct, eq=False):
    """What layers have at one place, the first of them in the layer that `first` is."""

    members: list[Instruction]
    first: int = 0

    @property
    def last(self) -> int:
        return self.first + len(self.members) - 1

    def at(self, layer: int) -> Instruction | None:
        """The member of a layer; None beyond the ends."""
        place = layer - self.first
        return self.members[place] if 0 <= place < len(self.members) else None

    def member(self, layer: int) -> Instruction:
        """The member of a layer that the strand is known to have."""
        assert self.first <= layer <= self.last, f"layer {layer} of {self.first} to {self.last}"
        return self.members[layer - self.first]


class Strands(Struct, eq=False):
    """Strands, and where each of their members stands."""

    all: list[Strand]
    of: dict[Instruction, Strand]
    layer: dict[Instruction, int]


class Keys:
    """A number for each instruction, equal where opcode, shape, attributes and called computations
    are. Which parameter, and which element of one, it is does not count: layers have their own.
    """

    def __init__(self) -> None:
        self._fingerprints = Fingerprints()
        self._numbers: dict[object, int] = {}

    def all(self, order: Iterable[Instruction]) -> dict[Instruction, int]:
        """The numbers of some instructions. Most have no attribute that counts."""
        numbers = self._numbers
        found: dict[Instruction, int] = {}
        for instruction in order:
            key: object = (instruction.opcode, instruction.shape)
            if not SILENT.issuperset(instruction.attributes) and not is_own(instruction):
                key = self._fingerprints.alone(instruction)
            found[instruction] = numbers.setdefault(key, len(numbers))
        return found


def is_own(instruction: Instruction) -> bool:
    """Whether it is a parameter or an element of one: what a layer has for itself."""
    if instruction.opcode == "get-tuple-element":
        return instruction.operands[0].opcode == "parameter"
    return instruction.opcode == "parameter"


def repeated(
    order: Sequence[Instruction], keys: Mapping[Instruction, int], fewest: int
) -> Iterator[list[Pair]]:
    """Pairs of a stretch of a sequence that is equal to the one a layer further on, and what else
    repeats so, the longest first. Each is of `fewest` layers at least.

    Constants and what is made of them or of parameters alone stand where they are first read, often
    for all layers at once, and are no part of the sequence. Not all that repeats is layers that
    read each other: parameters' updates stand by their names.
    """
    sequence = [i for i in order if any(o.operands for o in i.operands)]
    numbers = [keys[i] for i in sequence]
    found = [(*_longest(numbers, distance), distance) for distance in _distances(numbers)]
    for length, begin, distance in sorted(found, reverse=True)[:MOST_TRIED]:
        if length >= (fewest - 1) * distance:
            yield [(sequence[n], sequence[n + distance]) for n in range(begin, begin + length)]


def _distances(numbers: Sequence[int]) -> list[int]:
    """Distances between stretches of one length that are equal, the most frequent ones, short ones
    first: parts of a layer may be alike, longer stretches are not unless layers are.
    """
    votes: Counter[int] = Counter()
    stretches = list(numbers)
    length = 1
    while length < LONGEST_STRETCH and len(stretches) > length:
        known: dict[tuple[int, int], int] = {}
        halves = zip(stretches, stretches[length:], strict=False)
        stretches = [known.setdefault(pair, len(known)) for pair in halves]
        length *= 2
        if length >= SHORTEST_STRETCH:
            votes += Counter(dict(_steps(stretches).most_common(MOST_DISTANCES)))
    return sorted(votes)


def _steps(numbers: Sequence[int]) -> Counter[int]:
    """How often each distance is one between a number and the next equal one."""
    seen: dict[int, int] = {}
    votes: Counter[int] = Counter()
    for place, number in enumerate(numbers):
        if number in seen:
            votes[place - seen[number]] += 1
        seen[number] = place
    return votes


def _longest(numbers: Sequence[int], distance: int) -> tuple[int, int]:
    """How long the longest stretch is that repeats after a distance, and where it begins."""
    best = begin = length = 0
    for place, (one, other) in enumerate(zip(numbers, numbers[distance:], strict=False)):
        length = length + 1 if one == other else 0
        if length > best:
            best, begin = length, place - length + 1
    return best, begin


def shift(seeds: Iterable[Pair], keys: Mapping[Instruction, int]) -> dict[Instruction, Instruction]:
    """The seeds and all that follows from them: operands of what is alike stand for each other, and
    so do users where there is one of a kind. O(edges).
    """
    onward: dict[Instruction, Instruction] = {}
    taken: set[Instruction] = set()
    waiting = deque(seeds)
    while waiting:
        one, other = waiting.popleft()
        if one is other or one in onward or other in taken or keys[one] != keys[other]:
            continue
        onward[one] = other
        taken.add(other)
        waiting.extend(zip(one.operands, other.operands, strict=False))
        if one.users and other.users:
            waiting.extend(_users(one, other, keys))
    return onward


def _users(one: Instruction, other: Instruction, keys: Mapping[Instruction, int]) -> list[Pair]:
    """The users of two that are alike which are the only ones of their kind."""
    if len(one.users) == len(other.users) == 1:
        return [(next(iter(one.users)), next(iter(other.users)))]
    first, second = _by_kind(one, keys), _by_kind(other, keys)
    return [
        (user, like)
        for kind, user in first.items()
        if user is not None and (like := second.get(kind)) is not None
    ]


def _by_kind(
    value: Instruction, keys: Mapping[Instruction, int]
) -> dict[tuple[int, int], Instruction | None]:
    """A value's users by what they are and which operand it is; None where there are several."""
    found: dict[tuple[int, int], Instruction | None] = {}
    for user in value.users:
        kind = keys[user], user.operands.index(value)
        found[kind] = None if kind in found else user
    return found


def strands(
    onward: Mapping[Instruction, Instruction], start: Callable[[Strands], Mapping[Strand, int]]
) -> Strands:
    """A shift's strands. start: the first layers of those that are known; the others' follow, as
    users and operands of theirs are in the same layer unless known to be in another one.
    """
    later = set(onward.values())
    found = Strands([], {}, {})
    for first in onward:
        if first not in later:
            members = [first]
            while members[-1] in onward:
                members.append(onward[members[-1]])
            found.all.append(Strand(members))
            found.of.update(dict.fromkeys(members, found.all[-1]))
    known = dict(start(found))
    for strand, layer in known.items():
        strand.first = layer
    _label(found, known)
    return having(known)


def having(some: Iterable[Strand]) -> Strands:
    """Some strands, whose layers are known."""
    found = Strands(list(some), {}, {})
    for strand in found.all:
        found.of.update(dict.fromkeys(strand.members, strand))
        found.layer.update(zip(strand.members, range(strand.first, strand.last + 1), strict=True))
    return found


def _label(found: Strands, known: dict[Strand, int]) -> None:
    waiting = deque(known)
    while waiting:
        strand = waiting.popleft()
        middle = len(strand.members) // 2
        member = strand.members[middle]
        for neighbour in (*member.operands, *member.users):
            other = found.of.get(neighbour)
            if other is not None and other not in known:
                other.first = strand.first + middle - other.members.index(neighbour)
                known[other] = other.first
                waiting.append(other)


def reached(found: Strands, order: Iterable[Instruction]) -> dict[Instruction, tuple[int, int]]:
    """The first and the last layer that values beside the layers are computed from; not those
    that are computed from none.
    """
    layers: dict[Instruction, tuple[int, int]] = {}
    for value in order:
        if value not in found.of:
            read = [
                layer
                for o in value.operands
                for layer in ((found.layer[o],) if o in found.of else layers.get(o, ()))
            ]
            if read:
                layers[value] = min(read), max(read)
    return layers


def is_regular(found: Strands, layers: range, order: Iterable[Instruction]) -> bool:
    """Whether what members of a layer read is what those of the next one read, a layer before, or
    something that no layer gives.
    """
    of, layer = found.of, found.layer
    computed = reached(found, order)
    for strand in found.all:
        for at in layers:
            one, other = strand.at(at), strand.at(at + 1)
            if one is None or other is None:
                return False
            for before, after in zip(one.operands, other.operands, strict=True):
                if before in of:
                    if of.get(after) is not of[before] or layer[after] != layer[before] + 1:
                        return False
                elif before is not after or before in computed:
                    return False
    return True


def is_packing(instruction: Instruction) -> bool:
    """Whether it is the tuple of a computation's results."""
    return instruction.opcode == "tuple" and instruction.is_root


def crosses(order: Iterable[Instruction], found: Strands, border: int) -> bool:
    """Whether something beside the strands reads one on both sides of the border behind a layer.

    The tuple of results aside. A sum over layers that is one instruction is such a thing: with more
    layers it would be another one.
    """
    sides: dict[Instruction, dict[Strand, int]] = {}
    for instruction in order:
        if instruction in found.of or is_packing(instruction):
            continue
        read: dict[Strand, int] = {}
        for operand in instruction.operands:
            strand = found.of.get(operand)
            if strand is not None:
                side = 1 if found.layer[operand] <= border else 2
                read[strand] = read.get(strand, 0) | side
            for strand, side in sides.get(operand, {}).items():
                read[strand] = read.get(strand, 0) | side
        if 3 in read.values():
            return True
        if read:
            sides[instruction] = read
    return False


def has_side_effects(found: Strands) -> bool:
    """Whether a member does more than to give a value, or waits for what it does not read."""
    return any(
        has_effect(member) or "control-predecessors" in member.attributes
        for strand in found.all
        for member in strand.members[:1]
    )
