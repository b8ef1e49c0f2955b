"""Programs from files, whatever form they have: told by content, listed, chosen, read.

    path --candidates--> what is in it, by name --chosen, read--> Program: a module, what was
                                                              recorded of a run of it

A path is a file, `-` for standard input, an archive, or a folder such as XLA's dumps.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from hlo.errors import HloError
from hlo.formats import stablehlo
from hlo.formats.literal_message import literal_of
from hlo.formats.log_text import modules_in
from hlo.formats.message import Message
from hlo.formats.module_text import module_of
from hlo.formats.program import HEADER, Program, shown_name
from hlo.formats.recognise import LOOKED_AT, Form, message_in, module_in, recognised
from hlo.formats.unpacking import GZIP, ZIP, unpacked
from hlo.ir.literal import Literal
from hlo.parser.parse import parse
from hlo.tools.files.reading import decode, read_bytes, read_head

MOST_LISTED = 20
MOST_FILES = 100_000
# What XLA calls the files of its dumps: module_0001.jit_f.before_optimizations.txt.
DUMPED = re.compile(
    r"(?:[\d.]+\.)?(?P<module>module_\d+.*?)\.(?P<stage>before_optimizations|\w+_after_optimizations"
    r"|\d{4}\..+)\.(?:txt|hlo|hlo\.pb|pb|pbtxt)$"
)
BEFORE, AFTER = "before_optimizations", "_after_optimizations"


class Candidate(Struct, frozen=True):
    """A program that can be read. form: what it is held as."""

    name: str
    form: Form
    read: Callable[[], Program]


def candidates(path: str, data: bytes | None = None) -> list[Candidate]:
    """The programs in a path, in the order of their names; those of a text as they stand.

    data: the bytes of the file, where they are known. Raises HloError where it cannot be read.
    """
    if path != "-" and os.path.isdir(path):
        return list(_in_folder(path))
    name = shown_name(path)
    if data is None:
        data = read_bytes(path)
    if not data.startswith((GZIP, ZIP)):
        return list(_in_bytes(data, name))
    files = list(unpacked(data, name))
    if len(files) == 1:
        return list(_in_bytes(files[0][1], files[0][0]))
    return [c for inner, content in files if _is_module(content) for c in _in_bytes(content, inner)]


def chosen(found: Sequence[Candidate], path: str, wanted: str | None) -> Candidate:
    """One of the candidates. Raises HloError that names them where it is not clear which."""
    if wanted is not None:
        exact = [c for c in found if c.name == wanted]
        named = exact or [c for c in found if wanted in c.name]
    else:
        named = list(found)
    if len(named) > 1:
        named = _preferred(named)
    if len(named) == 1:
        return named[0]
    which = "" if wanted is None else f" named {wanted!r}"
    if not named:
        there = f"; it has {_listed(found)}" if found else ""
        raise HloError("file", f"{path} has no module{which}, expected one{there}")
    raise HloError(
        "file",
        f"{path} has {len(named)} modules{which}, expected one: {_listed(named)}",
        help="--module=NAME takes a name or a part of one; `hlo-opt list` shows all",
    )


def _listed(found: Sequence[Candidate]) -> str:
    names = [c.name for c in found[:MOST_LISTED]]
    more = f" and {len(found) - MOST_LISTED} more" if len(found) > MOST_LISTED else ""
    return ", ".join(names) + more


def _preferred(named: list[Candidate]) -> list[Candidate]:
    """Of a dump's files of one module, that of the program as it came in; text before messages."""
    before = [c for c in named if f".{BEFORE}." in c.name] or named
    keys = {_key(c.name) for c in before}
    if len(keys) > 1:
        return before
    texts = [c for c in before if c.form is Form.HLO]
    return texts[:1] if len(texts) == 1 else before


def _key(name: str) -> str:
    match = DUMPED.match(os.path.basename(name))
    return f"{match['module']}.{match['stage']}" if match else name


def pairs(names: Sequence[str]) -> dict[str, dict[str, list[str]]]:
    """A dump's files by module and by stage: what belongs together before and after."""
    found: dict[str, dict[str, list[str]]] = {}
    for name in names:
        match = DUMPED.match(os.path.basename(name))
        if match:
            found.setdefault(match["module"], {}).setdefault(match["stage"], []).append(name)
    return found


# -- what bytes and folders hold ---------------------------------------------------------------


def _in_folder(path: str) -> Iterator[Candidate]:
    """The files of a folder that are modules, by their first bytes; the others are left out."""
    try:
        names = sorted(entry.name for entry in os.scandir(path) if entry.is_file())
    except OSError as error:
        raise HloError("file", f"{path} cannot be read: {error.strerror or error}") from None
    if len(names) > MOST_FILES:
        raise HloError("limit", f"{path} has {len(names):,} files, expected {MOST_FILES:,} at most")
    for name in names:
        file = os.path.join(path, name)
        head = read_head(file, LOOKED_AT)
        if head.startswith((GZIP, ZIP)) or _is_module(head):
            yield from _in_file(file, name, head)


def _in_file(file: str, name: str, head: bytes) -> Iterator[Candidate]:
    """Candidates of a file in a folder, read when one is chosen; of an archive what is in it."""
    if head.startswith((GZIP, ZIP)):
        for inner, content in unpacked(read_bytes(file), name):
            if _is_module(content):
                yield from _in_bytes(content, inner)
        return
    yield Candidate(name, recognised(head), lambda: chosen(candidates(file), file, None).read())


def _is_module(head: bytes) -> bool:
    """Whether bytes begin as a module does; of a message only its first field shows."""
    form = recognised(head)
    if form is Form.MESSAGE:
        return head.startswith(b"\n")
    if form is Form.HLO:
        text = decode(head[:LOOKED_AT])
        return HEADER.match(text.lstrip()) is not None
    return True


def _in_bytes(data: bytes, name: str) -> Iterator[Candidate]:
    form = recognised(data)
    if form is not Form.HLO:
        yield Candidate(name, form, lambda: _read(data, form, name))
        return
    modules = modules_in(decode(data))
    for number, module in enumerate(modules):
        label = name if len(modules) == 1 else module.name
        if [m.name for m in modules].count(module.name) > 1:
            label = f"{module.name}#{number}"
        yield Candidate(label, form, _parsing(module.text, name))


def _parsing(text: str, name: str) -> Callable[[], Program]:
    return lambda: Program(parse(text, name))


def _read(data: bytes, form: Form, name: str) -> Program:
    """A program that is no HLO text."""
    if form is Form.BYTECODE:
        return Program(module_of(stablehlo.message_of_mlir(data), name))
    if form is Form.MLIR:
        return Program(module_of(stablehlo.message_of_mlir(decode(data).encode()), name))
    return program_of(message_in(data, form, name), name)


def program_of(message: Message, name: str) -> Program:
    """The program of a message of any kind that holds one, with what was recorded."""
    held = module_in(message)
    if held is None:
        raise HloError("message", f"{name} holds no module with computations, expected one")
    module = module_of(held, name)
    given: list[Message] | None = None
    result: object = None
    if message.type.name == "HloSnapshot":
        given = message.children("arguments")
        result = _value(message.child("result")) if "result" in message else None
    elif message.type.name == "HloUnoptimizedSnapshot" and message.children("partitions"):
        given = message.children("partitions")[0].children("arguments")
    if not given and module.entry.parameters:
        return Program(module, None, result)
    arguments = None if given is None else tuple(_value(literal) for literal in given)
    return Program(module, arguments, result)


def _value(message: Message) -> object:
    return _plain(literal_of(message))


def _plain(literal: Literal) -> object:
    """Calls itself for each level of tuples."""
    if isinstance(literal.value, tuple):
        return tuple(_plain(part) for part in literal.value)
    return literal.value
