"""Bad input: one clear error, the right exit code, no half-written file, never a traceback."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.command import Outcome, call

GOOD = """HloModule m
ENTRY e {
  p = f32[2] parameter(0)
  q = s32[3] parameter(1)
  n = f32[2] negate(p)
  ROOT r = (f32[2], s32[3]) tuple(n, q)
}
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "good.hlo"
    path.write_text(GOOD)
    return str(path)


def assert_clear(outcome: Outcome, code: int, *words: str) -> None:
    assert outcome.code == code, outcome.err
    assert "Traceback" not in outcome.err
    assert "internal error" not in outcome.err
    for word in words:
        assert word in outcome.err


TEXTS = {
    "empty": "",
    "blank": "  \n\n",
    "junk": "\x00\x01\x7f\xff@@@",
    "words": "this is not a module at all",
    "unclosed": "HloModule m\nENTRY e { p = f32[2] parameter(0)",
    "unknown opcode": "HloModule m\nENTRY e { ROOT p = f32[2] parametre(0) }",
    "unknown name": "HloModule m\nENTRY e { p = f32[2] parameter(0) ROOT n = f32[2] negate(q) }",
    "unknown type": "HloModule m\nENTRY e { ROOT p = f33[2] parameter(0) }",
    "parentheses": "HloModule m\nENTRY e { ROOT p = " + "(" * 10_000 + " parameter(0) }",
    "braces": "HloModule m\nENTRY e { ROOT c = f32[2] constant(" + "{" * 10_000 + ") }",
    "huge shape": "HloModule m\nENTRY e { ROOT c = f32[1000000,1000000] constant({1}) }",
    "negative": "HloModule m\nENTRY e { ROOT p = f32[-2] parameter(0) }",
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("command", ["hlo-opt", "hlo-run"])
def test_bad_text(name: str, command: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.hlo"
    path.write_bytes(TEXTS[name].encode("latin-1"))
    assert_clear(call(command, str(path)), 1, "error[")


def test_bad_text_names_the_place(tmp_path: Path) -> None:
    path = tmp_path / "bad.hlo"
    path.write_text(TEXTS["unknown opcode"])
    assert_clear(call("hlo-opt", str(path)), 1, "unknown-opcode", "bad.hlo:2:", "parameter")


def test_wrong_shape_prints_the_module_and_fails(tmp_path: Path) -> None:
    path = tmp_path / "bad.hlo"
    path.write_text("HloModule m\nENTRY e { p = f32[2] parameter(0) ROOT n = f32[3] negate(p) }")
    outcome = call("hlo-opt", str(path))
    assert_clear(outcome, 1, "shape-mismatch", "f32[3]", "f32[2]")
    assert "negate" in outcome.out
    assert_clear(call("hlo-run", str(path)), 1, "shape-mismatch")
    assert_clear(call("hlo-opt", str(path), "--passes=dce"), 1, "shape-mismatch")


def test_all_errors_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "bad.hlo"
    path.write_text(
        "HloModule m\nENTRY e {\n p = f32[2] parameter(0)\n a = f32[3] negate(p)\n"
        " b = f32[4] abs(p)\n ROOT r = (f32[3], f32[4]) tuple(a, b)\n}"
    )
    outcome = call("hlo-opt", "check", str(path))
    assert_clear(outcome, 1, "bad.hlo:4:", "bad.hlo:5:")


@pytest.mark.parametrize("command", ["hlo-opt", "hlo-run"])
def test_files_that_are_none(command: str, tmp_path: Path) -> None:
    assert_clear(call(command, str(tmp_path / "absent.hlo")), 1, "does not exist")
    assert_clear(call(command, str(tmp_path)), 1, "has no module")


def test_usage() -> None:
    assert call("hlo-opt", "--no-such-flag", "x.hlo").code == 2
    assert call("hlo-run", "--threads=none", "x.hlo").code == 2
    assert call("hlo-opt", "x.hlo", "--emit=nothing").code == 2
    assert call("hlo-run", "x.hlo", "--max-steps=3").code == 2  # of the interpreter alone


def test_limits_of_time_that_are_none(program: str) -> None:
    for wrong in ("0", "-1", "nan"):
        assert_clear(call("hlo-run", program, f"--timeout={wrong}"), 2, "--timeout", wrong)
    assert call("hlo-run", program, "--timeout=60").code == 0


def test_unknown_pass(program: str) -> None:
    assert_clear(call("hlo-opt", program, "--passes=algsim"), 1, "unknown-pass", "algsimp")
    assert_clear(call("hlo-opt", program, "--passes=dce{x=1}"), 1, "pipeline")
    assert_clear(call("hlo-opt", program, "--passes=fixpoint(dce"), 1, "pipeline")


def test_standard_input_is_read() -> None:
    outcome = call("hlo-opt", "-", stdin=GOOD.encode())
    assert outcome.code == 0
    assert "negate" in outcome.out


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (["--input=f32[2]=1 2"], "1 inputs given, expected 2"),
        (["--input=f32[3]=1", "--input=s32[3]=1"], "f32[2]"),
        (["--input=f64[2]=1", "--input=s32[3]=1"], "f32"),
        (["--input=f32[2]=x y", "--input=s32[3]=1"], "x y"),
        (["--input=nonsense", "--input=s32[3]=1"], "nonsense"),
        (["--input=zzz=f32[2]=1", "--input=s32[3]=1"], "zzz"),
        (["--input=f99[2]=1", "--input=s32[3]=1"], "f99"),
    ],
)
def test_inputs_that_do_not_fit(program: str, flags: list[str], word: str) -> None:
    assert_clear(call("hlo-run", program, *flags), 1, "error[arguments]", word)


def test_unreadable_arrays(program: str, tmp_path: Path) -> None:
    junk = tmp_path / "junk.npy"
    junk.write_bytes(b"\x93NUMPY junk")
    assert_clear(call("hlo-run", program, f"--input=@{junk}", "--input=s32[3]=1"), 1, "junk.npy")
    archive = tmp_path / "junk.npz"
    archive.write_bytes(b"PK\x03\x04 junk")
    assert_clear(call("hlo-run", program, f"--inputs={archive}"), 1, "junk.npz")
    np.savez(tmp_path / "few.npz", p=np.zeros(2, np.float32))
    assert_clear(call("hlo-run", program, f"--inputs={tmp_path}/few.npz"), 1, "parameter q")


def test_output_into_nothing_leaves_nothing(program: str, tmp_path: Path) -> None:
    target = tmp_path / "no" / "such" / "folder.npz"
    assert_clear(call("hlo-run", program, f"--outputs={target}"), 1, "cannot be written")
    assert call("hlo-opt", program, "-o", str(tmp_path)).code == 1


@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_FSIZE")
def test_full_disk_keeps_the_old_file(program: str, tmp_path: Path) -> None:
    """A limit on file sizes stands for a full disk: the write fails half way."""
    target = tmp_path / "out.npz"
    target.write_bytes(b"old")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

    done = subprocess.run(
        [sys.executable, "cli.py", "run", program, "--no-cache", f"--outputs={target}"],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limit,  # the limit must hold in the child alone
        cwd=Path(__file__).resolve().parents[3],
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "HLO_CACHE_DIR": str(tmp_path / "c")},
    )
    assert done.returncode == 1, done.stderr
    assert "cannot be written" in done.stderr
    assert target.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".out")] == []
