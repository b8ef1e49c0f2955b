"""A user's faults at every command: one clear message and exit 1 or 2, never a bug of ours.

Options come from the commands themselves, so that a new one is covered by being there.
"""

from __future__ import annotations

import io
import os
import random
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import click  # noqa: TID251  # the options are asked of the commands themselves
import numpy as np
import pytest

from hlo.cli import bug_report, main
from hlo.tools import bench
from tests.support.command import Outcome, call

PROGRAM = "HloModule m\nENTRY e { p = f32[2] parameter(0)\n ROOT n = f32[2] negate(p) }\n"
GROUPS = {"hlo-opt": main.OPT_COMMANDS, "hlo-run": main.RUN_COMMANDS}
NO_NUMBERS = ("", "x", "1e", "0x10", "1 2", "½", "9" * 5000 + "x")
ODD_NUMBERS = ("-1", "9" * 25, "nan", "inf", "-inf", "1e400", "0", "9" * 5000)
NO_WORDS = ("", "nonsense", "\0", "a\0b", "n" * 300, "/", "..", "=", "@", "{", "{}", "(", ",", "%s",
            "\N{SNOWMAN}", "\udcff", "-", "f32[2]=", "f32[" + "9" * 25 + "]=1",
            "a=" * 2000)  # fmt: skip


# Commands that run a program many times for each value: an option there has each third of them, in
# turns with the others, which all go to the commands beside.
SEARCHING = ("bisect", "reduce")


def command_rows() -> Iterator[tuple[str, str, click.Command]]:
    """Group, name and command of every subcommand."""
    for group, rows in GROUPS.items():
        lazy = main.LazyGroup(group, rows, next(iter(rows)), "")
        for name in rows:
            command = lazy.get_command(click.Context(lazy), name)
            assert command is not None
            yield group, name, command


def option_rows() -> list[tuple[str, str, click.Option]]:
    """Every option that takes a value."""
    return [
        (group, name, parameter)
        for group, name, command in command_rows()
        for parameter in command.params
        if isinstance(parameter, click.Option) and not parameter.is_flag
    ]


OPTIONS = option_rows()


def is_numeric(option: click.Option) -> bool:
    return isinstance(option.type, click.types.IntParamType | click.types.FloatParamType)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No time is spent on timing; what is written goes to the test's own folder."""
    timing = bench.Timing(1.0, 1.0, 1.0, 1)
    monkeypatch.setattr(bench, "measure", lambda runs, *_: [timing for _ in runs])
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "p.hlo"
    path.write_text(PROGRAM)
    return str(path)


def operands(name: str, program: str) -> list[str]:
    """The arguments that a command cannot do without."""
    needed = {
        "diff": [program, program], "eq": [program, program], "explain": ["dot"],
        "extract": [program, "--name=p"], "reduce": [program, "--crash"], "lsp": ["file"],
        "query": ["dot", program], "slice": [program, "--to=p"],
    }  # fmt: skip
    return needed.get(name, [program])


def assert_user_fault(outcome: Outcome, told: object) -> None:
    """Exit 1 or 2 with a message, or 0 where the value means something."""
    assert outcome.code in (0, 1, 2), (told, outcome.err[-1500:])
    assert "Traceback" not in outcome.err, told
    assert "internal error" not in outcome.err, told
    if outcome.code:
        assert outcome.err.strip() or outcome.out.strip(), told


@pytest.mark.parametrize("row", OPTIONS, ids=lambda r: f"{r[0]} {r[1]} {r[2].opts[0]}")
def test_values_of_options(row: tuple[str, str, click.Option], program: str) -> None:
    group, name, option = row
    flag = option.opts[-1]
    values = (*NO_NUMBERS, *ODD_NUMBERS) if is_numeric(option) else (*NO_WORDS, "-1", "9" * 25)
    if name in SEARCHING:
        values = values[OPTIONS.index(row) % 3 :: 3]
    for value in values:
        outcome = call(group, name, *operands(name, program), f"{flag}={value}")
        told = (group, name, flag, value[:50])
        assert_user_fault(outcome, told)
        if is_numeric(option) and value in (*NO_NUMBERS, "nan", "-1", "-inf"):
            assert outcome.code == 2, told
        if isinstance(option.type, click.Choice):
            assert outcome.code == 2, told


FILES = {
    "empty": b"", "binary": bytes(range(256)) * 20, "zeros": b"\0" * 5000,
    "latin": b"HloModule \xe9", "half": PROGRAM[:60].encode(),
    "utf-16": PROGRAM.encode("utf-16"), "bom": b"\xef\xbb\xbf" + PROGRAM.encode(),
    "NUL": PROGRAM.replace("p =", "p\0 =").encode(),
    "carriage": PROGRAM.replace("\n", "\r").encode(),
    "rank 70": PROGRAM.replace("[2]", f"[{','.join('1' * 70)}]").encode(),
    "25 digits": PROGRAM.replace("[2]", f"[{'9' * 25}]").encode(),
    "5000 digits": PROGRAM.replace("[2]", f"[{'9' * 5000}]").encode(),
    "a terabyte": PROGRAM.replace("[2]", "[274877906944]").encode(),
    "npz": b"PK\x03\x04", "parameter 25 digits": PROGRAM.replace("r(0)", f"r({'9' * 25})").encode(),
}  # fmt: skip


@pytest.mark.parametrize("kind", [*FILES, "folder", "missing", "link to itself", "unreadable"])
def test_files_given_to_every_command(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"{kind}.hlo"
    if kind in FILES:
        path.write_bytes(FILES[kind])
    elif kind == "folder":
        path.mkdir()
    elif kind == "link to itself":
        path.symlink_to(path)
    elif kind == "unreadable":
        path.write_text("no module")
        path.chmod(0)
    for group, name, _ in command_rows():
        outcome = call(group, name, *operands(name, str(path)))
        assert_user_fault(outcome, (group, name, kind))
        if name not in ("explain", "completion", "lsp") and kind not in (
            "bom",
            "latin",
            "carriage",
        ):
            is_view = group == "hlo-opt" or name in ("memory", "compile", "repl")
            fine = is_view and kind in ("rank 70", "a terabyte", "25 digits")
            assert outcome.code == 1 or fine, (group, name, kind, outcome)


def test_files_are_optional_nowhere(program: str) -> None:
    for group, name, _ in command_rows():
        if name == "lsp":
            continue  # it serves whoever calls it; tests/unit/tools/test_language_server.py
        assert call(group, name).code == (0 if name == "repl" else 2)
        assert call(group, name, program, program, program, program, "--nonsense").code == 2
    assert call("hlo-opt", program, "--pipeline-file=/").code == 1
    assert call("hlo-opt", program, f"--dump-to={program}", "--passes=dce").code == 1


# -- arrays ------------------------------------------------------------------------------------


def archive(method: int = zipfile.ZIP_STORED) -> bytearray:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as file:
        inner = io.BytesIO()
        np.save(inner, np.arange(2, dtype=np.float32))
        file.writestr("p.npy", inner.getvalue() * 1)
    return bytearray(stream.getvalue())


def with_header(text: str) -> bytes:
    """An npy file that says of itself what the text does."""
    header = text.encode().ljust(118 - 10) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(8)


def put(data: bytearray, at: int, word: int) -> bytes:
    """A two-byte field set in the local header and in the central directory."""
    central = data.index(b"PK\x01\x02")
    for place in (at, central + at + 2):
        data[place : place + 2] = word.to_bytes(2, "little")
    return bytes(data)


def broken(method: int) -> bytes:
    data = archive(method)
    start = 30 + len("p.npy")
    data[start + 4 : start + 40] = b"\xff" * 36
    return bytes(data)


ARCHIVES = {
    "deflate": broken(zipfile.ZIP_DEFLATED), "lzma": broken(zipfile.ZIP_LZMA),
    "bzip2": broken(zipfile.ZIP_BZIP2), "stored": broken(zipfile.ZIP_STORED),
    "encrypted": put(archive(), 6, 1), "unknown method": put(archive(), 8, 77),
    "strong encryption": put(archive(), 6, 0x41), "patched": put(archive(), 6, 0x20),
    "cut": bytes(archive()[:-30]), "empty": b"", "junk": b"PK\x05\x06" + bytes(18),
}  # fmt: skip
HEADERS = (
    "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999999,), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }",
    f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({'1,' * 70}), }}",
    "{'descr': '|O', 'fortran_order': False, 'shape': (2,), }",
    "{'descr': 'zz', 'fortran_order': False, 'shape': (2,), }",
    "{'descr': ['<f4'], 'fortran_order': 3, 'shape': 2, }",
    "{",
    "((((((((((",
    "\x00",
    "[" * 90,
)


@pytest.mark.parametrize("name", ARCHIVES)
def test_archives_that_cannot_be_read(name: str, program: str, tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(ARCHIVES[name])
    for flag in ("--inputs", "--compare"):
        outcome = call("hlo-run", program, f"{flag}={path}")
        assert (outcome.code, "x.npz" in outcome.err or name == "junk") == (1, True), outcome.err
        assert "internal" not in outcome.err


@pytest.mark.parametrize("header", HEADERS)
def test_headers_that_cannot_be_true(header: str, program: str, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(with_header(header))
    outcome = call("hlo-run", program, f"--input=@{path}")
    assert outcome.code == 1, outcome.err
    assert "x.npy" in outcome.err


def test_arrays_by_types_that_are_none(program: str, tmp_path: Path) -> None:
    for name in (
        "p:finfo",
        "p:O",
        "p:",
        "p:f4,f4",
        "p:bfloat16",
        "p:__doc__",
        "p:V4",
        ":",
        "p:M8[s]",
    ):
        np.savez(tmp_path / "x.npz", **{name: np.zeros(2, np.uint32)})
        assert_user_fault(call("hlo-run", program, f"--inputs={tmp_path}/x.npz"), name)


def test_mutated_arrays(program: str, tmp_path: Path) -> None:
    rng = random.Random(0)
    for n in range(150):
        method = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA)[n % 3]
        data = archive(method)
        for _ in range(rng.choice((1, 1, 3))):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path = tmp_path / "x.npz"
        path.write_bytes(data)
        outcome = call("hlo-run", program, f"--inputs={path}", "--engine=interpreter")
        assert_user_fault(outcome, n)


# -- streams -----------------------------------------------------------------------------------

STREAMS = {  # redirection: exit code
    "opt p.hlo >&-": 1, "opt - <&-": 1, "opt p.hlo >/dev/full": 1,
    "opt --list-ops 2>/dev/full >/dev/full": 1, "opt --nonsense 2>&-": 2,
    "opt none.hlo >&- 2>&- <&-": 1, "opt - -o /dev/stdout <p.hlo >>log": 0, "run p.hlo >&-": 1,
    "opt check p.hlo >&- 2>&- <&-": 0,
}  # fmt: skip


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_streams_that_are_closed_or_full(program: str, tmp_path: Path) -> None:
    root = str(Path(main.__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root}
    for line, code in STREAMS.items():
        command = f"{sys.executable} {root}/cli.py {line}"
        run = subprocess.run(
            ["/bin/sh", "-c", command], capture_output=True, text=True, env=environment
        )
        assert run.returncode == code, (line, run)
        assert "Traceback" not in run.stderr, (line, run.stderr)
        assert "Exception ignored" not in run.stderr, (line, run.stderr)
        if code == 1 and "2>" not in line:
            assert run.stderr.startswith(("error[file]: standard", "inputs: made up")), run.stderr


def test_a_reader_that_leaves_is_no_error(program: str) -> None:
    root = str(Path(main.__file__).parents[2])
    command = f"{sys.executable} {root}/cli.py opt --list-ops | head -1"
    run = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True)
    assert run.stderr == ""


# -- the report of a bug -----------------------------------------------------------------------


def failing(text: str) -> BaseException:
    try:
        raise KeyError(text)
    except KeyError as error:
        return error


def test_the_report_of_a_bug_never_fails(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "report.txt").write_text("an input of the same name")
    (tmp_path / "secret").write_text("x")
    (tmp_path / "secret").chmod(0)
    given = ["n" * 300, "\0", "\udcff", program, f"--inputs={program}", f"--input=p=@{program}",
             str(tmp_path), "report.txt", str(tmp_path / "secret"), "/dev/zero", ""]  # fmt: skip
    told = bug_report.report_bug("hlo-opt", given, failing("why"))
    folder = Path(told.rpartition(" in ")[2])
    assert "KeyError: 'why'" in (folder / "report.txt").read_text(errors="replace")
    kept = sorted(p.name for p in folder.iterdir())
    assert {"0-p.hlo", "1-p.hlo", "2-p.hlo", "3-report.txt", "report.txt"} <= set(kept)
    assert not any("zero" in name for name in kept)


def test_a_report_that_cannot_be_written_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/no/such/folder")
    told = bug_report.report_bug("hlo-opt", ["x"], failing("why"))
    assert "no report could be written" in told
    assert "Traceback" in told
