"""The report of a bug of ours: what is needed to see it again, in a folder of its own."""

from __future__ import annotations

import shlex
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

MOST_BYTES = 64 << 20  # of a file that is copied


def report_bug(name: str, given: Sequence[str], error: BaseException) -> str:
    """Keeps the command, its input files and the traceback; gives what to tell the user.

    The report never fails: where no folder can be written, the traceback is told instead.
    """
    rows = traceback.format_exception(error)
    summary = ", ".join(line.strip() for line in traceback.format_exception_only(error))
    told = f"internal error (a bug of hlo, not of your program): {summary}"
    text = "\n".join([shlex.join([name, *given]), "", *rows])
    try:
        import tempfile  # for bugs alone

        folder = Path(tempfile.mkdtemp(prefix="hlo-bug-"))
        (folder / "report.txt").write_bytes(text.encode("utf-8", "surrogateescape"))
    except OSError as full:
        return f"{told}\nno report could be written: {full}\n{text}"
    for number, source in enumerate(_files(given)):
        _keep(source, folder / f"{number}-{source.name[-100:]}")
    return f"{told}\nthe command, its inputs and the traceback are in {folder}"


def _files(given: Sequence[str]) -> Iterator[Path]:
    """The regular files that arguments name: alone, behind `=`, behind `@`."""
    for argument in given:
        for text in (argument, argument.rpartition("=")[2].lstrip("@")):
            try:
                is_small = Path(text).is_file() and Path(text).stat().st_size <= MOST_BYTES
            except OSError:  # a name longer than names can be
                continue
            if is_small:
                yield Path(text)
                break


def _keep(source: Path, target: Path) -> None:
    try:
        target.write_bytes(source.read_bytes())
    except OSError:  # nobody but its owner may read it, or the disk is full
        target.unlink(missing_ok=True)
