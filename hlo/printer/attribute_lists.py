"""Attribute lists: for each opcode, which attributes it prints, in which order, each value's text.

A list is made once per printing and opcode; the text of a value once per value.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from hlo.ir.instruction import Instruction
from hlo.ops.attributes import Attr
from hlo.ops.instruction_attributes import INSTRUCTION_ATTRS
from hlo.ops.table import OPS
from hlo.printer.options import PrintOptions

REFERRING = ("computation", "computations")  # kinds whose values are printed by name or in full
Keywords = Mapping[str, Mapping[str, bool]]  # by a kind's name, what its print is to be told


class Entry(Struct):
    """One attribute of a list. pieces: `, key=text` by the value's identity, "" where not shown.

    kept: the values that have pieces, so that no other value gets their identity. The kind is
    asked for when there is a value: few programs have most of them.
    """

    key: str
    attr: Attr
    keywords: Keywords
    pieces: dict[int, str] = field(default_factory=dict)
    kept: list[object] = field(default_factory=list)

    def piece(self, value: object) -> str:
        """`, key=text`, or nothing for a value that is not shown."""
        found = self.pieces.get(id(value))
        if found is None:
            found = f", {self.key}={self._text(value)}" if self._is_shown(value) else ""
            self.pieces[id(value)] = found
            self.kept.append(value)
        return found

    def _text(self, value: object) -> str:
        kind = self.attr.kind
        return kind.print(value, **self.keywords.get(kind.name, {}))

    def _is_shown(self, value: object) -> bool:
        if self.attr.printed == "always":
            return True
        if value is None:
            return False
        own = getattr(value, "is_shown", None)  # of kinds whose values know
        if own is not None:
            return bool(own)
        if self.attr.kind.name == "OPERAND_PRECISION":
            return any(word != "default" for word in value)  # type: ignore[attr-defined]  # words
        return self.attr.printed in ("given", "computed") or value != self.attr.default


class AttributeList(Struct, frozen=True):
    """Which attributes an opcode prints, in order.

    own: the opcode's attributes; calls: the keys of those that hold computations, and whether
    they hold several; last: what follows them (is_composite); always: whether something is printed
    of an instruction without attributes; is_computed: whether shapes say some of it.
    """

    own: tuple[Entry, ...]
    calls: tuple[tuple[str, bool], ...]
    last: tuple[Entry, ...]
    always: bool
    is_computed: bool


class AttributeLists:
    """The attribute lists of one printing."""

    def __init__(self, options: PrintOptions) -> None:
        self.options = options
        self._lists: dict[str, AttributeList] = {}
        self._keywords = _keywords_by_kind(options)
        entry = {key: self._entry(key, attr) for key, attr in INSTRUCTION_ATTRS.items()}
        self.replication = entry["parameter_replication"]
        self.sharding = entry["sharding"]
        self.frontend_attributes = entry["frontend_attributes"]
        self.statistics = entry["statistics"]
        self.accuracy = entry["result_accuracy"]
        shown = {
            "origin": options.print_original_value,
            "metadata": options.print_metadata,
            "backend_config": options.print_backend_config,
        }
        self.behind = tuple(entry[key] for key, is_shown in shown.items() if is_shown)

    def __getitem__(self, opcode: str) -> AttributeList:
        listed = self._lists.get(opcode)
        if listed is None:
            listed = self._lists[opcode] = self._plan(opcode)
        return listed

    def _plan(self, opcode: str) -> AttributeList:
        own: list[Entry] = []
        calls: list[tuple[str, bool]] = []
        last: list[Entry] = []
        attrs = OPS[opcode].attrs if opcode in OPS else {}
        for key, attr in attrs.items():
            if attr.printed == "never" or not self._is_wanted(key):
                continue
            if attr.kind.refers in REFERRING:
                calls.append((key, attr.kind.refers == "computations"))
            elif key == "is_composite":
                last.append(self._entry(key, attr))
            else:
                own.append(self._entry(key, attr))
        is_computed = any(e.attr.printed == "computed" for e in own)
        always = is_computed or any(e.attr.printed == "always" for e in own)
        return AttributeList(tuple(own), tuple(calls), tuple(last), always, is_computed)

    def _is_wanted(self, key: str) -> bool:
        if key in INSTRUCTION_ATTRS or key == "async_execution_thread":
            return False
        if key in ("infeed_config", "outfeed_config"):
            return self.options.print_infeed_outfeed_config
        return key != "channel_id" or self.options.print_channel_id

    def _entry(self, key: str, attr: Attr) -> Entry:
        return Entry(key, attr, self._keywords)


def _keywords_by_kind(options: PrintOptions) -> Keywords:
    """Of the kinds whose text depends on an option."""
    back = {"reads_back": options.reads_back}
    return {
        "SHARDING": {"metadata": options.print_metadata, **back},
        "REPLICA_GROUPS": {"expanded": options.print_full_replica_group_list},
        "METADATA": {"raw_scheduling_name": not options.reads_back},
        "ORIGIN": {"escape": options.reads_back},
        "BACKEND_CONFIG": back,
        "FRONTEND_ATTRIBUTES": back,
        "LITERAL": back,
        "DOMAIN": back,
        "DIM_LABELS": back,
        "FLOAT": back,
        "RESULT_ACCURACY": back,
        "STATISTICS": back,
    }


def default_comparison_type(instruction: Instruction) -> str:
    """What compare does without `type`: by the type of its operands."""
    dtype = instruction.operands[0].shape.dtype
    if dtype.is_float or dtype.is_complex:
        return "FLOAT"
    return "SIGNED" if dtype.is_signed else "UNSIGNED"


def own_value(instruction: Instruction, entry: Entry) -> object:
    """The value of an attribute of the opcode; what depends on the shapes is computed."""
    value = instruction.attributes.get(entry.key)
    match instruction.opcode, entry.key:
        case "map", "dimensions":
            return tuple(range(instruction.shape.rank))
        case "outfeed", "outfeed_shape":
            return instruction.operands[0].shape if value is None else value
        case "compare", "type":
            return None if value == default_comparison_type(instruction) else value
    return entry.attr.default if value is None else value
