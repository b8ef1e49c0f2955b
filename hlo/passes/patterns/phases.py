"""Phases: outputs of a window over a base with holes, by what each sees of it.

    Holes --groups--> Phases;  outputs of each group of phases --interleaved--> outputs

Along a dimension whose base is dilated by d, output d * q + r meets base elements at every d-th tap
only. Does not know: what is done with the elements of a window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from hlo.attributes.slices import SliceDim
from hlo.attributes.window import WindowDim
from hlo.ir.instruction import Instruction
from hlo.ops.making import make

# Two phases are joined where the outputs before the first one are at most one in so many.
FEW_BEFORE = 24


class Phases(Struct, frozen=True):
    """Neighbouring phases from `first` on, whose outputs at one q see the same `taps` elements,
    from the one at q - low on. tap: of the last of them, the least one."""

    first: int
    count: int
    taps: int
    low: int
    tap: int


class Holes(Struct, frozen=True):
    """A dimension with holes: its window, its dimensions in the base, in the kernel and the result,
    sizes. before: how many outputs are computed before the first one."""

    window: WindowDim
    number: int
    rhs: int
    out: int
    base: int
    outputs: int
    before: int = 0

    @property
    def phases(self) -> int:
        return self.window.base_dilation

    @property
    def outputs_each(self) -> int:
        """Outputs of a phase, those counted that are beyond both ends."""
        return -(-(self.before + self.outputs) // self.phases)

    @property
    def groups(self) -> tuple[Phases, ...]:
        """The phases, those together that see the same.

        A phase's last tap is one less than that of the phase before it, until it goes from 0 to
        d - 1; there phases see other elements, and one more where the tap falls below the rest of
        the window. So there are three groups at most, whatever the dilation.
        """
        low, d = self.window.pad_low + self.before, self.phases
        starts = sorted({0, (low + 1) % d, (low + 1 - self.window.size) % d})
        found: list[Phases] = []
        for first, end in pairwise([*starts, d]):
            tap = (low - first) % d
            taps, at = max(0, -(-(self.window.size - tap) // d)), (low - first - tap) // d
            if found and (found[-1].taps, found[-1].low) == (taps, at):
                first = found.pop().first  # the group before goes on
            found.append(Phases(first, end - first, taps, at, (low - end + 1) % d))
        return tuple(found)

    def joined(self, *, is_large: bool) -> Holes:
        """Counted from where fewest groups of phases remain, if that is worth the outputs that are
        computed for nothing: what is not large takes longer to run, and to compile, in parts."""
        moved = replace(self, before=self.phases - 1 - self.window.pad_low % self.phases)
        more = FEW_BEFORE * (moved.outputs_each - self.outputs_each)
        is_dear = is_large and self.phases == 2 and more > self.outputs_each
        return self if is_dear or len(moved.groups) >= len(self.groups) else moved

    def part(self, phases: Phases) -> WindowDim:
        """The window of their own convolution."""
        n = phases.taps
        return WindowDim(n, 1, phases.low, self.outputs_each - 1 + n - self.base - phases.low)


def interleaved(
    root: Instruction,
    holes: Sequence[Holes],
    parts: Mapping[tuple[Phases, ...], Instruction],
    places: Sequence[int],
) -> Instruction:
    """The outputs of all phases, each where it belongs: from the last dimension on. places: the
    dimension of a part that has the phases of each dimension with holes.
    """
    sizes = list(root.shape.dims)
    for n in range(len(holes) - 1, -1, -1):
        h = holes[n]
        sizes[h.out] = h.outputs_each * h.phases
        joined: dict[tuple[Phases, ...], Instruction] = {}
        for outer in dict.fromkeys(phases[:n] for phases in parts):
            each = [parts[*outer, p] for p in h.groups]
            is_one = len(each) == 1
            both = each[0] if is_one else make(root, "concatenate", *each, dimensions=(places[n],))
            joined[outer] = both
        parts = joined
    (whole,) = parts.values()
    whole = make(root, "reshape", whole, shape=root.shape.with_dims(sizes))
    if whole.shape.dims == root.shape.dims:
        return whole
    ends = [SliceDim(0, n) for n in root.shape.dims]
    for h in holes:
        ends[h.out] = SliceDim(h.before, h.before + h.outputs)
    return make(root, "slice", whole, slice=tuple(ends))
