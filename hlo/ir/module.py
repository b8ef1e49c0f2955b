"""Module: computations in order of completion, one of them the entry, the header's attributes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from hlo.ir.computation import Computation
from hlo.ir.instruction import NO_ATTRIBUTES, Attributes

if TYPE_CHECKING:
    from hlo.source import Source


class Module:
    """A whole program.

    computations: module order, callees before callers (HLO_TEXT.md 8.5 "M order").
    attributes: the header's attributes by HLO's name (is_scheduled, input_output_alias,
    entry_computation_layout, replica_count, ...), only those given.
    stack_frames: the tables that metadata's stack_frame_id points into, or None.
    """

    __slots__ = ("attributes", "computations", "entry", "name", "source", "stack_frames")

    def __init__(self, name: str, attributes: Attributes = NO_ATTRIBUTES) -> None:
        self.name = name
        self.attributes: Attributes = attributes
        self.computations: list[Computation] = []
        self.entry: Computation = None  # type: ignore[assignment]  # set before a module is handed out
        self.stack_frames: object | None = None
        self.source: Source | None = None

    def __repr__(self) -> str:
        return f"<module {self.name}, {len(self.computations)} computations>"

    def __str__(self) -> str:
        return self.to_text()

    def add(self, computation: Computation, *, entry: bool = False) -> Computation:
        assert computation.module is None, f"{computation.name} already has a module"
        computation.module = self
        self.computations.append(computation)
        if entry:
            self.entry = computation
        return computation

    def adopt(self, computation: Computation) -> Computation:
        """Append a computation under a name that no other one has."""
        taken = {c.name for c in self.computations}
        root, number = computation.name, 0
        while computation.name in taken:
            number += 1
            computation.name = f"{root}.{number}"
        return self.add(computation)

    def remove(self, computation: Computation) -> None:
        assert computation is not self.entry, "the entry stays"
        self.computations.remove(computation)
        computation.module = None

    @property
    def is_scheduled(self) -> bool:
        return bool(self.attributes.get("is_scheduled", False))

    def to_text(self, options: object | None = None) -> str:
        """The module's text; `options` is a PrintOptions, by default one whose text reads back."""
        if not PRINTERS:
            import_module("hlo.printer.printer")  # enters itself; by name, for it stands above
        text: str = PRINTERS[0](self, options)
        return text


# The printer stands above the data it prints, so it enters itself here when it is imported.
PRINTERS: list = []  # type: ignore[type-arg]  # one function (Module, options) -> str
