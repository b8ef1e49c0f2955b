"""Module: computations in order of completion, one of them the entry, the header's attributes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import hlo
from hlo.ir.computation import Computation
from hlo.ir.instruction import NO_ATTRIBUTES, Attributes

if TYPE_CHECKING:
    from hlo.source import Source

FEW_LINES, MOST_LINES = 40, 2000  # that a notebook shows unfolded, and at all


class Module:
    """A whole program.

    computations: callees before callers (docs/text.md 8.5).
    attributes: the header's attributes by HLO's name (is_scheduled, input_output_alias,
    entry_computation_layout, replica_count, ...), only those given.
    stack_frames: the tables that metadata's stack_frame_id points into, or None.
    """

    __slots__ = (
        "_next", "_taken", "attributes", "computations", "entry", "name", "source", "stack_frames",
    )  # fmt: skip

    def __init__(self, name: str, attributes: Attributes = NO_ATTRIBUTES) -> None:
        self.name = name
        self.attributes: Attributes = attributes
        self.computations: list[Computation] = []
        self.entry: Computation = None  # type: ignore[assignment]  # set before a module is handed out
        self.stack_frames: object | None = None
        self.source: Source | None = None
        self._taken: set[str] | None = None  # names in use, known from the first adoption on
        self._next: dict[str, int] = {}  # the last number tried for a name in use

    @property
    def has_dynamic_sizes(self) -> bool:
        """Whether any value has a dimension that is known at run time only."""
        shapes = (i.shape for c in self.computations for i in c.instructions)
        return any(True in s.dynamic or (s.elements and s.is_dynamic) for s in shapes)

    def __repr__(self) -> str:
        return f"<module {self.name}, {len(self.computations)} computations>"

    def __str__(self) -> str:
        return self.to_text()

    @property
    def version(self) -> tuple[object, ...]:
        """What equals no other version of a module, before or after an edit."""
        computations = tuple((c.name, c.state) for c in self.computations)
        return self.name, dict(self.attributes), self.entry.name, computations

    def add(self, computation: Computation, *, entry: bool = False) -> Computation:
        assert computation.module is None, f"{computation.name} already has a module"
        computation.module = self
        self.computations.append(computation)
        if entry:
            self.entry = computation
        return computation

    def adopt(
        self,
        computation: Computation,
        *,
        before: Computation | None = None,
        after: Computation | None = None,
    ) -> Computation:
        """Add a computation under a name that no other one has; last, unless told beside which."""
        computation.name = self._free_name(computation.name)
        self.add(computation)
        neighbour = before or after
        if neighbour is not None:
            place = self.computations.index(neighbour) + (after is not None)
            self.computations.insert(place, self.computations.pop())
        return computation

    def _free_name(self, name: str) -> str:
        """The name, with the first number that makes it free where it is not.

        Names are looked at once, and again after computations went: modules of thousands of
        computations adopt thousands.
        """
        if self._taken is None or len(self._taken) != len(self.computations):
            self._taken = {c.name for c in self.computations}
            self._next = {}
        found, number = name, self._next.get(name, 0)
        while found in self._taken:
            number += 1
            found = f"{name}.{number}"
        self._next[name] = number
        self._taken.add(found)
        return found

    def remove(self, computation: Computation) -> None:
        """Take out a computation that nothing calls any more."""
        self.remove_all((computation,))

    def remove_all(self, computations: Iterable[Computation]) -> None:
        """Take out computations that nothing calls any more."""
        gone = set(computations)
        assert self.entry not in gone, "the entry stays"
        if not gone:
            return
        self.computations = [c for c in self.computations if c not in gone]
        for computation in gone:
            computation.module = None
        self._taken = None

    @property
    def is_scheduled(self) -> bool:
        return bool(self.attributes.get("is_scheduled", False))

    def clone(self) -> Module:
        """A deep copy that shares only values (shapes, literals, attributes)."""
        copy: Module = hlo.clone_module(self)  # it stands above, as the printer does
        return copy

    def __deepcopy__(self, memo: dict[int, object]) -> Module:
        return self.clone()

    def __reduce__(self) -> tuple[object, ...]:
        """Its text, which reads back; places in the text are then those of this one."""
        return hlo.parse, (self.to_text(), f"{self.name}.hlo")

    def _repr_html_(self) -> str:
        """For notebooks: the text, folded where it is long, and cut where it is very long."""
        import html  # for notebooks alone

        lines = self.to_text().rstrip().split("\n")
        text = html.escape("\n".join(lines[:MOST_LINES]))
        rest = f"\n... {len(lines) - MOST_LINES} lines more" if len(lines) > MOST_LINES else ""
        unfolded = " open" if len(lines) <= FEW_LINES else ""
        count = sum(len(c) for c in self.computations)
        head = f"{html.escape(self.name)}: {count:,} instructions"
        return f"<details{unfolded}><summary>{head}</summary><pre>{text}{rest}</pre></details>"

    def to_text(self, options: object | None = None) -> str:
        """The module's text; `options` is a PrintOptions, by default one whose text reads back."""
        return str(hlo.print_module(self, options))  # the printer stands above what it prints
