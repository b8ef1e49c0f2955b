"""The rooms around the back end and who imports whom, as text; and what the files of a room are.

    python -m tests.support.rooms                         the picture
    python -m tests.support.rooms backend/loops tools     each file of these rooms, in its own words

docs/compiler.md holds the picture, tests/unit/test_structure.py the two together.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

from tests.support.source_files import FILES, ROOT, source_file

# From the lowest up; a file or a folder under hlo/, each file in the smallest that holds it.
ROOMS = (
    "ir", "machine.py", "attributes", "ops", "indexing", "analysis", "passes", "backend/ir",
    "backend/isa", "backend/loops", "backend/math", "backend/lanes", "backend/emitters",
    "backend/kernels", "backend/planning", "backend/entry", "backend/linking", "backend",
    "backend/ahead", "backend/profiling", "backend/stages",
)  # fmt: skip


def room_of(path: Path) -> str | None:
    """The room of a file under hlo/."""
    name = path.relative_to(ROOT / "hlo").as_posix()
    return max((r for r in ROOMS if name == r or name.startswith(f"{r}/")), key=len, default=None)


def arrows() -> dict[str, set[str]]:
    """Room -> the other rooms whose files it imports, anywhere in a file."""
    found: dict[str, set[str]] = {room: set() for room in ROOMS}
    for path in FILES:
        own = room_of(path)
        if own is not None:
            found[own] |= {room for t in imported(path) if (room := room_of(t)) and room != own}
    return found


@cache
def imported(path: Path) -> frozenset[Path]:
    """The files of hlo/ that a file imports, under TYPE_CHECKING and inside functions too."""
    found: set[Path] = set()
    for module, name in source_file(path).names_from:
        if module.startswith("hlo"):
            home = ROOT.joinpath(*module.split("."))
            found |= {(home / name).with_suffix(".py"), home.with_suffix(".py")}
    return frozenset(p for p in found if p.exists())


def picture() -> str:
    """A row for each room, the highest first; a mark under each room that it imports.

    Where all arrows point down, the lower left is empty.
    """
    edges, rooms = arrows(), ROOMS[::-1]
    width = max(map(len, rooms))
    rows = []
    for k, room in enumerate(rooms):
        marks = ["■" if other == room else "●" if other in edges[room] else "·" for other in rooms]
        rows.append(f"{room:<{width}}  {' '.join(marks)}  {k + 1}")
    head = " " * (width + 2) + " ".join(str((k + 1) % 10) for k in range(len(rooms)))
    return "\n".join([head, *rows])


def sentence(path: Path) -> str:
    """What a file says of itself: the first line of its docstring."""
    return source_file(path).text.removeprefix('"""').partition("\n")[0].removesuffix('"""')


def listing(room: str) -> str:
    """The files of a folder or file under hlo/ and below, a sentence each."""
    home = ROOT / "hlo" / room
    files = [path for path in FILES if path.is_relative_to(home)]
    names = [path.relative_to(ROOT / "hlo").as_posix() for path in files]
    width = max(map(len, names), default=0)
    return "\n".join(f"{n:<{width}}  {sentence(p)}" for n, p in zip(names, files, strict=True))


if __name__ == "__main__":
    asked = sys.argv[1:]
    sys.stdout.write("\n".join(map(listing, asked) if asked else [picture()]) + "\n")
