"""Which integers a program uses as indices, and how large they may be.

Walks every computation from users to operands and carries limits through ops that pass values on,
so that made-up inputs and filled constants point inside the arrays they index.
"""

from __future__ import annotations

from hlo.indexing.queries import start_limits
from hlo.ir.computation import Computation
from hlo.ir.graph import callees_first, post_order
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ops.table import INDEX_MAPS, Trait, has_trait

Path = tuple[int, ...]
Limits = dict[Instruction, dict[Path, int]]


def index_limits(module: Module) -> Limits:
    """instruction -> path of tuple indices -> greatest index that all its uses allow.

    Only values that reach an index position are listed. O(edges) per computation.
    """
    limits: Limits = {}
    for computation in callees_first(module):
        _walk(computation, limits)
    return limits


def _walk(computation: Computation, limits: Limits) -> None:
    for instruction in reversed(post_order(computation)):
        for number, limit in start_limits(instruction).items():
            _lower(limits, instruction.operands[number], (), limit)
        _pass_on(instruction, limits)


def _lower(limits: Limits, instruction: Instruction, path: Path, limit: int) -> None:
    own = limits.setdefault(instruction, {})
    own[path] = min(own.get(path, limit), limit)


def _pass_on(instruction: Instruction, limits: Limits) -> None:
    if instruction.opcode in ("call", "fusion", "while", "conditional"):
        _into_callees(instruction, limits)
    for path, limit in limits.get(instruction, {}).items():
        for operand, inner in _sources(instruction, path):
            _lower(limits, operand, inner, limit)


def _sources(instruction: Instruction, path: Path) -> list[tuple[Instruction, Path]]:
    """The operands' parts that the part `path` of the result takes its values from."""
    operands = instruction.operands
    if instruction.opcode == "get-tuple-element":
        return [(operands[0], (instruction["index"], *path))]  # type: ignore[arg-type]  # an int
    if instruction.opcode == "tuple":
        return [(operands[path[0]], path[1:])] if path else []
    if instruction.opcode == "select":
        return [(o, ()) for o in operands[1:]]
    if instruction.opcode == "sort" and path:
        return [(operands[path[0]], ())]
    if instruction.opcode == "concatenate":
        return [(o, ()) for o in operands]
    match instruction.opcode:
        case "add" | "maximum" | "minimum":
            return [(o, ()) for o in operands if o.opcode != "constant"]
        case "convert" | "reduce-precision" | "sort":
            return [(operands[0], path)]
    # The result's values are the operand's, or few of them: limits go straight through.
    return [(operands[0], path)] if has_trait(instruction, INDEX_MAPS & ~Trait.UPDATES) else []


def _into_callees(instruction: Instruction, limits: Limits) -> None:
    """A callee's limits on its parameters are limits on the operands given for them."""
    for number, callee in enumerate(instruction.called_computations()):
        for parameter in callee.parameters:
            at = parameter["parameter_number"]
            assert isinstance(at, int), "a parameter has a number"
            if instruction.opcode == "conditional":
                at = number + 1
            if at < len(instruction.operands):
                for path, limit in limits.get(parameter, {}).items():
                    _lower(limits, instruction.operands[at], path, limit)
