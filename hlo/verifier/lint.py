"""Lint: what is valid and yet looks like a mistake; every kind has a code and can be switched off.

module -> warnings
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator

from msgspec import Struct

from hlo.ir.computation import Computation
from hlo.ir.graph import reachable_computations
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.shape import shape_text
from hlo.ops.axis_reductions import operations
from hlo.ops.table import OPS, Trait, has_trait
from hlo.source import Span, caret_picture, shown

_LONE = re.compile(r"\bconstant\(\s*([^\s{(,)]+)\s*\)")
_ROOT, _ENTRY = re.compile(r"ROOT\b"), re.compile(r"\bENTRY\s")
LONG_SUM = 256  # elements whose sum a bf16 accumulator may no longer resolve

WARNINGS = {
    "unused-parameter": "Nothing reads a parameter of the entry.",
    "dead-computation": "The entry calls a computation neither directly nor through others.",
    "dead-instruction": "Nothing uses an instruction's result, and it has no effect.",
    "square-broadcast": "A broadcast could as well run along another dimension of the same size.",
    "accidental-f64": "The program computes in f64 although no parameter of the entry is f64.",
    "narrow-sum": "Many elements are summed in a type of few bits; a convert before is safer.",
    "division-by-zero": "An integer is divided by a constant that holds 0.",
    "no-change": "An instruction gives back its operand.",
    "implicit-root": "No ROOT is written in a computation: its last instruction is the result.",
    "implicit-entry": "No ENTRY is written: the last computation is the entry.",
    "lone-scalar": "One number stands for the literal of an array: all other elements are zero.",
}


class Warned(Struct, frozen=True):
    """Something a person would want to look at."""

    code: str
    message: str
    span: Span | None

    def __str__(self) -> str:
        picture = "" if self.span is None else "\n" + caret_picture(self.span)
        return f"warning[{self.code}]: {shown(self.message)}{picture}"


def lint(module: Module, *, disabled: Collection[str] = ()) -> list[Warned]:
    """All warnings of a module that verifies, but those of disabled codes."""
    found = [*_implied(module), *_unreached(module), *_unused(module)]
    doubles_given = any(
        leaf.dtype.name == "f64" for p in module.entry.parameters for leaf in p.shape.leaves()
    )
    for computation in module.computations:
        for instruction in computation.instructions:
            for rule in RULES:
                message = rule(instruction)
                if message:
                    code = rule.__name__.strip("_").replace("_", "-")
                    found.append(Warned(code, f"{instruction.opcode}: {message}", instruction.span))
            if not doubles_given:
                found += _accidental_f64(instruction)
    return [w for w in found if w.code not in disabled]


def _implied(module: Module) -> Iterator[Warned]:
    """What the text leaves to a reader's knowledge of the language."""
    for computation in module.computations:
        root = computation.root
        if root.source is not None and not _is_marked(root.source.text, root.start):
            message = f"{computation.name}: no instruction is its ROOT, {root.name} is as the last"
            yield Warned("implicit-root", message, root.span)
    entry = module.entry
    if entry.root.source is not None and not _ENTRY.search(entry.root.source.text):
        message = f"no computation is the ENTRY, {entry.name} is as the last"
        yield Warned("implicit-entry", message, _place(entry))


def _is_marked(text: str, start: int) -> bool:
    """Whether ROOT stands where an instruction begins, or right before."""
    return _ROOT.match(text, start) is not None or text[
        max(0, start - 64) : start
    ].rstrip().endswith("ROOT")


def _unreached(module: Module) -> Iterator[Warned]:
    reached = reachable_computations(module)
    for computation in module.computations:
        if computation not in reached:
            message = f"computation {computation.name}: nothing that the entry runs calls it"
            yield Warned("dead-computation", message, _place(computation))


def _place(computation: Computation) -> Span | None:
    return computation.instructions[0].span if computation.instructions else None


def _unused(module: Module) -> Iterator[Warned]:
    for parameter in module.entry.parameters:
        if not parameter.users and not parameter.is_root:
            yield Warned(
                "unused-parameter", f"parameter: {parameter.name} is unused", parameter.span
            )


def _dead_instruction(instruction: Instruction) -> str:
    if instruction.users or instruction.is_root or instruction.opcode == "parameter":
        return ""
    lasting = Trait.SIDE_EFFECT | Trait.CALLS
    if OPS[instruction.opcode].traits & lasting or instruction.get("custom_call_has_side_effect"):
        return ""
    return f"nothing uses {instruction.name}"


def _square_broadcast(instruction: Instruction) -> str:
    if instruction.opcode != "broadcast" or not instruction.operands[0].shape.dims:
        return ""
    mapped = instruction.attributes["dimensions"]
    assert isinstance(mapped, tuple), "dimensions"
    dims = instruction.shape.dims
    for d in mapped:
        twin = next((k for k, n in enumerate(dims) if n == dims[d] > 1 and k not in mapped), None)
        if twin is not None:
            return f"along dimension {d}, though dimension {twin} has size {dims[d]} too"
    return ""


def _narrow_sum(instruction: Instruction) -> str:
    if instruction.opcode not in ("reduce", "reduce-window"):
        return ""
    source, to_apply = instruction.operands[0].shape, instruction.attributes["to_apply"]
    assert isinstance(to_apply, Computation), "a computation"
    narrow = source.dtype.is_float and source.dtype.bits < 32
    if not narrow or operations(to_apply, len(instruction.operands) // 2) != ("add",):
        return ""
    result = instruction.shape
    count = source.size // max(result.size, 1)
    window = instruction.get("window")
    if window is not None:
        count = math.prod(w.size for w in window.dims)  # type: ignore[attr-defined]  # a Window
    if count <= LONG_SUM:
        return ""
    return f"{count} elements are summed in {source.dtype}"


def _division_by_zero(instruction: Instruction) -> str:
    if instruction.opcode not in ("divide", "remainder"):
        return ""
    divisor = instruction.operands[1]
    while divisor.opcode == "broadcast":
        divisor = divisor.operands[0]
    literal = divisor.get("literal")
    if not isinstance(literal, Literal) or literal.is_elided or not literal.shape.dtype.is_integral:
        return ""
    return "by 0, which gives all ones" if bool((literal.array == 0).any()) else ""


def _lone_scalar(instruction: Instruction) -> str:
    shape, source = instruction.shape, instruction.source
    if instruction.opcode != "constant" or not shape.dims or source is None:
        return ""
    written = _LONE.search(source.text, instruction.start, instruction.end)
    if written is None:
        return ""
    value, kind = written[1], shape_text(shape, layout=False)
    return (
        f"{value} is the first element of {kind} and the others are 0;"
        f" broadcast(constant({value})) fills it, braces give each element"
    )


_ARRANGING = Trait.REPEATS | Trait.REGROUPS | Trait.PERMUTES | Trait.CUTS


def _no_change(instruction: Instruction) -> str:
    if instruction.opcode != "convert" and not has_trait(instruction, _ARRANGING):
        return ""
    operand = instruction.operands[0]
    if operand.shape != instruction.shape:
        return ""
    if instruction.opcode == "reverse":
        return "" if instruction.attributes["dimensions"] else "of no dimension"
    ordered = instruction.attributes.get("dimensions", ())
    if ordered and ordered != tuple(range(instruction.shape.rank)):
        return ""
    return f"of {operand.name} to its own shape {shape_text(instruction.shape, layout=False)}"


def _accidental_f64(instruction: Instruction) -> Iterator[Warned]:
    if instruction.opcode == "convert" and instruction.shape.dtype.name == "f64":
        source = instruction.operands[0].shape.dtype
        if source.is_float:
            message = f"convert: {source} becomes f64, though no parameter of the entry is f64"
            yield Warned("accidental-f64", message, instruction.span)


RULES: tuple[Callable[[Instruction], str], ...] = (
    _dead_instruction, _square_broadcast, _narrow_sum, _division_by_zero, _lone_scalar,
    _no_change,
)  # fmt: skip
