"""The pipeline language: `a,b{option=value},fixpoint(c,d),layers(e),simplify` to a tuple of steps.

`-` and `_` are interchangeable in names; a pipeline's name stands for its steps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache

from msgspec import Struct

from hlo.errors import HloError
from hlo.passes.catalogue import CATALOGUE, PIPELINES, option_types

TOKEN = re.compile(r"\s*([A-Za-z0-9_.\-]+|[(),{}=])")
MOST_ROUNDS = 8  # Rounds of a fixpoint group: no module of the corpus was changed by a further one.


class Step(Struct, frozen=True):
    """One pass with its options."""

    name: str
    options: tuple[tuple[str, object], ...] = ()

    def __str__(self) -> str:
        if not self.options:
            return self.name
        inside = ",".join(f"{k.replace('_', '-')}={_option_text(v)}" for k, v in self.options)
        return f"{self.name}{{{inside}}}"


class Fixpoint(Struct, frozen=True):
    """Steps run again and again until none changes the module, at most `rounds` times."""

    steps: Steps
    rounds: int = MOST_ROUNDS

    def __str__(self) -> str:
        return f"fixpoint({','.join(map(str, self.steps))})"


class Layers(Struct, frozen=True):
    """Steps that see a few of the equal layers of a network, and rewrite all of them so."""

    steps: Steps

    def __str__(self) -> str:
        return f"layers({','.join(map(str, self.steps))})"


Steps = tuple[Step | Fixpoint | Layers, ...]
GROUPS: dict[str, Callable[[Steps], Fixpoint | Layers]] = {"fixpoint": Fixpoint, "layers": Layers}


@lru_cache(maxsize=64)
def parse_pipeline(text: str) -> Steps:
    """The steps of a pipeline's text; HloError for an unknown name, option or value. Each program
    that is compiled asks for the same few.
    """
    tokens = list(_tokens(text))
    steps, rest = _steps(tokens, 0)
    if rest != len(tokens):
        raise HloError("pipeline", f"passes: found {tokens[rest]!r}, expected a comma or the end")
    return steps


def _tokens(text: str) -> Iterator[str]:
    at = 0
    text = text.rstrip()
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            raise HloError(
                "pipeline", f"passes: found {text[at]!r}, expected a pass name", help=HELP
            )
        yield match[1]
        at = match.end()


HELP = (
    "hlo-opt --list-passes names them all; the form is a,b{option=value},fixpoint(c,d),layers(e,f)"
)


def _steps(tokens: list[str], at: int) -> tuple[Steps, int]:
    """Steps separated by commas up to a `)` or the end. Depth is bounded by groups."""
    if at > 0 and tokens[: at + 1].count("(") - tokens[: at + 1].count(")") > 16:
        raise HloError("pipeline", "passes: more than 16 nested groups, expected at most 16")
    steps: list[Step | Fixpoint | Layers] = []
    while at < len(tokens) and tokens[at] != ")":
        name = tokens[at]
        at += 1
        if name in GROUPS and tokens[at : at + 1] == ["("]:
            inner, at = _steps(tokens, at + 1)
            if tokens[at : at + 1] != [")"]:
                raise HloError("pipeline", f"passes: {name}( has no ), expected one", help=HELP)
            steps.append(GROUPS[name](inner))
            at += 1
        else:
            options, at = _options(tokens, at)
            steps += _named(name, options)
        if at < len(tokens) and tokens[at] == ",":
            at += 1
        elif at < len(tokens) and tokens[at] != ")":
            raise HloError("pipeline", f"passes: found {tokens[at]!r}, expected a comma", help=HELP)
    return tuple(steps), at


def _options(tokens: list[str], at: int) -> tuple[dict[str, str], int]:
    options: dict[str, str] = {}
    if tokens[at : at + 1] != ["{"]:
        return options, at
    at += 1
    while at < len(tokens) and tokens[at] != "}":
        if at + 2 >= len(tokens) or tokens[at + 1] != "=":
            raise HloError("pipeline", "passes: an option is written name=value", help=HELP)
        options[tokens[at].replace("-", "_")] = tokens[at + 2]
        at += 3
        if tokens[at : at + 1] == [","]:
            at += 1
    if at >= len(tokens):
        raise HloError("pipeline", "passes: { has no }, expected one", help=HELP)
    return options, at + 1


def _named(name: str, options: dict[str, str]) -> Steps:
    if name in PIPELINES:
        if options:
            raise HloError("pipeline", f"passes: pipeline {name} has options, expected none")
        return parse_pipeline(",".join(PIPELINES[name]))
    known = canonical_name(name)
    if known is None:
        import difflib  # for faults alone

        near = difflib.get_close_matches(name, [*CATALOGUE, *PIPELINES], 1)
        hint = f"did you mean {near[0]}?" if near else HELP
        raise HloError("unknown-pass", f"passes: there is no pass {name}", help=hint)
    return (Step(known, tuple(_typed_options(known, options))),)


def canonical_name(name: str) -> str | None:
    """The catalogue's spelling of a pass name, `-` and `_` interchangeable."""
    if name in CATALOGUE:
        return name
    folded = name.replace("_", "-")
    return next((n for n in CATALOGUE if n.replace("_", "-") == folded), None)


def _typed_options(name: str, options: dict[str, str]) -> Iterator[tuple[str, object]]:
    defaults = option_types(CATALOGUE[name]) if options else {}
    for key, text in options.items():
        if key not in defaults:
            expected = ", ".join(defaults) or "none"
            raise HloError("pipeline", f"{name}: option {key}, expected one of: {expected}")
        yield key, _value(name, key, text, defaults[key])


def _value(name: str, key: str, text: str, default: object) -> object:
    if isinstance(default, bool):
        if text not in ("true", "false"):
            raise HloError("pipeline", f"{name}: {key} is {text}, expected true or false")
        return text == "true"
    if isinstance(default, int):
        if not re.fullmatch(r"-?\d{1,18}", text):
            raise HloError("pipeline", f"{name}: {key} is {text}, expected an integer")
        return int(text)
    return text


def _option_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
