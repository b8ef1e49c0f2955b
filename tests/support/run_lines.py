"""RUN lines: `// RUN: hlo-opt %s --passes=algsimp | filecheck %s`, run in this process.

`not COMMAND` expects a non-zero exit code; `2>&1` joins stderr to the text that filecheck sees.
`// REQUIRES: avx512` skips the file where the machine has no such feature.
"""

import contextlib
import io
import shlex
from pathlib import Path

from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.options import parse_argv_options
from filecheck.parser import Parser

from tests.support.command import call


def run_lines(path: Path) -> list[str]:
    """The commands of a file."""
    marker = "// RUN:"
    lines = path.read_text().splitlines()
    return [line[len(marker) :].strip() for line in lines if line.startswith(marker)]


def check(text: str, path: Path, prefix: str = "CHECK") -> str | None:
    """None where the text satisfies the file's CHECK lines, else what filecheck says."""
    said = io.StringIO()
    options = parse_argv_options(["filecheck", str(path), f"--check-prefix={prefix}"])
    matcher = Matcher(options, FInput("<output>", text), Parser.from_opts(options))
    matcher.stderr = said
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        code = matcher.run()
    return None if code == 0 else said.getvalue()


def run(line: str, path: Path) -> str | None:
    """Run one RUN line; None when it does what it says, else what went wrong."""
    command, *filters = [part.strip() for part in line.split("|")]
    words = shlex.split(command.replace("%s", str(path)))
    fails = words[0] == "not"
    joined = "2>&1" in words
    words = [w for w in words[1 if fails else 0 :] if w != "2>&1"]
    outcome = call(words[0], *words[1:])
    if (outcome.code != 0) != fails:
        return f"{line}: exit code {outcome.code}\n{outcome.err}"
    text = outcome.out + (outcome.err if joined else "")
    for part in filters:
        arguments = shlex.split(part.replace("%s", str(path)))
        assert arguments[0] == "filecheck", f"only filecheck stands behind a bar: {line}"
        prefix = next((a.split("=")[1] for a in arguments if "check-prefix=" in a), "CHECK")
        problem = check(text, path, prefix)
        if problem:
            return f"{line}\n{problem}\n{text}"
    return None
