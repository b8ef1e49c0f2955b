"""The examples that run without Python build with the commands that they name, and say the same."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hlo import driver
from hlo.machine import NAMED
from tests.support.command import call

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
FOLDER = EXAMPLES / "ahead_of_time"
MACHINE = "x86-64-v3"
EXPECTED = r"first 0\.\d{6}, sum of all rows 256\.000\n"

pytestmark = pytest.mark.skipif(
    not driver.host_machine().features.issuperset(NAMED[MACHINE].features), reason="not x86-64-v3"
)


def compiled(folder: Path, *flags: str) -> None:
    outcome = call(
        "hlo-run", "compile", str(EXAMPLES / "softmax.hlo"), f"--machine={MACHINE}", *flags
    )
    assert outcome.code == 0, outcome.err
    for file in FOLDER.iterdir():
        shutil.copy(file, folder)


def said(folder: Path, *command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not shutil.which("cc"), reason="there is no cc")
def test_c(tmp_path: Path) -> None:
    compiled(tmp_path, "-o", str(tmp_path / "softmax.o"), f"--header={tmp_path}/softmax.h")
    said(tmp_path, "cc", "-O2", "softmax.c", "softmax.o", "-o", "softmax")
    assert re.fullmatch(EXPECTED, said(tmp_path, "./softmax"))


@pytest.mark.skipif(not shutil.which("c++"), reason="there is no c++")
def test_cpp(tmp_path: Path) -> None:
    header, cpp = f"--header={tmp_path}/softmax.h", f"--cpp-header={tmp_path}/softmax.hpp"
    compiled(tmp_path, "-o", str(tmp_path / "softmax.o"), header, cpp)
    said(tmp_path, "c++", "-std=c++17", "-O2", "softmax.cc", "softmax.o", "-o", "softmax")
    assert re.fullmatch(EXPECTED, said(tmp_path, "./softmax"))


@pytest.mark.skipif(not shutil.which("cc"), reason="there is no cc")
def test_python_without_hlo(tmp_path: Path) -> None:
    compiled(tmp_path, "-o", str(tmp_path / "softmax.so"), f"--header={tmp_path}/softmax.h")
    header = (tmp_path / "softmax.h").read_text()
    sizes = [
        re.findall(rf"#define SOFTMAX_{name} (\d+)", header)[0]
        for name in ("INPUT_0_COUNT", "ARENA_BYTES")
    ]
    found = said(tmp_path, sys.executable, "-I", "softmax_ctypes.py", "./softmax.so", *sizes)
    assert re.fullmatch(EXPECTED, found)


@pytest.mark.skipif(not shutil.which("rustc"), reason="there is no rustc")
def test_rust(tmp_path: Path) -> None:
    compiled(tmp_path, "-o", str(tmp_path / "libsoftmax.a"))
    said(tmp_path, "rustc", "-O", "softmax.rs", "-L.", "-lsoftmax")
    assert re.fullmatch(EXPECTED, said(tmp_path, "./softmax"))
