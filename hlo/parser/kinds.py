"""Which attributes an opcode or a header may carry, and of which kind, as the op table says.

Any instruction may have the attributes of docs/text.md 5.15; a header those of 2.2. Asynchronous
sugar (`negate-start`) takes the attributes of the wrapped opcode and those of async-start.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from hlo.attributes.kind import AttributeKind
from hlo.attributes.names import COMPUTATION
from hlo.attributes.scalars import STRING
from hlo.ops.attributes import Attr
from hlo.ops.instruction_attributes import INSTRUCTION_ATTRS
from hlo.ops.module_attributes import MODULE_ATTRS
from hlo.ops.table import OPS

HEADER = "HloModule"  # what stands for an opcode where a header's attributes are looked up

_ANY_INSTRUCTION = {n: attr for n, attr in INSTRUCTION_ATTRS.items() if n != "result_accuracy"}
PAYLOADS = {"constant": "AS_LITERAL", "parameter": "AS_NUMBER"}  # what else parentheses may hold
_PAYLOAD_NAMES = {"constant": "literal", "parameter": "parameter_number"}
ASYNC_SUFFIXES = ("-start", "-update", "-done")
_CALLED = Attr(COMPUTATION)
_THREAD = {"async_execution_thread": Attr(STRING)}
_ALIASING = {"output_to_operand_aliasing": Attr("OUTPUT_TO_OPERAND_ALIASING")}
_ASYNC: Mapping[str, Mapping[str, Attr]] = {
    "async-start": {**_THREAD, "calls": _CALLED, **_ALIASING},
    "async-update": {**_THREAD, "calls": _CALLED, **_ALIASING},
    "async-done": {**_THREAD, "calls": _CALLED},
}


def is_async(opcode: str) -> bool:
    """Whether it is one of the three asynchronous opcodes that the sugar stands for."""
    return opcode in _ASYNC


def async_parts(opcode: str) -> tuple[str, str] | None:
    """(wrapped opcode, suffix) of asynchronous sugar; a whole word that is an opcode is none."""
    if opcode in OPS:
        return None
    for suffix in ASYNC_SUFFIXES:
        base = opcode.removesuffix(suffix)
        if base != opcode and base in OPS:
            return base, suffix
    return None


def is_opcode(word: str) -> bool:
    """Whether an instruction may be written with it."""
    return word in OPS or is_async(word) or async_parts(word) is not None


@lru_cache(maxsize=1024)
def allowed_attributes(opcode: str) -> Mapping[str, Attr]:
    """The attributes that text may give to an opcode; empty for an unknown one."""
    if opcode == HEADER:
        return MODULE_ATTRS
    if opcode in _ASYNC:
        return {**_ASYNC[opcode], **_ANY_INSTRUCTION}
    if opcode in OPS:
        payload = _PAYLOAD_NAMES.get(opcode)
        own = {n: a for n, a in OPS[opcode].attrs.items() if n != payload}
        if opcode == "custom-call":
            own["to_apply"] = _CALLED  # an old spelling of called_computations={...}
        return {**own, **_ANY_INSTRUCTION}
    parts = async_parts(opcode)
    if parts is None:
        return {}
    base, suffix = parts
    if suffix == "-start":
        return {**allowed_attributes(base), **_ASYNC["async-start"]}
    return {**_THREAD, **_ALIASING, **_ANY_INSTRUCTION}


def attribute_kind(opcode: str, name: str) -> AttributeKind | None:
    """The kind of one attribute of an opcode; None: it has no such attribute."""
    attr = allowed_attributes(opcode).get(name)
    return None if attr is None else attr.kind
