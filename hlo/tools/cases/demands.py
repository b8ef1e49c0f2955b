"""What a program asks of the values that it is given: indices in range, variances not negative.

    module --every computation from users to operands--> instruction, tuple path -> Demand

Demands are carried through ops that pass values on, into calls and loops, so that made-up inputs
and filled constants are such as the program was written for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from hlo.indexing.queries import start_limits
from hlo.ir.computation import Computation
from hlo.ir.graph import callees_first, post_order
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ops.table import INDEX_MAPS, Trait, has_trait
from hlo.passes.patterns.matching import splat_literal

Path = tuple[int, ...]
ROUNDS = 3  # over all computations: what a call's result is asked for is asked of the callee too
SEARCH_DEPTH = 12  # instructions between a search's middle and the index


class Demand(Struct, frozen=True):
    """What a program asks of the elements of one value.

    limit: the greatest index that is in range. low, high: bounds of an open interval of floats.
    terms: how many products a sum has that this is a factor of. is_variance: squares added up;
    is_factor: it multiplies a whole array, is_term: it is added to one. is_sorted: in ascending
    order, along the last dimension; of vectors of indices, in the order of their components.
    is_definite: matrices that have a Cholesky decomposition.
    """

    limit: int | None = None
    low: float = -math.inf
    high: float = math.inf
    terms: int = 0
    is_variance: bool = False
    is_factor: bool = False
    is_term: bool = False
    is_sorted: bool = False
    is_definite: bool = False

    @property
    def is_bounded(self) -> bool:
        """Whether some floats are outside of the interval, and some inside."""
        return self.low < self.high and (self.low > -math.inf or self.high < math.inf)

    def also(self, other: Demand) -> Demand:
        """What satisfies both."""
        limits = [n for n in (self.limit, other.limit) if n is not None]
        return Demand(
            min(limits, default=None),
            max(self.low, other.low),
            min(self.high, other.high),
            max(self.terms, other.terms),
            self.is_variance or other.is_variance,
            self.is_factor or other.is_factor,
            self.is_term or other.is_term,
            self.is_sorted or other.is_sorted,
            self.is_definite or other.is_definite,
        )


NOTHING = Demand()
Demands = dict[Instruction, dict[Path, Demand]]
Asked = Iterator[tuple[Instruction, Path, Demand]]


def demands(module: Module) -> Demands:
    """instruction -> path of tuple indices -> what all its uses ask for together.

    Only values of which something is asked are listed. O(edges), a few times.
    """
    found: Demands = {}
    order = callees_first(module)
    for _ in range(ROUNDS):
        before = {i: dict(paths) for i, paths in found.items()}
        for computation in order:
            _walk(computation, found)
        if found == before:
            break
    return found


def _walk(computation: Computation, found: Demands) -> None:
    for instruction in reversed(post_order(computation)):
        for operand, path, demand in _own(instruction):
            _add(found, operand, path, demand)
        for operand, path, demand in _of_callees(instruction, found):
            _add(found, operand, path, demand)
        for at, demand in list(found.get(instruction, {}).items()):
            for operand, path, passed in _passed_on(instruction, at, demand):
                _add(found, operand, path, passed)


def _add(found: Demands, instruction: Instruction, path: Path, demand: Demand) -> None:
    if demand != NOTHING:
        own = found.setdefault(instruction, {})
        own[path] = own.get(path, NOTHING).also(demand)


# -- what an instruction asks of its operands --------------------------------------------------


def _own(instruction: Instruction) -> Asked:
    operands, opcode = instruction.operands, instruction.opcode
    is_sorted = instruction.get("indices_are_sorted") is True
    for number, limit in start_limits(instruction).items():
        yield operands[number], (), Demand(limit=limit, is_sorted=is_sorted)
    low, high = _domain(instruction)
    if operands:
        is_definite = opcode == "cholesky" or "potrf" in str(instruction.get("custom_call_target"))
        yield operands[0], (), Demand(low=low, high=high, is_definite=is_definite)
    yield from _of_normalization(instruction)
    match opcode:
        case "divide":
            yield operands[1], (), Demand(low=0.0)
        case "multiply":
            yield from ((o, (), Demand(is_factor=True)) for o in operands if _is_repeated(o))
        case "add" | "subtract":
            yield from ((o, (), Demand(is_term=True)) for o in operands if _is_repeated(o))
    if opcode in ("dot", "convolution"):
        yield from _of_contraction(instruction)
    if opcode in ("gather", "dynamic-slice") and _is_searched(instruction):
        yield operands[0], (), Demand(is_sorted=True)


def _is_repeated(operand: Instruction) -> bool:
    return operand.opcode == "broadcast"


def _domain(instruction: Instruction) -> tuple[float, float]:
    """Where operand 0 has a result that is a finite number, as far as signs and one decide it."""
    match instruction.opcode:
        case "log" | "sqrt" | "rsqrt":
            return 0.0, math.inf
        case "power" if splat_literal(instruction.operands[1]) is None:
            return 0.0, math.inf
        case "log-plus-one":
            return -1.0, math.inf
        case "atanh" | "asin" | "acos":
            return -1.0, 1.0
        case "acosh":
            return 1.0, math.inf
    return -math.inf, math.inf


def _of_normalization(instruction: Instruction) -> Asked:
    """Variances, scales and offsets."""
    operands, opcode = instruction.operands, instruction.opcode
    if opcode in ("sqrt", "rsqrt"):
        yield from ((v, (), Demand(is_variance=True)) for v in _beside_a_small_number(operands[0]))
    if opcode == "batch-norm-inference":
        yield operands[4], (), Demand(is_variance=True)
    if opcode == "batch-norm-grad":
        yield operands[3], (), Demand(is_variance=True)
    if opcode.startswith("batch-norm"):
        yield operands[1], (), Demand(is_factor=True)
    if opcode in ("batch-norm-training", "batch-norm-inference"):
        yield operands[2], (), Demand(is_term=True)


def _beside_a_small_number(total: Instruction) -> list[Instruction]:
    """x of x + epsilon, which is how variances are written."""
    if total.opcode != "add":
        return []
    numbers = [splat_literal(o) for o in total.operands]
    return [
        operand
        for operand, other in zip(total.operands, reversed(numbers), strict=True)
        if other is not None and not isinstance(other, complex) and float(other) > 0
    ]


def _of_contraction(instruction: Instruction) -> Asked:
    """The weights are what is given to the module or kept by a loop; of two such, operand 1."""
    attributes = instruction.attributes
    lhs, rhs = instruction.operands[:2]
    if instruction.opcode == "dot":
        from hlo.ops.contraction import DotDimensions  # as the next, for programs with one

        dims = DotDimensions.of(attributes).rhs_contracting_dims
        terms = math.prod(rhs.shape.dims[d] for d in dims)
    else:
        from hlo.ops.convolution import ConvolutionAttributes

        labels = ConvolutionAttributes.of(attributes).dim_labels
        terms = rhs.shape.size // max(1, rhs.shape.dims[labels.rhs_output_feature])
    weights = max((rhs, lhs), key=_constancy)
    yield weights, (), Demand(terms=max(1, terms))


def _constancy(operand: Instruction) -> int:
    """2: of the entry's parameters or what a loop keeps; 1: of what it carries; 0: computed."""
    path: Path = ()
    while operand.operands:
        if operand.opcode == "get-tuple-element":
            path = (*path, _number(operand, "index"))
        elif not _is_passed_through(operand):
            return 0
        operand = operand.operands[0]
    if operand.opcode != "parameter" or operand.computation is None:
        return 0
    root = operand.computation.root
    if len(path) == 1 and root.opcode == "tuple" and path[0] < len(root.operands):
        kept = root.operands[path[0]]
        is_same = kept.opcode == "get-tuple-element" and kept.operands[0] is operand
        return 2 if is_same and _number(kept, "index") == path[0] else 1
    return 2


def _is_searched(instruction: Instruction) -> bool:
    """Whether it looks at the middle of an interval, and what it finds is compared: bisection."""
    return _is_middle(instruction.operands[1:]) and _is_compared(instruction)


def _is_middle(starts: tuple[Instruction, ...]) -> bool:
    """Whether half of something, and a sum, are on the way to the index."""
    edge, opcodes = list(starts), set()
    for _ in range(SEARCH_DEPTH):
        opcodes |= {"half" for i in edge if _is_half(i)} | {i.opcode for i in edge}
        edge = [o for i in edge if i.opcode not in ("parameter", "constant") for o in i.operands]
        if not edge or len(edge) > SEARCH_DEPTH:
            break
    return {"half", "add"} <= opcodes


def _is_half(instruction: Instruction) -> bool:
    """A division by 2, a shift by 1, or a call that is given a 2."""
    operands = instruction.operands
    if instruction.opcode == "call":
        return any(splat_literal(o) == 2 for o in operands)
    if len(operands) != 2 or not instruction.shape.dtype.is_integral:
        return False
    by = splat_literal(operands[1])
    return (instruction.opcode == "divide" and by == 2) or (
        instruction.opcode.startswith("shift-right") and by == 1
    )


def _is_compared(instruction: Instruction) -> bool:
    edge = [instruction]
    for _ in range(SEARCH_DEPTH):
        users = [u for i in edge for u in i.users]
        if any(u.opcode == "compare" for u in users):
            return True
        edge = [u for u in users if u.opcode == "select" or _is_passed_through(u)]
    return False


def _of_callees(instruction: Instruction, found: Demands) -> Asked:
    """A callee's demands on its parameters are demands on the operands given for them, and those on
    the results of a call are demands on the callee's root.
    """
    if instruction.opcode not in ("call", "fusion", "while", "conditional"):
        return
    for number, callee in enumerate(instruction.called_computations()):
        for parameter in callee.parameters:
            at = number + 1 if instruction.opcode == "conditional" else (
                _number(parameter, "parameter_number"))  # fmt: skip
            if at < len(instruction.operands):
                for path, demand in found.get(parameter, {}).items():
                    yield instruction.operands[at], path, demand
        if instruction.opcode in ("call", "fusion"):
            for path, demand in found.get(instruction, {}).items():
                yield callee.root, path, demand


# -- what a demand on a result asks of the operands --------------------------------------------


def _passed_on(instruction: Instruction, path: Path, demand: Demand) -> Asked:
    """The operands' parts that the part `path` of the result comes from, and what is asked of
    them.
    """
    operands = instruction.operands
    match instruction.opcode:
        case "get-tuple-element":
            yield operands[0], (_number(instruction, "index"), *path), demand
        case "tuple":
            if path:
                yield operands[path[0]], path[1:], demand
        case "select":
            yield from ((o, (), demand) for o in operands[1:])
        case "sort":
            yield operands[path[0] if path else 0], (), demand
        case "concatenate":
            yield from ((o, (), demand) for o in operands)
        case _ if _is_passed_through(instruction):
            yield operands[0], path, demand
        case _:
            yield from _through_arithmetic(instruction, demand)


def _is_passed_through(instruction: Instruction) -> bool:
    """Whether the result's values are operand 0's, or few of them, but for roundings."""
    is_rounding = instruction.opcode in ("convert", "reduce-precision")
    return is_rounding or has_trait(instruction, INDEX_MAPS & ~Trait.UPDATES)


def _through_arithmetic(instruction: Instruction, demand: Demand) -> Asked:
    """Limits of indices and intervals of floats, where the op is monotonic in one operand."""
    operands, opcode = instruction.operands, instruction.opcode
    match opcode:
        case "add" | "maximum" | "minimum" if demand.limit is not None:
            for operand in operands:
                if operand.opcode != "constant":
                    yield operand, (), Demand(limit=demand.limit)
        case "add" | "multiply" | "divide" if demand.is_definite:  # as symmetry is made
            yield from ((o, (), Demand(is_definite=True)) for o in operands)
    if not demand.is_bounded or not instruction.shape.is_array:
        return
    bounds = Demand(low=demand.low, high=demand.high)
    match opcode:
        case "negate":
            yield operands[0], (), Demand(low=-demand.high, high=-demand.low)
        case "reduce" | "reduce-window" if demand.low == 0:
            yield operands[0], (), Demand(low=0.0)
        case "add" | "subtract" | "multiply" | "divide":
            yield from _of_two(instruction, bounds)


def _of_two(instruction: Instruction, bounds: Demand) -> Asked:
    """Of a number and a value exactly; of two values what suffices, where there is such."""
    operands, opcode = instruction.operands, instruction.opcode
    numbers = [splat_literal(o) for o in operands]
    if numbers[1] is not None:
        yield operands[0], (), _undone(opcode, bounds, complex(numbers[1]).real)
    elif numbers[0] is not None:
        yield operands[1], (), _undone(f"{opcode} from", bounds, complex(numbers[0]).real)
    elif opcode == "add":
        half = Demand(low=bounds.low / 2, high=bounds.high / 2)
        yield from ((o, (), half) for o in operands)
    elif opcode != "subtract" and bounds.low == 0 and operands[0] is not operands[1]:
        yield from ((o, (), Demand(low=0.0)) for o in operands)


def _undone(op: str, bounds: Demand, number: float) -> Demand:
    """The interval of x for which `x op number`, or `number op x`, is within bounds."""
    low, high = bounds.low, bounds.high
    if not math.isfinite(number):
        return NOTHING
    match op:
        case "add" | "add from":
            return replace(bounds, low=low - number, high=high - number)
        case "subtract":
            return replace(bounds, low=low + number, high=high + number)
        case "subtract from":
            return replace(bounds, low=number - high, high=number - low)
        case "multiply" | "multiply from" | "divide" if number != 0:
            factor = number if op == "divide" else 1 / number
            if not math.isfinite(factor):
                return NOTHING
            ends = sorted(b * factor if b else 0.0 for b in (low, high))
            return replace(bounds, low=ends[0], high=ends[1])
    return NOTHING


def _number(instruction: Instruction, key: str) -> int:
    value = instruction[key]
    assert isinstance(value, int), f"{key} is a number"
    return value
