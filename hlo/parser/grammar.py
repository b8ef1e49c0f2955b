"""The compiled grammar: Lark's LALR tables, made once and kept between processes.

    hlo.lark + attributes.lark + one `value` alternative per attribute kind --Lark--> tables

The cache is one file in the user's cache folder, named after all that the tables depend on; a file
that cannot be read or written is ignored.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
import sys
import tempfile
from importlib import resources
from pathlib import Path
from typing import Any

import lark
from lark import Lark
from msgspec.structs import fields

from hlo.once import once
from hlo.parser.kinds import all_kinds
from hlo.parser.tables import FORM, Plain, plain

log = logging.getLogger(__name__)

STARTS = (
    "module_text",
    "computations_text",
    "instruction_text",
    "header_prefix",
    "tables_prefix",
    "computation_prefix",
    "instruction_prefix",
    "operands_text",
    "attributes_text",
    "literal_text",
    "shape_text",
    "outline",
)


def marker(rule: str) -> str:
    """The terminal that the lexer puts in front of a value, to say which rule it follows."""
    return "AS_" + rule.upper()


def grammar_text() -> str:
    """The whole grammar: the files, and `value` with an alternative for every kind."""
    folder = resources.files("hlo.parser")
    parts = [(folder / f).read_text() for f in ("hlo.lark", "outline.lark", "attributes.lark")]
    rules = sorted({kind.rule for kind in all_kinds()})
    values = "\n     | ".join(f"{marker(rule)} {rule}" for rule in rules)
    parts.append(f"value: {values}\n")
    parts += [f"{marker(rule)}: /as {rule}/\n" for rule in rules]
    return "\n".join(parts)


@once
def compiled() -> Plain:
    """The grammar's tables, from the cache where it has them."""
    text = grammar_text()
    path = _cache_path(text)
    found = _read(path)
    if found is None:
        found = plain(
            Lark(text, parser="lalr", lexer="basic", start=list(STARTS), maybe_placeholders=False)
        )
        _write(path, found)
    return found


def _cache_path(text: str) -> Path | None:
    key = "\n".join((lark.__version__, sys.version, FORM, text))
    digest = hashlib.sha256(key.encode()).hexdigest()[:24]
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "hlo" / f"tables-{digest}.pickle" if os.path.isabs(base) else None


def _read(path: Path | None) -> Plain | None:
    if path is None:
        return None
    try:
        status = path.stat()
        if hasattr(os, "getuid") and status.st_uid not in (os.getuid(), 0):
            return None  # unpickling runs code: only files of our own
        found: dict[str, Any] = pickle.loads(path.read_bytes())
        return Plain(**found)
    except FileNotFoundError:
        return None
    except (OSError, pickle.PickleError, EOFError, ValueError, TypeError, KeyError) as error:
        log.debug("grammar cache %s: %s", path, error)
        return None
    except (AttributeError, ImportError, IndexError, AssertionError) as error:  # broken pickles
        log.debug("grammar cache %s: %s", path, error)
        return None


def _write(path: Path | None, tables: Plain) -> None:
    """Whole or not at all: written beside its place, then renamed."""
    if path is None:
        return
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            pickle.dump({f.name: getattr(tables, f.name) for f in fields(tables)}, file, protocol=5)
        os.replace(file.name, path)
    except OSError as error:
        log.debug("grammar cache %s: %s", path, error)
