"""Types of values that LLVM text defines, read off the defining line."""

from __future__ import annotations

import re

_TYPE = r"(?:<\d+ x [\w ]+?>|\{[^{}]*\}|[\w]+)"
_ASSIGNED = re.compile(r"\s*%[\w.$-]+ = (?:tail )?(?P<opcode>[a-z]+) (?P<rest>.*)")
_FLAGS = re.compile(
    r"(?:(?:nuw|nsw|exact|disjoint|nneg|inbounds|volatile|nnan|ninf|nsz|arcp|contract|afn|reassoc"
    r"|fast|samesign) )*"
)
_LEADING = re.compile(_TYPE)
_INTO = re.compile(rf" to ({_TYPE})(?:,|$| !)")
_VECTOR = re.compile(r"<(\d+) x ([\w ]+?)>")
# Of `i1 condition, T a, T b`: the condition may be a constant with commas of its own.
_CHOICE = re.compile(rf"(?:i1|<\d+ x i1>) (?:%[\w.$-]+|<[^>]*>|\w+(?: \([^)]*\))?), ({_TYPE}) ")
_LANES = re.compile(r", <(\d+) x ")  # of pointers or offsets that are vectors
_MASK = re.compile(r"<(\d+) x i32> \S")

# Instructions whose result has the first type that follows them.
_OWN = re.compile(
    r"f?(?:add|sub|mul|rem|neg)|[usf](?:div|rem)|shl|[la]shr|and|x?or|load|phi|call|freeze"
    r"|insertelement"
)
_CASTS = re.compile(r"trunc|[zs]ext|fp(?:trunc|ext|to[us]i)|[us]itofp|ptrtoint|inttoptr|bitcast")
_ADDRESSES = frozenset(["getelementptr", "alloca"])


def result_type(line: str) -> str:
    """The type of what a line defines; "" where the line does not show it simply."""
    found = _ASSIGNED.match(line)
    if found is None:
        return ""
    opcode, rest = found["opcode"], _FLAGS.sub("", found["rest"], count=1)
    if opcode in _ADDRESSES:
        lanes = _LANES.search(rest)
        return f"<{lanes[1]} x ptr>" if lanes else "ptr"
    if _CASTS.fullmatch(opcode):
        into = _INTO.search(rest)
        return into[1] if into else ""
    if _OWN.fullmatch(opcode):
        return _leading(rest)
    if opcode in ("icmp", "fcmp"):
        return _lanes_of_i1(_leading(rest.split(" ", 1)[1]))
    if opcode == "select":
        chosen = _CHOICE.match(rest)
        return chosen[1] if chosen else ""
    if opcode == "extractelement":
        vector = _VECTOR.match(rest)
        return vector[2] if vector else ""
    if opcode == "shufflevector":
        return _shuffled(rest)
    return ""


def _leading(text: str) -> str:
    found = _LEADING.match(text)
    return found[0] if found else ""


def _lanes_of_i1(type: str) -> str:
    vector = _VECTOR.match(type)
    return f"<{vector[1]} x i1>" if vector else "i1"


def _shuffled(rest: str) -> str:
    """Of `T a, T b, <N x i32> mask`: N elements."""
    vector, masks = _VECTOR.match(rest), _MASK.findall(rest)
    return f"<{masks[-1]} x {vector[2]}>" if vector and masks else ""
