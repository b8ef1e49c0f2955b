"""Functions of LLVM IR read from their text, for tests of what passes make of kernels."""

from __future__ import annotations

import re

from hlo.backend.ir.functions import Data, Definition, Function
from hlo.backend.ir.records import (
    Alloca,
    Arithmetic,
    Branch,
    Call,
    Cast,
    GetElementPtr,
    Instruction,
    Label,
    Line,
    Load,
    Phi,
)
from hlo.backend.ir.values import Value, vector_of

_TYPE = r"(?:<[^>]*>|\{[^{}]*\}|\[[^\]]*\]|ptr|label|[if]\d+|float|double|half|bfloat|void)"
_HEAD = re.compile(
    rf"define (internal )?({_TYPE}) @([\w.$-]+)\((.*?)\) ?([^{{]*?) ?\{{\n(.*?)\n?\}}(\n?)",
    re.DOTALL,
)
_LINE = re.compile(r"(?:(%\S+) = )?(.*?)((?:, align \d+)?(?:, ![^,]*)*)")
_PHI = re.compile(rf"phi ({_TYPE}) (.*)")
_END = re.compile(r"\[ ?(\S+), %([\w.$-]+) ?\]")
_CALL = re.compile(rf"call ({_TYPE}) @([\w.$-]+)\((.*)\)")
_CAST = re.compile(rf"([a-z]+) ({_TYPE}) (.*) to ({_TYPE})")
_LOAD = re.compile(rf"load ({_TYPE}), (.*)")
_ADDRESS = re.compile(rf"(getelementptr(?: inbounds)?) ({_TYPE}), (.*)")
_ALIKE = re.compile(rf"([a-z]+(?: [a-z]+)*) ({_TYPE}) ([^,]+)(?:, ([^,]+))?")
_TYPED = re.compile(rf"({_TYPE}) (splat \([^)]*\)|<[^>]*>|[^\s,]+)")
_OF_OPERANDS = ("br", "ret", "store", "select", "insertelement", "extractelement", "shufflevector")


def function_of(text: str) -> Definition:
    """What a definition defines."""
    if text.startswith("@"):
        return Data(text[1 : text.index(" ")], text)
    head = _HEAD.fullmatch(text)
    assert head, f"a function: {text[:80]}"
    linkage, result, symbol, parameters, attributes, body, ending = head.groups()
    made = Function(
        parameters=_values(parameters),
        records=[_record(line) for line in body.split("\n") if line],
        result=result,
        symbol=symbol,
        attributes=attributes,
        linkage=(linkage or "").strip(),
        ends_line=bool(ending),
    )
    lines = [line for line in body.split("\n") if line]
    assert [str(r) for r in made.records] == lines, f"prints as it was read: {made.text}"
    assert made.text.startswith(text[: head.start(6)].rstrip("\n")), "and so does its head"
    return made


def _values(text: str) -> tuple[Value, ...]:
    return tuple(Value(value, type) for type, value in _TYPED.findall(text))


def _record(line: str) -> Line:
    if line.endswith(":"):
        return Label(line[:-1])
    found = _LINE.fullmatch(line.strip())
    assert found, line
    name, text, rest = found[1] or "", found[2], found[3]
    opcode = text.split(" ", 1)[0]
    if phi := _PHI.fullmatch(text):
        ends = _END.findall(phi[2])
        operands = tuple(Value(value, phi[1]) for value, _ in ends)
        blocks = tuple(block for _, block in ends)
        return Phi(name, phi[1], "phi", operands, rest, "", blocks, "[ " not in text)
    if call := _CALL.fullmatch(text):
        return Call(name, call[1], "call", _values(call[3]), rest, symbol=call[2])
    if load := _LOAD.fullmatch(text):
        return Load(name, load[1], "load", _values(load[2]), rest)
    if address := _ADDRESS.fullmatch(text):
        return GetElementPtr(name, "ptr", address[1], _values(address[3]), rest, element=address[2])
    if opcode == "alloca":
        return Alloca(name, "ptr", opcode, (), rest, memory=text.removeprefix("alloca "))
    if cast := _CAST.fullmatch(text):
        return Cast(name, cast[4], cast[1], (Value(cast[3], cast[2]),), rest)
    if text == "ret void":
        return Instruction("", "void", text, ())
    if opcode in _OF_OPERANDS:
        operands = _values(text)
        kind = Branch if opcode == "br" else Instruction
        return kind(name, operands[-1].type if name else "void", opcode, operands, rest)
    alike = _ALIKE.fullmatch(text)
    assert alike, line
    operands = tuple(Value(value, alike[2]) for value in alike.groups()[2:] if value)
    type = vector_of("i1", operands[0].lanes) if opcode in ("icmp", "fcmp") else alike[2]
    return Arithmetic(name, type, alike[1], operands, rest)
