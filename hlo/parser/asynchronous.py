"""Asynchronous instructions: async-start, -update, -done, and the sugar `negate-start`.

x = ((f32[2]), f32[2], s32[]) negate-start(p)
=>  async_wrapped { async_param = f32[2] parameter(0)  ROOT negate = f32[2] negate(async_param) }
    x = ((f32[2]), f32[2], s32[]) async-start(p), calls=async_wrapped
"""

from __future__ import annotations

from collections.abc import Callable

from hlo.errors import Violation
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.ops.instruction_attributes import INSTRUCTION_ATTRS
from hlo.ops.table import OPS
from hlo.parser.kinds import PAYLOADS, async_parts, is_async
from hlo.parser.wording import near_opcode

# Makes the computation that a sugared start calls, of (opcode, result, operands, attributes).
Wrap = Callable[[str, Shape, tuple[Instruction, ...], dict[str, object]], Computation]

_COPIED = ("metadata", "origin", "backend_config", "frontend_attributes", "statistics")
_THREAD = "async_execution_thread"


def unknown_opcode(opcode: str) -> Violation:
    """The fault of a word that names no operation."""
    return Violation(
        "unknown-opcode", "opcode", f"{opcode} unknown", "an opcode", help=near_opcode(opcode)
    )


def build_async(
    wrap: Wrap,
    name: str,
    opcode: str,
    shape: Shape | None,
    operands: tuple[Instruction, ...],
    attributes: dict[str, object],
) -> Instruction:
    """An asynchronous instruction, explicit or from sugar; any other opcode is unknown."""
    base, suffix = ("", opcode.removeprefix("async"))
    if not is_async(opcode):
        parts = async_parts(opcode)
        if parts is None:
            raise unknown_opcode(opcode)
        base, suffix = parts
        if f"{base}-done" in OPS or base in PAYLOADS:
            raise Violation(
                "unknown-opcode", "opcode", f"{opcode} unknown", f"another form of {base}"
            )
    if shape is None:
        raise Violation(
            "shape-missing", "", "written without a shape", "one: it cannot be inferred"
        )
    if suffix == "-start":
        return _start(wrap, name, base, shape, operands, attributes)
    return _continued(name, base, suffix, shape, operands, attributes)


def _start(
    wrap: Wrap,
    name: str,
    base: str,
    shape: Shape,
    operands: tuple[Instruction, ...],
    attributes: dict[str, object],
) -> Instruction:
    parts = shape.elements
    if not shape.is_tuple or len(parts) < 2 or not parts[0].is_tuple:
        raise Violation("shape-mismatch", "result", str(shape), "((operands), outputs, state)")
    if base:
        own = {k: v for k, v in attributes.items() if not _stays(base, k)}
        attributes = {k: v for k, v in attributes.items() if _stays(base, k)}
        attributes["calls"] = wrap(base, parts[1], operands, own)
    callee = attributes.get("calls")
    if callee is None:
        raise Violation("attribute-missing", "", "no attribute calls", "calls=")
    assert isinstance(callee, Computation), "resolved"
    _set_thread(callee, str(attributes.get(_THREAD, "main")))
    _copy_attributes(callee, attributes)
    return Instruction(name, "async-start", shape, operands, attributes)


def _copy_attributes(callee: Computation, attributes: dict[str, object]) -> None:
    """What XLA sets on the wrapped instruction as well."""
    copied = {k: attributes[k] for k in _COPIED if k in attributes}
    if copied:
        callee.root.attributes = {**callee.root.attributes, **copied}


def _stays(base: str, attribute: str) -> bool:
    """Whether a sugared start keeps the attribute; the others belong to the wrapped opcode."""
    if attribute in OPS[base].attrs or attribute == "result_accuracy":
        return False
    return attribute in INSTRUCTION_ATTRS or attribute in (_THREAD, "output_to_operand_aliasing")


def _set_thread(callee: Computation, thread: str) -> None:
    """The thread of the wrapped computation and of all that it calls, nested starts included."""
    stack, seen = [callee], set()
    while stack:
        computation = stack.pop()
        if computation in seen:
            continue
        seen.add(computation)
        computation.execution_thread = thread
        for instruction in computation.instructions:
            stack += instruction.called_computations()
            if instruction.opcode == "async-start" and _THREAD in instruction.attributes:
                instruction.attributes = {**instruction.attributes, _THREAD: thread}


def _continued(
    name: str,
    base: str,
    suffix: str,
    shape: Shape,
    operands: tuple[Instruction, ...],
    attributes: dict[str, object],
) -> Instruction:
    """async-update or async-done: of one operand that is an async-start or async-update itself."""
    if len(operands) != 1 or operands[0].opcode not in ("async-start", "async-update"):
        found = ", ".join(f"{o.name} (a {o.opcode})" for o in operands) or "nothing"
        raise Violation("async-chain", "", f"of {found}", "one async-start or async-update")
    if suffix == "-update" and shape != operands[0].shape:
        raise Violation(
            "shape-mismatch", "result", str(shape), f"{operands[0].shape}, the operand's shape"
        )
    start = operands[0]
    while start.opcode != "async-start":
        start = start.operands[0]
    callee = start.attributes["calls"]
    assert isinstance(callee, Computation), "resolved"
    if base and base != callee.root.opcode:
        raise Violation("async-chain", "opcode", base, f"{callee.root.opcode}, the wrapped opcode")
    if attributes.get("calls", callee) is not callee:
        raise Violation(
            "async-chain", "calls", "another computation", f"{callee.name}, as its start"
        )
    thread = attributes.get(_THREAD, callee.execution_thread)
    if thread != callee.execution_thread:
        expected = f"{callee.execution_thread!r}, the start's"
        raise Violation("async-chain", _THREAD, f"{thread!r}", expected)
    _copy_attributes(callee, attributes)
    return Instruction(name, f"async{suffix}", shape, operands, attributes)
