"""Mutated text: bytes changed, tokens dropped, doubled, swapped, replaced, huge, nested."""

from __future__ import annotations

import random
import re

_TOKEN = re.compile(r"[A-Za-z_%][\w.\-]*|\d+|\s+|.", re.DOTALL)
_BYTES = "{}()[],=:\"'%*#+~-<>?.\\/\0\r\n 0aR\xe9\u20ac"
_WORDS = (
    "99999999999999999999", "-1", "9223372036854775807", "1e400", "nan", "true", "f32", "ENTRY",
    "ROOT", "{", "}", "((((((((", "{...}", "/*", "//", '"', "'", "b(", "f32[1000000000000]{0}",
    "token[]", "()", "parameter", "constant", "->", "<=",
)  # fmt: skip
_NUMBERS = ("0", "1", "7", "1000000000000", "99999999999999999999", "-3")


def mutated(text: str, rng: random.Random) -> str:
    """The text with one mutation."""
    kind = rng.randrange(8)
    if kind == 0:
        at = rng.randrange(len(text))
        return text[:at] + rng.choice(_BYTES) + text[at + 1 :]
    tokens = _TOKEN.findall(text)
    at = rng.randrange(len(tokens))
    if kind == 1:
        del tokens[at]
    elif kind == 2:
        tokens.insert(at, tokens[at])
    elif kind == 3:
        other = rng.randrange(len(tokens))
        tokens[at], tokens[other] = tokens[other], tokens[at]
    elif kind == 4:
        tokens[at] = rng.choice(_WORDS)
    elif kind == 5:
        numbers = [k for k, token in enumerate(tokens) if token.isdigit()]
        tokens[rng.choice(numbers or [at])] = rng.choice(_NUMBERS)
    elif kind == 6:
        tokens[at] *= rng.choice((2, 50, 5000))
    else:
        end = min(len(tokens), at + rng.randrange(1, 30))
        tokens[at:end] = tokens[at:end] * rng.randrange(4)
    return "".join(tokens) or " "


def mutated_often(text: str, rng: random.Random) -> str:
    """One to four mutations."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        text = mutated(text, rng)
    return text


_HLO_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[A-Za-z_%][\w.\-]*=?|\d+|\s+|->|.', re.DOTALL)


def mutated_token(text: str, rng: random.Random) -> str:
    """One token dropped, doubled, replaced or moved by another one of the same text."""
    tokens = _HLO_TOKEN.findall(text)
    at, other = rng.randrange(len(tokens)), rng.randrange(len(tokens))
    kind = rng.randrange(5)
    if kind == 0:
        del tokens[at]
    elif kind == 1:
        tokens.insert(at, tokens[at])
    elif kind == 2:
        tokens[at] = tokens[other]
    elif kind == 3:
        tokens[at], tokens[other] = tokens[other], tokens[at]
    else:
        numbers = [k for k, token in enumerate(tokens) if token.isdigit()]
        tokens[rng.choice(numbers or [at])] = rng.choice(("0", "1", "2", "3", "5", "-1"))
    return "".join(tokens)
