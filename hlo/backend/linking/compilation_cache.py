"""Compilation cache: what a module compiled to, on disk, found before any pass or stage runs.

    Module, options --key--> name; name --load--> link table and object code

The key covers all of the module that verification and compilation look at, the options, the machine
and the sources of this package, so that a changed compiler never finds what the old one made, and
what is found was verified when it was made. Programs with host steps, which are Python, are not
kept, nor are those with large constants.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

import hlo
from hlo import cache
from hlo.backend.linking.link_table import LinkTable
from hlo.hashing import hasher
from hlo.ir.computation import Computation
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.process.once import once

MOST_CONSTANT_BYTES = 16 * 1024 * 1024
# Folders of this package that compilation does not use: what they make of a text is the module,
# which has a digest of its own.
UNASKED = frozenset({"cli", "parser", "printer", "tools", "__pycache__"})
# Attributes that compilation does not look at.
UNREAD = frozenset({"metadata", "statistics", "origin"})


class CachedProgram(Struct, frozen=True):
    """What was kept of a program."""

    table: LinkTable
    bodies: list[bytes]


def key(module: Module, *options: str) -> str:
    """The name of a module compiled with these options. About 5 us an instruction."""
    return "p" + cache.key(module_digest(module), sources_digest(), sys.version, *options)


@once
def sources_digest(*rooms: str) -> str:
    """A digest of the names, sizes and times of this package's files, but for what reads and
    writes texts (UNASKED). rooms: of these folders, and of what stands in none, alone."""
    digest = hasher()
    root = hlo.__path__[0]
    waiting = [root, *(f"{root}/{room}" for room in rooms)]
    while waiting:
        folder = waiting.pop()
        rows: list[tuple[str, int, int]] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                name = entry.name
                if name.endswith(".py"):
                    status = entry.stat()
                    rows.append((name, status.st_size, status.st_mtime_ns))
                elif not rooms and name not in UNASKED and entry.is_dir():
                    waiting.append(f"{folder}/{name}")
        waiting.sort()
        digest.update(f"{folder} {sorted(rows)}".encode())
    return digest.hexdigest()


def module_digest(module: Module) -> str:
    """A digest of header, names, instructions and constants. Of a broken module too: edges that
    lead out of it count as -1."""
    header = [module.name, *(f"{n}={v!r}" for n, v in sorted(module.attributes.items()))]
    digest = hasher("\n".join(header).encode())
    number = {computation: n for n, computation in enumerate(module.computations)}
    shapes: dict[int, str] = {}

    def written(value: object) -> str:
        match value:
            case Computation():
                return f"@{number.get(value, -1)}"
            case Literal():
                return _literal(value)
            case tuple():
                return "(" + ",".join(map(written, value)) + ")"
        return repr(value)

    for computation in module.computations:
        head = f"{computation.name} {computation is module.entry} {computation.execution_thread}\n"
        digest.update(head.encode())
        place = {instruction: n for n, instruction in enumerate(computation.instructions)}
        for instruction, n in place.items():
            shape = shapes.get(id(instruction.shape))
            if shape is None:
                shape = shapes[id(instruction.shape)] = str(instruction.shape)
            operands = [place.get(o, -1) for o in instruction.operands]
            row = [f"{instruction.name} {n} {instruction.opcode} {shape} {operands}"]
            for name, value in instruction.attributes.items():
                if name == "control-predecessors":
                    row.append(f"after {[place.get(p, -1) for p in value]}")  # type: ignore[attr-defined]  # instructions
                elif name not in UNREAD:
                    row.append(f"{name}={written(value)}")
            digest.update("|".join(row).encode())
        root = place.get(computation.root, -1) if place else -1
        digest.update(f"root {root}\n".encode())
    return digest.hexdigest()


def _literal(literal: Literal) -> str:
    if isinstance(literal.value, tuple):
        return "(" + ",".join(map(_literal, literal.value)) + ")"
    if literal.value is None:
        return "{...}"
    data = literal.value.tobytes()
    return data.hex() if len(data) <= 64 else hasher(data).hexdigest()


def store(name: str, table: LinkTable, bodies: Sequence[bytes]) -> None:
    """Keep a program under its key, unless its constants are large."""
    if sum(c.nbytes for c in table.constants) > MOST_CONSTANT_BYTES:
        return
    cache.store(name, msgspec.msgpack.encode((table, list(bodies)), enc_hook=_octets))


def _octets(array: object) -> bytes:
    assert isinstance(array, np.ndarray), f"a table holds a {type(array).__name__}"
    return array.tobytes()


def _array(kind: type, octets: object) -> np.ndarray:
    assert kind is np.ndarray, "a table's other types are msgspec's own"
    if not isinstance(octets, bytes):
        raise ValueError("an array is kept as its bytes")
    return np.frombuffer(octets, np.uint8)


@once
def _decoder() -> msgspec.msgpack.Decoder[tuple[LinkTable, list[bytes]]]:
    return msgspec.msgpack.Decoder(tuple[LinkTable, list[bytes]], dec_hook=_array)


def load(name: str) -> CachedProgram | None:
    """What is kept under a key; None when there is nothing whole."""
    data = cache.load(name)
    if data is None:
        return None
    try:
        table, bodies = _decoder().decode(data)
    except msgspec.DecodeError:
        return None
    arena = table.arena.view(np.int64).reshape(-1, 3)
    return CachedProgram(replace(table, arena=arena), bodies)
