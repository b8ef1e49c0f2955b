"""Shrinking: smaller cases made of a case, whether or not they are sound; the verifier says.

Each function gives candidates in a fixed order, the ones that save most first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from msgspec.structs import replace

from hlo import driver
from hlo.attributes.slices import SliceDim
from hlo.errors import HloError
from hlo.ir.computation import Computation
from hlo.ir.graph import callees_first, clone_module
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.passes.liveness import is_removable
from hlo.passes.manager import Manager
from hlo.passes.simplify.dce import dce
from hlo.tools.cases.case import Case, Recorded, recorded
from hlo.tools.cases.extract import extracted

PLAIN_PASSES = ("fusion-opener,call-inliner,tuple-simplifier,dce", "call-inliner,dce", "dce")
HEADER = ("replica_count", "num_partitions", "entry_computation_layout")
SPOKEN_OF = (
    "metadata",
    "backend_config",
    "frontend_attributes",
    "sharding",
    "statistics",
    "origin",
)
MOST_RECORDED = 4096  # elements of a recorded value that becomes a constant
WIDTHS = {"f64": "f32", "bf16": "f32", "f16": "f32", "c128": "c64", "s64": "s32", "u64": "u32"}


def unadorned(case: Case) -> Iterator[Case]:
    """Without what is said beside the program: header, metadata, configurations, shardings."""
    for names, header in ((SPOKEN_OF, HEADER), (SPOKEN_OF, None), (("metadata",), None)):
        module = clone_module(case.module)
        if header is not None:
            module.attributes = {k: v for k, v in module.attributes.items() if k in header[:2]}
        for computation in module.computations:
            for instruction in computation.instructions:
                kept = {k: v for k, v in instruction.attributes.items() if k not in names}
                if len(kept) != len(instruction.attributes):
                    computation.set_attributes(instruction, kept)
        if not any(k in i.attributes for c in module.computations for i in c.instructions
                   for k in ("metadata",)):  # fmt: skip
            module.stack_frames = None
        yield Case(module, case.values)


def written_out(case: Case) -> Iterator[Case]:
    """With calls and fusions written out, and what nobody uses dropped."""
    for passes in PLAIN_PASSES:
        try:
            yield Case(driver.optimize(case.module, passes, Manager()), case.values)
        except HloError:  # of a module that these passes do not take
            continue


def callees_alone(case: Case) -> Iterator[Case]:
    """Each called computation as the entry, with the arguments of its first call."""
    values: Recorded = recorded(case)
    for computation in callees_first(case.module):
        if computation is not case.module.entry and computation.root.opcode != "parameter":
            yield extracted(computation.instructions, values)


def fewer_trips(case: Case) -> Iterator[Case]:
    """Loops that compare their counter with a smaller constant."""
    for computation in _conditions(case.module):
        for constant in computation.instructions:
            literal = constant.get("literal")
            if not isinstance(literal, Literal) or not constant.shape.is_scalar:
                continue
            if not constant.shape.dtype.is_integral or literal.is_elided:
                continue
            count = int(literal.array)
            for fewer in dict.fromkeys((1, 2, 4, count // 2, count - 1)):
                if 0 < fewer < count:
                    yield _with_literal(case, constant, np.asarray(fewer))


def _conditions(module: Module) -> list[Computation]:
    return list(
        dict.fromkeys(
            i["condition"]  # type: ignore[misc]  # a while's condition is a computation
            for c in module.computations
            for i in c.instructions
            if i.opcode == "while"
        )
    )


def _with_literal(case: Case, constant: Instruction, value: np.ndarray) -> Case:
    module = clone_module(case.module)
    twin = _twin(module, constant)
    assert twin.computation is not None, "it stands where the constant stands"
    literal = Literal.of(value, constant.shape)
    twin.computation.set_attributes(twin, {**twin.attributes, "literal": literal})
    for computation in module.computations:
        for loop in computation.instructions:  # what is said of the number of iterations is stale
            if loop.opcode == "while" and "backend_config" in loop.attributes:
                rest = {k: v for k, v in loop.attributes.items() if k != "backend_config"}
                computation.set_attributes(loop, rest)
    return Case(module, case.values)


def _twin(module: Module, instruction: Instruction) -> Instruction:
    """The instruction of the same names in a copy."""
    assert instruction.computation is not None, "it stands in a module"
    home = next(c for c in module.computations if c.name == instruction.computation.name)
    return next(i for i in home.instructions if i.name == instruction.name)


def plainer_callees(case: Case) -> Iterator[Case]:
    """Instructions of called computations as values: runs of them, ever shorter ones."""
    values = recorded(case)
    for computation in callees_first(case.module):
        if computation is case.module.entry:
            continue
        able = [i for i in computation.instructions if _is_replaceable(i)]
        size = len(able)
        while size:
            for start in range(0, len(able), size):
                yield _with_values(case, computation, able[start : start + size], values)
            size //= 2


def _is_replaceable(instruction: Instruction) -> bool:
    if instruction.opcode in ("parameter", "constant") or not instruction.shape.is_array:
        return False
    return instruction.is_root or bool(instruction.users) or is_removable(instruction)


def _with_values(
    case: Case, computation: Computation, gone: list[Instruction], values: Recorded
) -> Case:
    """Instructions replaced by an operand of their shape, else by a constant."""
    module = clone_module(case.module)
    home = next(c for c in module.computations if c.name == computation.name)
    named = {i.name: i for i in home.instructions}
    for old in gone:
        twin = named[old.name]
        same = [o for o in twin.operands if o.shape == twin.shape]
        new = same[0] if same else _constant(home, twin, values.get(old))
        home.replace_uses(twin, new)
    dce(module)
    return Case(module, case.values)


def _constant(home: Computation, like: Instruction, value: object) -> Instruction:
    """The recorded value, or ones where it is large or there is none."""
    shape = like.shape
    if isinstance(value, np.ndarray) and shape.size <= MOST_RECORDED:
        return home.new("constant", shape, (), {"literal": Literal.of(value, shape)})
    scalar = shape.with_dims(())
    one = home.new("constant", scalar, (), {"literal": Literal.of(np.ones(()), scalar)})
    if shape.is_scalar:
        return one
    return home.new("broadcast", shape, (one,), {"dimensions": ()})


def smaller_sizes(case: Case) -> Iterator[Case]:
    """Every dimension of one size made smaller, wherever it stands."""
    sizes = {n for i in _all(case.module) for s in i.shape.leaves() if s.is_array for n in s.dims}
    for size in sorted(sizes, reverse=True):
        for smaller in dict.fromkeys((1, 2, 3, 4, 8, size // 2, size - 1)):
            if 0 < smaller < size:
                yield _resized(case, size, smaller)


def _all(module: Module) -> Iterator[Instruction]:
    for computation in module.computations:
        yield from computation.instructions


def _resized(case: Case, size: int, smaller: int) -> Case:
    def shape_of(shape: Shape) -> Shape:
        return shape.with_dims([smaller if n == size else n for n in shape.dims], shape.dynamic)

    def value_of(value: np.ndarray) -> np.ndarray:
        return value[tuple(slice(smaller if n == size else n) for n in value.shape)]

    def number_of(value: int) -> int:
        return smaller if value == size else value

    return mapped(case, shape_of, value_of, number_of)


def plainer_types(case: Case) -> Iterator[Case]:
    """One element type made a plain one, wherever it stands."""
    found = {s.dtype.name for i in _all(case.module) for s in i.shape.leaves() if s.is_array}
    for name in sorted(found & WIDTHS.keys()):
        yield _retyped(case, name, WIDTHS[name])


def _retyped(case: Case, name: str, plain: str) -> Case:
    target = Shape.array(plain).dtype.numpy
    old = Shape.array(name).dtype.numpy

    def shape_of(shape: Shape) -> Shape:
        return shape.with_dtype(plain) if shape.dtype.name == name else shape

    def value_of(value: np.ndarray) -> np.ndarray:
        return value.astype(target) if value.dtype == old else value

    return mapped(case, shape_of, value_of)


def mapped(
    case: Case,
    shape_of: Callable[[Shape], Shape],
    value_of: Callable[[np.ndarray], np.ndarray],
    number_of: Callable[[int], int] = int,
) -> Case:
    """The case with every array's shape, every value, and sizes in attributes mapped."""
    module = clone_module(case.module)
    module.attributes = {
        k: v for k, v in module.attributes.items() if k != "entry_computation_layout"
    }
    for computation in module.computations:
        for instruction in computation.instructions:
            instruction.shape = _mapped_shape(instruction.shape, shape_of)
            attributes = dict(instruction.attributes)
            literal = attributes.get("literal")
            if isinstance(literal, Literal):
                attributes["literal"] = _mapped_literal(literal, shape_of, value_of)
            for key in ("dynamic_slice_sizes", "slice_sizes"):
                if isinstance(numbers := attributes.get(key), tuple):
                    attributes[key] = tuple(number_of(n) for n in numbers)
            if isinstance(shapes := attributes.get("operand_layout_constraints"), tuple):
                attributes["operand_layout_constraints"] = tuple(
                    _mapped_shape(shape, shape_of) for shape in shapes
                )
            if isinstance(slices := attributes.get("slice"), tuple):
                attributes["slice"] = tuple(_cut(d, number_of) for d in slices)
            computation.set_attributes(instruction, attributes)
    return Case(module, tuple(_mapped_value(v, value_of) for v in case.values))


def _cut(dim: SliceDim, number_of: Callable[[int], int]) -> SliceDim:
    return replace(dim, limit=number_of(dim.limit))


def _mapped_shape(shape: Shape, shape_of: Callable[[Shape], Shape]) -> Shape:
    """Of a tuple, which nests 120 deep at most, each part."""
    if shape.is_tuple:
        return Shape.tuple(_mapped_shape(e, shape_of) for e in shape.elements)
    return shape_of(shape) if shape.is_array else shape


def _mapped_value(value: object, value_of: Callable[[np.ndarray], np.ndarray]) -> object:
    if isinstance(value, tuple | list):
        return tuple(_mapped_value(v, value_of) for v in value)
    return None if value is None else value_of(np.asarray(value))


def _mapped_literal(
    literal: Literal,
    shape_of: Callable[[Shape], Shape],
    value_of: Callable[[np.ndarray], np.ndarray],
) -> Literal:
    if isinstance(literal.value, tuple):
        parts = tuple(_mapped_literal(e, shape_of, value_of) for e in literal.value)
        return Literal.of_tuple(parts)
    shape = _mapped_shape(literal.shape, shape_of)
    if literal.value is None:
        return Literal.elided(shape)
    return Literal.of(value_of(literal.value), shape)
