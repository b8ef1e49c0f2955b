"""What a file's bytes are, told by themselves and not by the file's name.

bytes --recognised--> Form: HLO text, a message (binary, text, JSON), MLIR; or None
"""

from __future__ import annotations

import re
from enum import Enum, auto

from hlo.errors import HloError
from hlo.formats import json_format, text_format, wire
from hlo.formats.message import Message
from hlo.formats.program import HEADER
from hlo.tools.files.reading import decode

UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # begin its texts
BYTECODE = b"ML\xefR"  # begins MLIR bytecode, portable artifacts of StableHLO among it
MLIR = re.compile(
    r"\s*(?://[^\n]*\n\s*)*(?:module\b[^=\n]*\{|#\w+ = |\"builtin\.module\"|func\.func)"
)
OF_MLIR = re.compile(r"\b(?:func\.func|func\.return|stablehlo\.|mhlo\.|chlo\.|builtin\.module)")
JSON = re.compile(r"\s*\{\s*(?:\"|\})")
FIELD = r"(?:hlo_module|hlo|partitions|arguments|computations|host_program_shape)"
TEXT_MESSAGE = re.compile(
    rf"(?:\s|#[^\n]*\n)*(?:{FIELD}\s*:?\s*[{{<\[]\s*\w+\s*[:{{<]"
    r"|(?:name|entry_computation_name|execution_platform|version)\s*:)"
)
# A message that holds a module, and the way to it; the first that fits counts.
KINDS: dict[str, tuple[str, ...]] = {
    "HloProto": ("hlo_module",),
    "HloSnapshot": ("hlo", "hlo_module"),
    "HloUnoptimizedSnapshot": ("hlo_module",),
    "HloModuleProto": (),
}


class Form(Enum):
    """What the bytes are."""

    HLO = auto()
    MESSAGE = auto()  # a protocol buffer in binary form
    TEXT_MESSAGE = auto()
    JSON_MESSAGE = auto()
    MLIR = auto()
    BYTECODE = auto()
    UNKNOWN = auto()


def recognised(data: bytes) -> Form:
    """The form of bytes; HLO where they are a text that is nothing else."""
    if data.startswith(BYTECODE):
        return Form.BYTECODE
    if _is_binary(data):
        return Form.MESSAGE
    text = decode(data)
    if HEADER.search(text):
        return Form.HLO
    if MLIR.match(text) and OF_MLIR.search(text):
        return Form.MLIR
    if JSON.match(text):
        return Form.JSON_MESSAGE
    return Form.TEXT_MESSAGE if TEXT_MESSAGE.match(text) else Form.HLO


# Bytes that stand in no text: what a message writes for the lengths and kinds of its fields.
CONTROL = bytes(set(range(0x20)) - set(b"\t\n\r\f\v\x1b")) + b"\x7f"
LOOKED_AT = 4096
SHARE = 50  # one such byte among so many is no text


def _is_binary(data: bytes) -> bool:
    """Whether bytes are no text; one with a stray byte still is one, and its reader shows it."""
    head = data[:LOOKED_AT]
    return SHARE * (len(head) - len(head.translate(None, CONTROL))) > len(head)


def message_in(data: bytes, form: Form, name: str) -> Message:
    """The message in bytes, of the kind of KINDS that it fits. Raises HloError."""
    if form is Form.MESSAGE:
        return _binary(data, name)
    text = decode(data)
    parse = json_format.parse_json if form is Form.JSON_MESSAGE else text_format.parse_text
    problem: HloError | None = None
    for kind in KINDS:
        try:
            message = parse(text, kind, name)
        except HloError as error:
            problem = _further(problem, error)
            continue
        if module_in(message) is not None:
            return message
        raise _no_module(name)
    assert problem is not None, "one for each kind"
    raise problem


def _further(a: HloError | None, b: HloError) -> HloError:
    """The error of the kind that fitted the text longest."""
    if a is None or a.span is None or b.span is None:
        return a or b
    return b if b.span.start > a.span.start else a


def _binary(data: bytes, name: str) -> Message:
    fitting: list[tuple[int, Message]] = []
    problem: HloError | None = None
    for kind in KINDS:
        try:
            message = wire.decode(data, kind)
            module = module_in(message)
        except HloError as error:
            problem = error
            continue
        if module is not None:
            fitting.append((len(message.unknown), message))
    if not fitting:
        said = f": {problem.message}" if problem is not None and problem.code == "limit" else ""
        help = "it is a text in UTF-16: save it as UTF-8" if data.startswith(UTF_16) else ""
        found = f"{name} is no HLO text and no protocol buffer of a module{said}"
        raise HloError("message", found, help=help)
    return min(fitting, key=lambda pair: pair[0])[1]


def module_in(message: Message) -> Message | None:
    """The HloModuleProto that a message of KINDS holds, if it is one with computations."""
    module = message
    for part in KINDS[message.type.name]:
        if part not in module:
            return None
        module = module.child(part)
    computations = module.children("computations")
    is_module = any(c.children("instructions") for c in computations)
    return module if is_module else None


def _no_module(name: str) -> HloError:
    return HloError("message", f"{name} holds no module with computations, expected one")
