"""After a syntax error: where reading goes on, so that one text gives all its independent errors.

Inside a computation the machine forgets the faulty instruction (what is named after it is poisoned)
and goes on at the next `name =` or at the computation's end; elsewhere at the next line that looks
like a computation's head.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from hlo.parser.actions import Actions
from hlo.parser.build import Scope
from hlo.parser.engine import Machine
from hlo.parser.lexer import END, Lexer, Token
from hlo.parser.stacks import parts_of
from hlo.parser.terminals import pattern

_HEAD = (
    r"(?m)^[ \t]*(?:@ENTRY[ \t]+)?%?@IDENT[ \t]*(?:@LPAR[^\n]*@RPAR[ \t]*@ARROW[^\n]*)?"
    r"@LBRACE[ \t\r]*$"
)


def resume(machine: Machine, actions: Actions, fault_start: int) -> bool:
    """Set the machine behind the faulty instruction; False where it is in no computation."""
    states, stack = machine.states, machine.state.state_stack
    values = machine.state.value_stack
    level = next(
        (i for i in range(len(stack) - 1, -1, -1) if "instruction" in states[stack[i]]), -1
    )
    if level < 0:
        return False
    forgotten = values[level:]
    depth = sum(_brace(v) for v in forgotten)
    at = _next_instruction(machine.text, max(fault_start, machine.at), depth)
    if at is None:
        return False
    del stack[level + 1 :]
    del values[level:]
    _poison(actions, forgotten, values)
    following = states[stack[-1]]["instruction"]
    assert isinstance(following, int), "a state"
    stack.append(following)
    values.append(None)
    machine.at, machine.previous = at, ""
    return True


def next_head(text: str, at: int) -> int | None:
    """Where the next computation seems to begin."""
    line = text.find("\n", at)
    match = pattern(_HEAD).search(text, line) if line >= 0 else None
    return None if match is None else match.start()


def _brace(value: object) -> int:
    return int(isinstance(value, Token) and value.type in ("LBRACE", "LAYOUT"))


def _poison(actions: Actions, forgotten: list[object], kept: list[object]) -> None:
    """What the faulty instruction would have defined is no news when it is missing."""
    builder = actions.builder
    opened = int(builder.single) + sum(isinstance(v, Scope) for v in kept)
    del builder.scopes[max(1, opened) :]
    if builder.scopes:
        builder.scopes[-1].poisoned.add("")  # it may have no name, and is missing all the same
        builder.scopes[-1].poisoned.update(_defined(forgotten))


def _defined(forgotten: list[object]) -> Iterator[str]:
    """The names left of `=`, whether the machine has reduced them to a `left` yet or not."""
    for value, after in itertools.zip_longest(forgotten, forgotten[1:]):
        is_left = isinstance(value, tuple) or (isinstance(after, Token) and after.type == "EQUAL")
        parts = parts_of(value)
        token = parts[0] if isinstance(parts, tuple | list) and parts else parts
        if is_left and isinstance(token, Token):
            yield token.value.removeprefix("%").removesuffix(":")


def _next_instruction(text: str, at: int, depth: int) -> int | None:
    """The next `ROOT? name =`, or the `}` that ends the computation."""
    lexer = Lexer(text)
    before = lexer.token(at)
    token = lexer.token(before.end_pos, before.type)
    if before.type == "RBRACE" and depth <= 0:
        return before.start_pos
    root: Token | None = before if before.type == "ROOT" else None
    depth += _brace(before) - (before.type == "RBRACE")
    while token.type != END:
        if token.type == "RBRACE" and (depth <= 0 or _begins_line(text, token.start_pos)):
            return token.start_pos
        depth += _brace(token) - (token.type == "RBRACE")
        after = lexer.token(token.end_pos, token.type)
        if token.type in ("NAME", "IDENT") and after.type == "EQUAL":
            return token.start_pos if root is None else root.start_pos
        root = token if token.type == "ROOT" else None
        token = after
    return None


def _begins_line(text: str, at: int) -> bool:
    return at == 0 or text[at - 1] == "\n"
