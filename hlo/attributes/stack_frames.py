"""The header's stack frame tables: where calls in the user's program were made.

Frames are numbered from 1 by position; a metadata's stack_frame_id points at one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from hlo.attributes.escape import unquoted
from hlo.attributes.scalars import checked_int32
from hlo.attributes.tree import Tree, ints_of, key_of, token_type
from hlo.errors import Violation

T = TypeVar("T")
LOCATION = ("file_name_id", "function_name_id", "line", "end_line", "column", "end_column")
FRAME = ("file_location_id", "parent_frame_id")


class FileLocation(Struct, frozen=True):
    """A range of a file inside a function; ids are places in the tables, from 1."""

    file_name_id: int
    function_name_id: int
    line: int
    end_line: int
    column: int
    end_column: int


class StackFrame(Struct, frozen=True):
    """A location and the frame that called it; parent 0: none (text says parent_frame_id=1)."""

    location: int
    parent: int


class StackFrames(Struct, frozen=True):
    """The four tables."""

    file_names: tuple[str, ...] = ()
    function_names: tuple[str, ...] = ()
    locations: tuple[FileLocation, ...] = ()
    frames: tuple[StackFrame, ...] = ()


def build_stack_frames(tree: Tree) -> StackFrames:
    """From rule tables: four keywords, each followed by its section."""
    files, functions, locations, frames = (p for p in tree.children if not token_type(p))
    return stack_frames(
        _names(files),  # type: ignore[arg-type]  # a tree, as all below
        _names(functions),  # type: ignore[arg-type]  # a tree
        _rows(locations, LOCATION),  # type: ignore[arg-type]  # a tree
        _rows(frames, FRAME),  # type: ignore[arg-type]  # a tree
    )


def stack_frames(
    files: Iterable[str],
    functions: Iterable[str],
    locations: Iterable[Sequence[int]],
    frames: Iterable[Sequence[int]],
) -> StackFrames:
    """The tables of names and of numbers as the text has them, in the order of their fields."""
    return StackFrames(
        tuple(files),
        tuple(functions),
        tuple(FileLocation(*row) for row in locations),
        tuple(StackFrame(at, parent - 1) for at, parent in frames),
    )


def _names(section: Tree) -> list[str]:
    """In order; a number without a string stands for the empty one."""
    names: list[str] = []
    for part in section.children:
        if token_type(part) == "INT":
            names.append("")
        elif token_type(part) == "STRING":
            names[-1] = unquoted(str(part.value))  # type: ignore[attr-defined]  # a token
    return names


def _rows(section: Tree, keys: tuple[str, ...]) -> Iterator[list[int]]:
    """The fields of each row; the numbers in front of the rows say nothing (place counts)."""
    rows: list[dict[str, int]] = []
    for part in section.children:
        if token_type(part):
            rows.append({})
            continue
        key, number = key_of(part), checked_int32(ints_of(part)[0])  # type: ignore[arg-type]  # a tree
        if key not in keys or key in rows[-1]:
            raise Violation("attribute-value", "", f"a field {key}", "once each " + ", ".join(keys))
        rows[-1][key] = number
    for row in rows:
        if len(row) != len(keys):
            raise Violation("attribute-value", "", ", ".join(row) or "no field", ", ".join(keys))
        yield [row[key] for key in keys]


def call_chain(tables: StackFrames, wanted: int) -> tuple[tuple[str, str, FileLocation], ...]:
    """File, function and place of each call that leads to a frame, outermost first."""
    chain = []
    for frame in _chain(tables.frames, wanted):
        at = tables.locations[frame.location - 1]
        file = tables.file_names[at.file_name_id - 1]
        function = tables.function_names[at.function_name_id - 1]
        chain.append((file, function, replace(at, file_name_id=0, function_name_id=0)))
    return tuple(chain)


def interned(tables: StackFrames, ids: Iterable[int]) -> tuple[StackFrames, dict[int, int]]:
    """The tables that these frame ids use, numbered by first use, and the new number of each id.

    A chain with an id outside the tables or with a cycle has no number: 0 (docs/text.md 2.3).
    """
    files: dict[str, int] = {}
    functions: dict[str, int] = {}
    locations: dict[FileLocation, int] = {}
    frames: dict[StackFrame, int] = {}
    known: dict[int, int] = {0: 0}  # callers are shared: each frame is looked at once

    def number(frame: StackFrame, parent: int) -> int:
        if not 1 <= frame.location <= len(tables.locations):
            return 0
        old = tables.locations[frame.location - 1]
        if not 1 <= old.file_name_id <= len(tables.file_names):
            return 0
        if not 1 <= old.function_name_id <= len(tables.function_names):
            return 0
        location = FileLocation(
            _intern(files, tables.file_names[old.file_name_id - 1]),
            _intern(functions, tables.function_names[old.function_name_id - 1]),
            old.line,
            old.end_line,
            old.column,
            old.end_column,
        )
        return _intern(frames, StackFrame(_intern(locations, location), parent))

    numbers: dict[int, int] = {}
    for wanted in ids:
        if wanted in numbers:
            continue
        path, caller = _unknown(tables.frames, wanted, known)
        at = known.get(caller, 0)
        is_whole = caller == 0 or at > 0
        for old in path:
            at = number(tables.frames[old - 1], at) if is_whole else 0
            is_whole = at > 0
            known[old] = at
        numbers[wanted] = known.get(wanted, 0)
    return StackFrames(tuple(files), tuple(functions), tuple(locations), tuple(frames)), numbers


def _unknown(
    frames: tuple[StackFrame, ...], wanted: int, known: dict[int, int]
) -> tuple[list[int], int]:
    """The ids from a frame up to the first known caller, outermost first, and that caller; -1 as
    the caller where the chain is broken.
    """
    path: dict[int, None] = {}
    at = wanted
    while at not in known:
        if at in path or not 1 <= at <= len(frames):
            return [i for i in path if 1 <= i <= len(frames)][::-1], -1
        path[at] = None
        at = frames[at - 1].parent
    return [*path][::-1], at


def _intern(table: dict[T, int], key: T) -> int:
    return table.setdefault(key, len(table) + 1)


def _chain(frames: tuple[StackFrame, ...], wanted: int) -> list[StackFrame]:
    """The frame and its parents, outermost first; empty where the chain is broken."""
    chain: list[StackFrame] = []
    seen: set[int] = set()
    at = wanted
    while at != 0:
        if at in seen or not 1 <= at <= len(frames):
            return []
        seen.add(at)
        chain.append(frames[at - 1])
        at = frames[at - 1].parent
    chain.reverse()
    return chain
