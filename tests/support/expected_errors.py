"""Golden programs whose faulty lines say their error: `// expected-error {{code: text}}`."""

from __future__ import annotations

import re

from hlo.errors import HloErrors

_EXPECTED = re.compile(r"//\s*expected-error\s*\{\{(.*)\}\}\s*$")


def expected(text: str) -> list[tuple[int, str]]:
    """Line numbers and the beginnings of their errors."""
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        match = _EXPECTED.search(line)
        if match:
            found.append((number, match[1]))
    return found


def unmatched(text: str, errors: HloErrors) -> list[str]:
    """What was expected and did not come, and what came unexpected."""
    wanted = expected(text)
    rows = []
    for error in errors.errors:
        said = f"{error.code}: {error.message}"
        hit = next((w for w in wanted if w[0] == error.line and said.startswith(w[1])), None)
        if hit is None:
            rows.append(f"unexpected at line {error.line}: {said}")
        else:
            wanted.remove(hit)
    return rows + [f"missing at line {line}: {said}" for line, said in wanted]
