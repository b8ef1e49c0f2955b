"""Every example runs, compiled and on the reference; every script of examples/ ends well."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import call

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = sorted((ROOT / "examples").glob("*.hlo"))
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_program_agrees_with_the_reference(path: Path) -> None:
    outcome = call("hlo-run", str(path), "--compare=interpreter", "--no-cache")
    assert outcome.code == 0, outcome.err
    assert "output 0" in outcome.out


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.stem)
def test_script_ends_well(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


GALLERY = sorted(p for p in (ROOT / "examples" / "jax").glob("*.py") if p.stem != "timing")
NEEDS = ("jax", "flax", "optax", "diffrax", "numpyro")


@pytest.mark.slow
@pytest.mark.parametrize("path", GALLERY, ids=lambda p: p.stem)
def test_gallery_agrees_with_xla(path: Path) -> None:
    """Each script compares the results of both before it times them."""
    for name in NEEDS:
        if f"import {name}" in path.read_text() and importlib.util.find_spec(name) is None:
            pytest.skip(f"needs {name}")
    command = [sys.executable, "-W", "ignore", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "times as fast" in done.stdout


def test_pipeline_file() -> None:
    softmax = str(ROOT / "examples" / "softmax.hlo")
    pipeline = str(ROOT / "examples" / "pipeline.txt")
    outcome = call("hlo-opt", softmax, f"--pipeline-file={pipeline}")
    assert outcome.code == 0, outcome.err
    assert "reduce" in outcome.out
