"""Calls: what fusions and other callers ask of the computations they call, beyond signatures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from hlo.attributes.aliasing import OperandAlias
from hlo.errors import Violation
from hlo.ir.computation import Computation
from hlo.ir.dtype import BUFFER
from hlo.ir.instruction import CALLING_ATTRIBUTES, Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Shape, compatible, shape_text
from hlo.ops.effects import acts
from hlo.ops.table import OPS
from hlo.verifier.report import Report

if TYPE_CHECKING:
    from hlo.attributes.sharding import Sharding

SAME_THREAD = frozenset({"fusion", "while", "conditional"})
RNG_SEED = Shape.array("u64")
SKIP_ALIAS_CHECK = "xla_skip_custom_call_alias_shape_check"


def check(module: Module, report: Report) -> None:
    """V10, V11, V40, V44, V46, V47, V48."""
    fused: set[Computation] = set()
    for computation in module.computations:
        for instruction in computation.instructions:
            for rule in (_check_callers, _check_threads, _check_shardings, _check_composite):
                _apply(rule, instruction, report)
            if instruction.attributes.get("custom_call_target") == "GetRngSeed":
                _apply(_check_seed, instruction, report)
            if "output_to_operand_aliasing" in instruction.attributes:
                _apply(_check_aliasing, instruction, report)
            if instruction.opcode == "fusion":
                fused.update(instruction.called_computations())
                if module.entry in instruction.called_computations():
                    found = "the entry computation"
                    report.broken(instruction, "structure", "calls", found, "another one", "V10")
    for computation in module.computations:
        if computation in fused:
            _check_fused(computation, report)


def _apply(rule: object, instruction: Instruction, report: Report) -> None:
    try:
        rule(instruction)  # type: ignore[operator]  # one of the functions below
    except Violation as violation:
        report.add(instruction, violation)


def _check_callers(instruction: Instruction) -> None:
    """V11: only attributes that the opcode has name computations."""
    if not instruction.attributes:
        return
    for name in CALLING_ATTRIBUTES:
        if name in instruction.attributes and name not in OPS[instruction.opcode].attrs:
            found = f"a computation in {name}"
            raise Violation("attribute-unknown", "", found, "an opcode that calls", "V11")


def _check_threads(instruction: Instruction) -> None:
    """V46: a caller's and its callee's threads."""
    if instruction.opcode not in SAME_THREAD or instruction.computation is None:
        return
    own = instruction.computation.execution_thread
    for callee in instruction.called_computations():
        if callee.execution_thread != own:
            found = f"{callee.name} on thread {callee.execution_thread}"
            raise Violation("call-signature", "", found, f"thread {own}, as the caller", "V46")


def _check_shardings(instruction: Instruction) -> None:
    """V47: shardings present on a while, its body's root and parameter, or on branch roots."""
    own = instruction.attributes.get("sharding")
    if own is None or instruction.opcode not in ("while", "conditional"):
        return
    for callee in instruction.called_computations():
        others = [callee.root]
        if instruction.opcode == "while":
            if callee is instruction.attributes.get("condition"):
                others = []
            others += callee.parameters
        for other in others:
            sharding = other.attributes.get("sharding")
            if sharding is not None and _plain(sharding) != _plain(own):  # type: ignore[arg-type]  # shardings
                found = f"another than that of {other.name} in {callee.name}"
                raise Violation("sharding", "sharding", found, "the same", "V47")


def _plain(sharding: Sharding) -> Sharding:
    """Without metadata, which says nothing about devices."""
    from hlo.attributes.sharding import TupleSharding  # few programs are for several devices

    if isinstance(sharding, TupleSharding):
        return TupleSharding(tuple(replace(e, metadata=()) for e in sharding.elements))
    return replace(sharding, metadata=())


def _check_composite(instruction: Instruction) -> None:
    """V40: what a composite call says of itself."""
    if instruction.opcode != "call" or not instruction.attributes.get("is_composite"):
        return
    given = dict(instruction.attributes.get("frontend_attributes", ()))  # type: ignore[call-overload]  # pairs
    if not given.get("composite.name"):
        found, expected = "without a composite.name", "one in frontend_attributes"
        raise Violation("attribute-missing", "", found, expected, "V40")
    if given.get("composite.attributes") == "":
        found, expected = 'composite.attributes=""', "a dictionary"
        raise Violation("attribute-value", "frontend_attributes", found, expected, "V40")
    version = given.get("composite.version", "0")
    if not version.isdecimal():
        found, expected = f'composite.version="{version}"', "a number of at least 0"
        raise Violation("attribute-value", "frontend_attributes", found, expected, "V40")


def _check_seed(instruction: Instruction) -> None:
    """V48: the run's seed comes from nowhere."""
    if instruction.operands or instruction.shape != RNG_SEED:
        found = f"of {len(instruction.operands)} operands to {_text(instruction.shape)}"
        raise Violation("call-signature", "custom_call_target", found, "() -> u64[]", "V48")


def _check_aliasing(instruction: Instruction) -> None:
    """V44, V48: aliased outputs and operands exist and have one shape."""
    given = dict(instruction.attributes.get("frontend_attributes", ()))  # type: ignore[call-overload]  # pairs
    for alias in instruction.attributes["output_to_operand_aliasing"]:  # type: ignore[attr-defined]  # aliases
        assert isinstance(alias, OperandAlias), "an alias"
        at = "output_to_operand_aliasing"
        result = instruction.shape
        if instruction.opcode == "async-start" and len(result.elements) > 1:
            result = result.elements[1]
        output = _unpinned(subshape(result, alias.output))
        if not 0 <= alias.operand < len(instruction.operands):
            found, expected = f"operand {alias.operand}", f"below {len(instruction.operands)}"
            raise Violation("attribute-value", at, found, expected, "V48")
        source = _unpinned(subshape(instruction.operands[alias.operand].shape, alias.index))
        if output is None or source is None:
            found = f"output {alias.output}, operand {alias.operand} at {alias.index}"
            raise Violation("attribute-value", at, found, "parts that exist", "V48")
        if not compatible(output, source) and SKIP_ALIAS_CHECK not in given:
            found = f"{_text(output)} for operand {alias.operand} of {_text(source)}"
            raise Violation("shape-mismatch", at, found, "equal shapes", "V48")


def subshape(shape: Shape, index: tuple[int, ...]) -> Shape | None:
    """The part of a tuple shape at an index path, if there is one."""
    for i in index:
        if not shape.is_tuple or not 0 <= i < len(shape.elements):
            return None
        shape = shape.elements[i]
    return shape


def _unpinned(shape: Shape | None) -> Shape | None:
    """What a buffer holds: custom calls pin arrays to memory and back."""
    return shape.elements[0] if shape is not None and shape.dtype is BUFFER else shape


def _check_fused(computation: Computation, report: Report) -> None:
    """V44: everything in a fusion serves its root."""
    root = computation.root
    for instruction in computation.instructions:
        if instruction is root:
            if instruction.users:
                found = "the root of a fused computation with users"
                report.broken(instruction, "structure", "", found, "a root without users", "V44")
        elif not instruction.users and not acts(instruction):
            found = f"without users in the fused computation {computation.name}"
            report.broken(instruction, "structure", "", found, "a user", "V44")


def _text(shape: Shape) -> str:
    return shape_text(shape, layout=False)
