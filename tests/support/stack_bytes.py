"""What the functions of emitted IR have on the stack."""

from __future__ import annotations

import re
from collections.abc import Iterator

_HEAD = re.compile(r"^define [^@]*@([\w.$-]+)")
_ALLOCA = re.compile(r"= alloca ([^\n]*)")
_FORM = re.compile(r"(?:\[(\d+) x (i8|i64|ptr)\]|(i32|ptr))(?:, align \d+)?")
_BYTES = {"i8": 1, "i32": 4, "i64": 8, "ptr": 8}


def stack_bytes(text: str) -> Iterator[tuple[str, int]]:
    """(function, bytes of all that it allocates); fails on a size that the text does not say."""
    for body in re.split(r"(?m)^(?=define )", text):
        head = _HEAD.match(body)
        if head is None:
            continue
        total = 0
        for written in _ALLOCA.findall(body):
            form = _FORM.fullmatch(written)
            assert form is not None, f"@{head[1]}: alloca {written}"
            count, element, alone = form.groups()
            total += int(count) * _BYTES[element] if element else _BYTES[alone]
        yield head[1], total
