"""Work: the operations that one instruction asks for, and the bytes that it reads and writes.

    instruction --work_of--> Work(flops, transcendentals, bytes)

An operation is one arithmetic result, whatever its type (a product and its addition are two, a
complex one counts once); a transcendental is an element of an op that no few multiplications and
additions compute, and is no flop besides. Bytes are those of operands and result, of what is cut
out or replaced only that part: as if each instruction went through memory by itself. These are the
conventions of XLA's cost analysis, so that figures can be compared; the ops' formulas are those of
openxla.org/xla/operation_semantics. Control flow (call, while, conditional, fusion) is whoever's
that walks it.

What the attributes of an op say is imported where one is met: most programs have few kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod

from msgspec import Struct

from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.ops.movement import DimensionsAttributes
from hlo.ops.table import Trait, attributes_of, has_trait


class Work(Struct, frozen=True):
    """What one instruction asks for.

    flops, transcendentals: operations; bytes: read and written. is_least: there is more, which
    nobody can count (a function of the user's, what a library does inside).
    """

    flops: int = 0
    transcendentals: int = 0
    bytes: int = 0
    is_least: bool = False

    def __add__(self, other: Work) -> Work:
        return Work(
            self.flops + other.flops,
            self.transcendentals + other.transcendentals,
            self.bytes + other.bytes,
            self.is_least or other.is_least,
        )

    def times(self, count: int) -> Work:
        """Of so many runs."""
        return Work(
            count * self.flops, count * self.transcendentals, count * self.bytes, self.is_least
        )

    @property
    def operations(self) -> int:
        return self.flops + self.transcendentals


NOTHING = Work()


def work_of(instruction: Instruction) -> Work:
    """What one instruction that is no control flow does; the functions that it applies included."""
    moved = bytes_of(instruction)
    if has_trait(instruction, Trait.FREE):
        return NOTHING
    if has_trait(instruction, Trait.TRANSCENDENTAL):
        return Work(0, instruction.shape.size, moved)
    count = COUNTS.get(instruction.opcode)
    if count is not None:
        return count(instruction) + Work(bytes=moved)
    if has_trait(instruction, Trait.ELEMENTWISE) and not has_trait(instruction, Trait.MOVEMENT):
        return Work(instruction.shape.size, 0, moved)
    return Work(bytes=moved)


def bytes_of(instruction: Instruction) -> int:
    """Bytes of operands and result, of which a part only where the op takes or replaces one."""
    operands = instruction.operands
    if has_trait(instruction, Trait.FREE):
        return 0
    part = PARTS.get(instruction.opcode)
    if part is not None:
        return part(instruction)
    return instruction.shape.size_bytes + sum(o.shape.size_bytes for o in operands)


def fused_bytes(fusion: Instruction, body: Computation) -> int:
    """What a fusion reads and writes: of an operand that is only cut, the parts that are cut out;
    of one that is updated in place nothing, and of the result then the update.
    """
    root = body.root
    results = root.operands if root.opcode == "tuple" else (root,)
    written = sum(_written(result) for result in results)
    return written + sum(
        _read(parameter, operand.shape, results)
        for parameter, operand in zip(body.parameters, fusion.operands, strict=True)
    )


def taken_bytes(instruction: Instruction, number: int) -> int:
    """What an instruction reads of an operand: parts of it where only these are cut out, nothing of
    an array that it updates in place.
    """
    shape = instruction.operands[number].shape
    if instruction.opcode == "fusion":
        (body,) = instruction.called_computations()
        root = body.root
        results = root.operands if root.opcode == "tuple" else (root,)
        return _read(body.parameters[number], shape, results)
    if number == 0 and has_trait(instruction, Trait.CUTS_AT):
        return instruction.shape.size_bytes
    if number == 0 and has_trait(instruction, Trait.UPDATES):
        return 0
    return shape.size_bytes


def _written(result: Instruction) -> int:
    if has_trait(result, Trait.UPDATES) and len(result.operands) > 1:
        return result.operands[1].shape.size_bytes
    return result.shape.size_bytes


def _read(parameter: Instruction, shape: Shape, results: Iterable[Instruction]) -> int:
    """Bytes of one operand that the body reads."""
    total = 0
    for user in parameter.users:
        is_first = user.operands[0] is parameter
        if is_first and has_trait(user, _CUTS):
            total += user.shape.size_bytes
        elif not (is_first and has_trait(user, Trait.UPDATES) and user in results):
            return shape.size_bytes
    return min(total, shape.size_bytes)


_CUTS = Trait.CUTS | Trait.CUTS_AT | Trait.PICKS


# -- bytes of what takes or replaces a part --------------------------------------------------------


def _taken(instruction: Instruction) -> int:
    """What is taken, read and written, and the places that say where."""
    places = sum(o.shape.size_bytes for o in instruction.operands[1:])
    return 2 * instruction.shape.size_bytes + places


def _updated(instruction: Instruction) -> int:
    _, update, *places = instruction.operands
    return 2 * update.shape.size_bytes + sum(p.shape.size_bytes for p in places)


def _scattered(instruction: Instruction) -> int:
    """Updates and what they meet are read, and the outcome is written, at places that are read."""
    count = len(instruction.operands) // 2
    updates = instruction.operands[count + 1 :]
    places = instruction.operands[count].shape.size_bytes
    return places + 3 * sum(u.shape.size_bytes for u in updates)


def _transposed(instruction: Instruction) -> int:
    """Nothing where the layouts turn with the dimensions: the bytes are the operand's."""
    (operand,) = instruction.operands
    attrs = attributes_of(instruction)
    assert isinstance(attrs, DimensionsAttributes)
    before, after = operand.shape.layout, instruction.shape.layout
    if before is not None and after is not None:
        turned = tuple(attrs.dimensions[d] for d in after.minor_to_major)
        if turned == before.minor_to_major:
            return 0
    return instruction.shape.size_bytes + operand.shape.size_bytes


PARTS: dict[str, Callable[[Instruction], int]] = {
    "slice": _taken,
    "dynamic-slice": _taken,
    "gather": _taken,
    "dynamic-update-slice": _updated,
    "transpose": _transposed,
    "scatter": _scattered,
}


# -- operations ------------------------------------------------------------------------------------


def applied(callee: Computation) -> Work:
    """The operations of one application of a reducer or a comparator; its bytes are registers'."""
    total = NOTHING
    for instruction in callee.instructions:
        found = work_of(instruction)
        total += Work(found.flops, found.transcendentals, 0, found.is_least)
    return total


def _callee(instruction: Instruction, name: str = "to_apply") -> Computation:
    callee = instruction.attributes[name]
    assert isinstance(callee, Computation), "an op that applies names what"
    return callee


def _reduction(instruction: Instruction) -> Work:
    """One application less than there are elements for each result."""
    first = next(instruction.shape.leaves())
    count = instruction.operands[0].shape.size - first.size
    return applied(_callee(instruction)).times(max(0, count))


def _window_reduction(instruction: Instruction) -> Work:
    from hlo.ops.windowed_reduction import ReduceWindowAttributes

    attrs = attributes_of(instruction)
    assert isinstance(attrs, ReduceWindowAttributes)
    size = prod(w.size for w in attrs.window.dims)
    count = next(instruction.shape.leaves()).size * max(0, size - 1)
    return applied(_callee(instruction)).times(count)


def _select_and_scatter(instruction: Instruction) -> Work:
    from hlo.ops.windowed_reduction import SelectAndScatterAttributes

    attrs = attributes_of(instruction)
    assert isinstance(attrs, SelectAndScatterAttributes)
    size = prod(w.size for w in attrs.window.dims)
    source = instruction.operands[1].shape.size
    selects = applied(_callee(instruction, "select")).times(source * max(0, size - 1))
    return selects + applied(_callee(instruction, "scatter")).times(source)


def _mapped(instruction: Instruction) -> Work:
    return applied(_callee(instruction)).times(next(instruction.shape.leaves()).size)


def _scatter(instruction: Instruction) -> Work:
    updates = instruction.operands[len(instruction.operands) // 2 + 1]
    return applied(_callee(instruction)).times(updates.shape.size)


def _sort(instruction: Instruction) -> Work:
    """n log2 n comparisons of each row."""
    from hlo.ops.sorting import SortAttributes

    attrs = attributes_of(instruction)
    assert isinstance(attrs, SortAttributes)
    shape = instruction.operands[0].shape
    (along,) = attrs.dimensions
    length = shape.dims[along]
    return Work(shape.size * max(0, length - 1).bit_length())


def _dot(instruction: Instruction) -> Work:
    from hlo.ops.contraction import DotDimensions

    attrs = attributes_of(instruction)
    assert isinstance(attrs, DotDimensions)
    lhs = instruction.operands[0].shape
    depth = prod(lhs.dims[d] for d in attrs.lhs_contracting_dims)
    return Work(2 * instruction.shape.size * depth)


def _convolution(instruction: Instruction) -> Work:
    """Products with elements that are there: positions in the padding or in holes do nothing."""
    from hlo.ops.convolution import ConvolutionAttributes
    from hlo.ops.windows import dilated

    attrs = attributes_of(instruction)
    assert isinstance(attrs, ConvolutionAttributes)
    lhs, rhs = (o.shape for o in instruction.operands[:2])
    labels, out = attrs.dim_labels, instruction.shape
    positions = 1
    for number, window in enumerate(attrs.window.dims):
        size = lhs.dims[labels.lhs_spatial[number]]
        count = out.dims[labels.out_spatial[number]]
        reach = dilated(size, window.base_dilation)
        positions *= sum(
            0 <= at < reach and at % window.base_dilation == 0
            for k in range(window.size)
            for at in range(
                k * window.window_dilation - window.pad_low,
                k * window.window_dilation - window.pad_low + count * window.stride,
                window.stride,
            )
        )
    others = out.dims[labels.out_batch] * out.dims[labels.out_feature]
    return Work(2 * positions * others * rhs.dims[labels.rhs_input_feature])


def _fft(instruction: Instruction) -> Work:
    """Eight operations for each element and each halving of a length."""
    from hlo.ops.linear_algebra import FftAttributes

    attrs = attributes_of(instruction)
    assert isinstance(attrs, FftAttributes)
    halvings = sum(max(0, n.bit_length() - 1) for n in attrs.fft_length)
    size = max(instruction.operands[0].shape.size, instruction.shape.size)
    return Work(8 * size * halvings)


def _cholesky(instruction: Instruction) -> Work:
    shape = instruction.operands[0].shape
    return Work(shape.size * shape.dims[-1] // 3)


def _triangular_solve(instruction: Instruction) -> Work:
    a, b = (o.shape for o in instruction.operands)
    return Work(2 * b.size * a.dims[-1])


def _drawn(instruction: Instruction) -> Work:
    return Work(0, instruction.shape.size)


def _unknown(instruction: Instruction) -> Work:
    del instruction
    return Work(is_least=True)


COUNTS: dict[str, Callable[[Instruction], Work]] = {
    "reduce": _reduction,
    "reduce-window": _window_reduction,
    "select-and-scatter": _select_and_scatter,
    "map": _mapped,
    "scatter": _scatter,
    "sort": _sort,
    "dot": _dot,
    "convolution": _convolution,
    "fft": _fft,
    "cholesky": _cholesky,
    "triangular-solve": _triangular_solve,
    "rng": _drawn,
    "rng-bit-generator": _unknown,
    "all-reduce": _mapped,
    "topk": _unknown,
    "batch-norm-training": _unknown,
    "batch-norm-inference": _unknown,
    "batch-norm-grad": _unknown,
    "ragged-dot": _unknown,
    "scaled-dot": _unknown,
    "scan": _unknown,
    "custom-call": _unknown,
}
