"""slice, --watch and repl, as they are used."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import hlo
from hlo.tools.cases.arrays import load_npz
from tests.support.command import call

TEXT = """HloModule m
ENTRY e {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  a = f32[4] tanh(x)
  b = f32[4] add(a, y)
  c = f32[4] negate(y)
  d = f32[4] multiply(b, c)
  ROOT r = f32[4] subtract(d, a)
}
"""
COMMAND = (sys.executable, "-m", "hlo")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}


def sliced(tmp_path: Path, *flags: str) -> set[str]:
    file, made = tmp_path / "m.hlo", tmp_path / "part.hlo"
    file.write_text(TEXT)
    done = call("hlo-opt", "slice", str(file), *flags, "-o", str(made))
    assert done.code == 0, done.err
    part = hlo.read(str(made))
    values = load_npz(f"{made}.npz")
    assert len(values) == len(part.entry.parameters)
    return {i.name for i in part.entry.instructions if i.opcode != "parameter"}


def test_slices(tmp_path: Path) -> None:
    assert sliced(tmp_path, "--to=b") == {"a", "b"}
    assert sliced(tmp_path, "--from=b") == {"b", "d", "r"}
    assert sliced(tmp_path, "--from=c", "--to=d") == {"c", "d"}
    assert sliced(tmp_path, "--from=a", "--to=r") == {"a", "b", "d", "r"}


def test_slices_that_are_none(tmp_path: Path) -> None:
    file = tmp_path / "m.hlo"
    file.write_text(TEXT)
    assert call("hlo-opt", "slice", str(file)).code == 2
    no_path = call("hlo-opt", "slice", str(file), "--from=c", "--to=b")
    assert (no_path.code, "expected a path" in no_path.err) == (1, True)
    assert "slice: there is no instruction q" in call("hlo-opt", "slice", str(file), "--to=q").err


def test_watch(tmp_path: Path) -> None:
    file, out, err = (tmp_path / name for name in ("m.hlo", "out", "err"))
    file.write_text(TEXT)
    with out.open("w") as o, err.open("w") as e:
        process = subprocess.Popen(
            [*COMMAND, "opt", str(file), "--watch"], stdout=o, stderr=e, env=ENVIRONMENT,
            # Whoever runs the tests in the background may have had it ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip

        def waits_for(times: int) -> str:
            end = time.monotonic() + 120
            while err.read_text().count("waiting for") < times:
                assert process.poll() is None, err.read_text()
                assert time.monotonic() < end, err.read_text()
                time.sleep(0.05)
            return err.read_text()

        waits_for(1)
        file.write_text(TEXT.replace("tanh", "tanhh"))
        assert "unknown-opcode" in waits_for(2)
        file.write_text(TEXT.replace("tanh", "exponential"))
        waits_for(3)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    text = out.read_text()
    assert (text.count("HloModule"), text.count("exponential")) == (2, 1)
    assert call("hlo-opt", "-", "--watch").code == 2


def test_repl(tmp_path: Path) -> None:
    file = tmp_path / "my model.hlo"
    file.write_text(TEXT)
    lines = [
        "m", 'm["b"]', "m([0, 0, 0, 0], np.ones(4))", "m(1)", "1 / 0", "my_model is m",
        "m(*m.inputs()).shape", 'm.optimize("cse,dce").module.name', "m.time(*m.inputs())[-1:]",
        "sorted(m.values(*m.inputs()))[:2]", 'm["q"]', 'load("nowhere.hlo")',
        "m(np.ones(4, np.float16), np.ones(4))",
    ]  # fmt: skip
    done = subprocess.run(
        [*COMMAND, "run", "repl", str(file)], input="\n".join(lines) + "\n", env=ENVIRONMENT,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "m(x: f32[4]{0}, y: f32[4]{0}) -> f32[4]{0}",
        "7 instructions: parameter 2, add 1, multiply 1, negate 1, subtract 1",
        "  %a = f32[4]{0} tanh(%x)",
        "  %y = f32[4]{0} parameter()",
        "%b = f32[4]{0} add(%a, %y)",
        "    used by %d = f32[4]{0} multiply(%b, %c)",
        repr(np.full(4, -1, np.float32)),
        "True",
        "(4,)",
        "'m'",
        "'s'",
        "['a', 'b']",
    ]
    errors = done.stderr
    assert "m: 1 values, expected 2: x: f32[4]{0}, y: f32[4]{0}" in errors
    assert "ZeroDivisionError" in errors
    assert errors.count("Traceback") == 1
    assert "m has no instruction q" in errors
    assert "nowhere.hlo does not exist" in errors
    assert "argument 0 (x) is f16[4], expected f32[4]" in errors


def test_repl_at_a_terminal() -> None:
    """A prompt, and an end by Ctrl-D."""
    own, other = pty.openpty()
    command = [*COMMAND, "run", "repl"]
    process = subprocess.Popen(command, stdin=other, stdout=other, stderr=other, env=ENVIRONMENT)
    os.close(other)
    told = ""
    for typed in (b"21 * 2\n", b"\x04"):
        while not told.endswith(">>> "):
            told += os.read(own, 65536).decode()
        os.write(own, typed)
        told += "|"
    assert "42" in told
    assert process.wait(60) == 0
    os.close(own)
