"""What a new user types first: near misses, several files, names that stay."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.support.command import call

GOOD = "HloModule m\nENTRY e { p = f32[3] parameter(0)\n ROOT r = f32[3] tanh(p) }\n"
BAD = GOOD.replace("f32[3] tanh", "f32[4] tanh")


@pytest.mark.parametrize(
    ("text", "help"),
    [
        (GOOD.replace("tanh(p)", "add(p p)"), "operands are separated by commas: p, p"),
        (GOOD.replace("HloModule", "HLOModule"), "did you mean 'HloModule'?"),
        (GOOD.replace("ENTRY", "# entry\nENTRY"), "a comment is /* .. */, or // to the end"),
        (GOOD.replace("f32[3] tanh", "f32[3]{} tanh"), "a layout begins with a number or a colon"),
        ("\ufeff" + GOOD, "a byte order mark, which XLA does not read either"),
        (GOOD.replace("tanh(p)", 'custom-call(p), custom_call_target="x'), "has no end"),
        (GOOD.replace("tanh(p)", "dot_general(p, p)"), "did you mean 'dot'?"),
        (GOOD.replace("}", ""), "the { of e in line 2 has no }"),
        (
            GOOD.replace("ENTRY", "f { a = f32[] parameter(0)\n ROOT b = f32[] tanh(a)\n\nENTRY"),
            "the { of f in line 2 has no }",
        ),
        (GOOD.replace("tanh(p)", "stablehlo.tanh %p : tensor<3xf32>"), "StableHLO is read as a"),
    ],
)
def test_what_a_faulty_text_means(text: str, help: str, tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_text(text)
    outcome = call("hlo-opt", "check", str(tmp_path / "m.hlo"))
    assert outcome.code == 1
    assert help in outcome.err


def test_a_text_in_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_text(GOOD, encoding="utf-16")
    outcome = call("hlo-opt", "check", str(tmp_path / "m.hlo"))
    assert (outcome.code, "it is a text in UTF-16: save it as UTF-8" in outcome.err) == (1, True)


def test_a_mistyped_subcommand() -> None:
    outcome = call("hlo-opt", "chekc", "x.hlo")
    assert (outcome.code, "did you mean `hlo-opt check`?" in outcome.err) == (2, True)
    assert "did you mean `hlo-run profile`?" in call("hlo-opt", "profle", "x.hlo").err
    assert call("hlo-opt", "softmax").err.startswith("error[file]")


def test_python_m_hlo(tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_text(BAD)
    given = [sys.executable, "-m", "hlo", "opt", "check", str(tmp_path / "m.hlo")]
    done = subprocess.run(given, capture_output=True, text=True, check=False)
    assert (done.returncode, "shape-mismatch" in done.stderr) == (1, True)


def test_check_counts_files_and_modules(tmp_path: Path) -> None:
    texts = {"a": GOOD, "b": f"{GOOD}\n// -----\n{BAD.replace('HloModule m', 'HloModule n')}"}
    paths = [str(tmp_path / f"{name}.hlo") for name in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        Path(path).write_text(text)
    outcome = call("hlo-opt", "check", *paths)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.endswith("2 files, 3 modules: 1 error in 1 of them\n")
    assert call("hlo-opt", "check", *paths, "--jobs=2") == outcome


def test_an_invalid_module_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_text(BAD)
    assert call("hlo-opt", str(tmp_path / "m.hlo"), "-o", str(tmp_path / "out")).code == 1
    assert not (tmp_path / "out").exists()


def test_arrays_as_numpy_writes_them(tmp_path: Path) -> None:
    text = "HloModule m\nENTRY e { p = TYPE[3] parameter(0)\n ROOT r = TYPE[3] negate(p) }\n"
    x = np.array([1, np.inf, 2])
    np.save(tmp_path / "big.npy", x.astype(">f4"))
    np.savez(tmp_path / "unnamed.npz", x.astype(np.float32))
    np.save(tmp_path / "narrow.npy", x.astype(ml_dtypes.bfloat16))
    for type, given in (
        ("f32", "--input=p=@big.npy"), ("f32", "--inputs=unnamed.npz"), ("f32", "--inputs=big.npy"),
        ("bf16", "--input=@narrow.npy"), ("bf16", "--inputs=narrow.npy"),
    ):  # fmt: skip
        (tmp_path / "m.hlo").write_text(text.replace("TYPE", type))
        for sign in ("=@", "="):
            given = given.replace(f"{sign}b", f"{sign}{tmp_path}/b", 1)
            given = given.replace(f"{sign}n", f"{sign}{tmp_path}/n", 1)
            given = given.replace(f"{sign}u", f"{sign}{tmp_path}/u", 1)
        outcome = call("hlo-run", str(tmp_path / "m.hlo"), given)
        assert outcome.out == f"output 0: {type}[3] min -2  max -1  mean -1.5  NaN 0  inf 1\n"


def test_fmt_keeps_order_and_names(tmp_path: Path) -> None:
    text = """HloModule m

z { b = f32[] parameter(0)
  ROOT c = f32[] tanh(b) }
a { b = f32[] parameter(0) // the same name
  ROOT c = f32[] tanh(b) }
ENTRY e { q = f32[] parameter(1)
  p = f32[] parameter(0)
  u = f32[] call(q), to_apply=z
  v = f32[] call(p), to_apply=a
  ROOT b = f32[] add(u, v) }
"""
    (tmp_path / "m.hlo").write_text(text)
    made = call("hlo-opt", "fmt", str(tmp_path / "m.hlo"))
    assert made.code == 0
    names = [line.split(" = ")[0].split()[-1] for line in made.out.splitlines() if " = " in line]
    assert names == ["%b", "%c", "%b", "%c", "%q", "%p", "%u", "%v", "%b"]
    assert "// the same name" in made.out
    assert call("hlo-opt", "fmt", "-", stdin=made.out.encode()).out == made.out


@pytest.mark.parametrize(
    ("words", "number", "expected"),
    [
        ("hlo-opt --list-r", 1, ["plain,--list-rules"]),
        ("hlo-opt fmt x", 2, ["file,x"]),
        ("hlo-opt transform -p dce,algs", 3, ["plain,dce,algsimp"]),
        ("hlo-opt explain log-p", 2, ["plain,log-plus-one"]),
    ],
)
def test_completion(words: str, number: int, expected: list[str]) -> None:
    asked = {"_HLO_OPT_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(number)}
    done = subprocess.run(
        [sys.executable, "-m", "hlo", "opt"], capture_output=True, text=True, check=False,
        env={**os.environ, **asked},
    )  # fmt: skip
    assert done.stdout.split() == expected


def test_completion_scripts() -> None:
    for shell in ("zsh", "fish"):
        made = call("hlo-opt", "completion", shell)
        assert (made.code, "_HLO_OPT_COMPLETE" in made.out) == (0, True)
        assert "_HLO_RUN_COMPLETE" in made.out
