"""tests/golden/verifier/*.hlo: modules whose lines say which errors the verifier must find there.

    ROOT r = f32[3] add(p, q)  // expected-error {{shape-mismatch: result is f32[3]}}

Modules are separated by `// -----`. Every expected error must be found on its line (the first one
of an instruction), and nothing else; a module without expectations must verify.
"""

import re
from pathlib import Path

import pytest

from hlo.driver import parse, verify
from hlo.errors import HloError, HloErrors

FOLDER = Path(__file__).parent / "verifier"
EXPECTED = re.compile(r"// expected-error \{\{([a-z-]+): (.*?)\}\}(?:$|\s)", re.MULTILINE)


def modules() -> list[tuple[str, int, str]]:
    """Every module of every file with its place."""
    found = []
    for file in sorted(FOLDER.glob("*.hlo")):
        parts = re.split(r"^// -----.*\n", file.read_text(), flags=re.MULTILINE)
        found += [(file.stem, number, part) for number, part in enumerate(parts, start=1)]
    return found


def errors_of(text: str, *, layout_sensitive: bool) -> tuple[HloError, ...]:
    try:
        verify(parse(text), layout_sensitive=layout_sensitive)
    except HloErrors as errors:
        return errors.errors
    return ()


@pytest.mark.parametrize(("name", "number", "text"), modules())
def test_verifier_file(name: str, number: int, text: str) -> None:
    wanted = [(text.count("\n", 0, m.start()) + 1, m[1], m[2]) for m in EXPECTED.finditer(text)]
    found = list(errors_of(text, layout_sensitive="layout-sensitive" in text.split("\n")[0]))
    for line, code, message in wanted:
        match = next((e for e in found if e.line == line and e.code == code
                      and message in e.message), None)  # fmt: skip
        assert match is not None, f"{name}:{number}: line {line} lacks {code}: {message}; {found}"
        found.remove(match)
    assert not found, f"{name}:{number}: unexpected {[f'{e.line}: {e.message}' for e in found]}"


def _program(root: str) -> str:
    parameters = "  p = f32[2] parameter(0)\n  q = f32[3] parameter(1)\n"
    return f"HloModule m\nENTRY e {{\n{parameters}  ROOT r = {root}\n}}\n"


@pytest.mark.parametrize(
    ("instruction", "caret"),
    [
        ("f32[2] add(p, q)", "q"),
        ("f32[4] negate(p)", "f32[4]"),
        ("f32[2] transpose(p), dimensions={1}", "dimensions={1}"),
        ("f32[2] negate(p), control-predecessors={q}", None),
    ],
)
def test_caret_stands_under_the_part_that_is_wrong(instruction: str, caret: str | None) -> None:
    found = errors_of(_program(instruction), layout_sensitive=False)
    assert [e.span.text if e.span else "" for e in found] == ([caret] if caret else [])


def test_operand_errors_say_where_the_operand_is_defined() -> None:
    (error,) = errors_of(_program("f32[2] add(p, q)"), layout_sensitive=False)
    assert [note.message for note in error.notes] == ["'q' is defined here"]
    assert "5:" in str(error)
