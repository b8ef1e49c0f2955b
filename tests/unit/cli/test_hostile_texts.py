"""Control characters of sources, names and arguments: no command lets them reach a terminal."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import numpy as np
import pytest

from hlo import driver
from hlo.tools.files.reading import write_text
from tests.support.command import call

# Sets a title, clears the screen, colours (one byte too), deletes, writes from right to left.
ODD = "\x1b]0;title\x07\x1b[2J\x9b31m\b\x7f\r\u202e\u2066\u200b"
NAME = f"a{ODD}b.hlo"
LINE = ODD.replace("\r", "")  # which would end a comment
HEAD = f"HloModule m // {LINE}\n"
ENTRY = HEAD + "ENTRY e {\n  x = f32[4] parameter(0)\n"
META = f'metadata={{op_name="{ODD}" source_file="{ODD}" source_line=3}}'
TEXTS = {
    "good": f"{ENTRY}  /* {ODD} */ ROOT r = f32[4] negate(x), {META} }}\n",
    "fused": f"{ENTRY}  y = f32[4] negate(x), {META}\n  ROOT r = f32[4] abs(y), {META} }}\n",
    "dead": f"{ENTRY}  d = f32[4] exponential(x), {META}\n  ROOT r = f32[4] negate(x) }}\n",
    "token": f"{ENTRY}  ROOT r{ODD} = f32[4] negate(x) }}\n",
    "opcode": f"{ENTRY}  /*{ODD}*/ ROOT r = f32[4] nagate(x) /*{ODD}*/ }}\n",
    "shape": f"{ENTRY}  ROOT r = f32[5] negate(x), {META} }}\n",
    "name": f"{ENTRY}  ROOT r = f32[4] negate(y), {META} }}\n",
    "string": f'{ENTRY}  ROOT r = f32[4] negate(x), metadata={{op_name="{ODD} }}\n',
    "target": f'{ENTRY}  ROOT r = f32[4] custom-call(x), custom_call_target="{ODD}" }}\n',
    "config": f'{ENTRY}  ROOT r = f32[4] negate(x), backend_config="{ODD}" }}\n',
    "attribute": f"{ENTRY}  ROOT r = f32[4] negate(x), x{ODD}=3 }}\n",
    "frontend": f'{ENTRY}  ROOT r = f32[4] negate(x), frontend_attributes={{k="{ODD}"}} }}\n',
    "sharding": f'{ENTRY}  ROOT r = f32[4] negate(x), sharding={{"{ODD}"}} }}\n',
    "accuracy": f'{ENTRY}  ROOT r = f32[4] tanh(x), result_accuracy={{mode="{ODD}"}} }}\n',
    "domain": f'{ENTRY}  ROOT r = f32[4] domain(x), domain={{kind="{ODD}", entry={{}} }} }}\n',
    "thread": f'{ENTRY}  ROOT r = f32[4] negate(x), async_execution_thread="{ODD}" }}\n',
    "header": f'HloModule m, frontend_attributes={{k="{ODD}"}}, nonsense="{ODD}"\n',
    "junk": ODD * 30,
    "wide": " " * 200 + ODD * 50 + "\n",
}
# {} is the file.
COMMANDS = {
    "opt": ("hlo-opt", "{}"),
    "passes": ("hlo-opt", "{}", "--passes=default", "--time-passes"),
    "changed": ("hlo-opt", "{}", "--passes=default", "--print-changed"),
    "diff": ("hlo-opt", "{}", "--passes=default", "--print-changed=diff"),
    "tokens": ("hlo-opt", "{}", "--emit=tokens"),
    "kernel": ("hlo-opt", "{}", "--emit=asm", f"--kernel={ODD}"),
    "pipeline": ("hlo-opt", "{}", "--pipeline-file={}"),
    "check": ("hlo-opt", "check", "-v", "{}"),
    "lint": ("hlo-opt", "check", "--lint", "{}"),
    "eq": ("hlo-opt", "eq", "plain.hlo", "{}"),
    "fmt check": ("hlo-opt", "fmt", "--check", "{}"),
    "run": ("hlo-run", "{}", "--memory", "--compare=interpreter"),
    "interpreter": ("hlo-run", "{}", "--engine=interpreter"),
    "bench": ("hlo-run", "bench", "{}", "--seconds=0.001"),
    "memory": ("hlo-run", "memory", "{}"),
    "profile": ("hlo-run", "profile", "{}"),
}
TABLES = {"check", "lint", "eq", "fmt check", "run", "interpreter", "bench", "memory", "profile"}
ARGUMENTS = (
    ("hlo-opt", f"absent{ODD}.hlo"),
    ("hlo-opt", f"nul\0{ODD}.hlo"),
    ("hlo-opt", f"--{ODD}"),
    ("hlo-opt", "plain.hlo", f"--emit={ODD}"),
    ("hlo-opt", "plain.hlo", f"--passes={ODD}"),
    ("hlo-opt", "plain.hlo", f"--passes=algsimp{{{ODD}=1}}"),
    ("hlo-opt", "plain.hlo", f"--max-input-size={ODD}"),
    ("hlo-opt", "plain.hlo", f"--output=absent{ODD}/file"),
    ("hlo-opt", "explain", ODD),
    ("hlo-opt", "check", "--lint", f"--no-lint={ODD}", "plain.hlo"),
    ("hlo-run", "plain.hlo", f"--input={ODD}"),
    ("hlo-run", "plain.hlo", f"--input=n{ODD}=f32[4]=1"),
    ("hlo-run", "plain.hlo", f"--input=f32[4]={ODD}"),
    ("hlo-run", "plain.hlo", f"--input=@{ODD}.npy"),
    ("hlo-run", "plain.hlo", f"--inputs={ODD}.npz"),
    ("hlo-run", "plain.hlo", "--inputs=odd.npz"),
    ("hlo-run", "plain.hlo", "--inputs=dtype.npz"),
    ("hlo-run", "plain.hlo", f"--inputs={NAME}"),
    ("hlo-run", "plain.hlo", f"--compare={ODD}"),
    ("hlo-run", "plain.hlo", f"--compare={ODD}.npz"),
    ("hlo-run", "plain.hlo", f"--outputs=absent{ODD}/x.npz"),
    ("hlo-run", "plain.hlo", f"--seed={ODD}"),
    ("hlo-run", ODD),
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plain.hlo").write_text(TEXTS["fused"].replace(ODD, ""))
    Path(NAME).write_text(TEXTS["good"])
    np.savez("odd.npz", **{f"x{ODD}": np.zeros(4, np.float32)})
    np.savez("dtype.npz", **{f"x:{ODD}": np.zeros(4, np.float32)})


def is_clean(text: str) -> bool:
    return text.replace("\n", "").replace("\t", "").isprintable()


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("text", TEXTS)
def test_texts(text: str, command: str) -> None:
    Path(NAME).write_text(TEXTS[text])
    name, *arguments = COMMANDS[command]
    outcome = call(name, *(a.format(NAME) if "{}" in a else a for a in arguments))
    assert outcome.code in (0, 1), outcome.err
    assert is_clean(outcome.err)
    assert command not in TABLES or is_clean(outcome.out)
    if outcome.code and "error[" in outcome.err and command not in ("eq", "pipeline"):
        assert r"\x1b" in outcome.err, "the error names the file, as far as a terminal may see it"


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=ascii)
def test_arguments(arguments: tuple[str, ...]) -> None:
    outcome = call(*arguments)
    assert outcome.code in (0, 1, 2), outcome.err
    assert outcome.code == 0 or "rror" in outcome.err
    assert is_clean(outcome.err)
    assert is_clean(outcome.out)


def test_modules_for_pipes_are_as_they_are() -> None:
    """Comments stay, to the byte, where no terminal reads."""
    made = call("hlo-opt", "fmt", NAME).out
    assert f"/* {ODD} */" in made


def test_modules_for_terminals_are_escaped() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    text = driver.to_text(driver.parse(TEXTS["good"])) + ODD
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        with contextlib.redirect_stdout(stream):
            write_text("-", text)
    assert pipe.getvalue() == text
    assert is_clean(terminal.getvalue())
    assert len(terminal.getvalue().splitlines()) == text.count("\n") + 1
