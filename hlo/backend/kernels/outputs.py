"""Outputs: the arrays that a kernel writes, what stands in them, and where."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from hlo.analysis.leaves import leaves_of
from hlo.backend.emitters.elemental import Elemental, Path
from hlo.backend.ir.writer import Value
from hlo.backend.lanes.access import Memory
from hlo.indexing import affine
from hlo.indexing.affine import Expr, Index
from hlo.indexing.maps import window_starts
from hlo.ir.instruction import Instruction


class Output(Struct, frozen=True):
    """memory[place(index)] = source (its tuple element by path) at index, for all index in dims.

    frame: the dimensions of the whole array in memory, whose steps the place takes.
    alias: (operand leaf, result leaf) that have to be one memory: only a window of it is written.
    """

    source: Instruction
    path: Path
    memory: Memory
    dims: tuple[int, ...]
    place: Callable[[Index], Expr]
    frame: tuple[int, ...]
    alias: tuple[int, int] | None = None
    leaf: int = 0

    @property
    def rows(self) -> tuple[int, ...]:
        """The dimensions without the ones at the end: [n, 1] are rows of [n, m], as [n] is."""
        count = next((k for k in range(len(self.dims), 0, -1) if self.dims[k - 1] != 1), 0)
        return self.dims[:count]

    def row_index(self, index: Index) -> Index:
        """The index of the row that holds an element of a larger output."""
        count = len(self.rows)
        return (*index[:count], *[affine.ZERO] * (len(self.dims) - count))


def outputs_of(elemental: Elemental, instruction: Instruction, operand_leaves: int) -> list[Output]:
    """One per array leaf of the result."""
    root = instruction
    if instruction.opcode == "fusion":
        (callee,) = instruction.called_computations()
        root = callee.root
    found: list[Output] = []
    paths = _leaf_paths(instruction)
    for k, path in enumerate(paths):
        shape = leaves_of(instruction.shape)[k]
        if not shape.is_array:
            continue
        source, own = elemental.source(root, path)
        base = _buffer_slot(elemental, operand_leaves + k)
        memory = Memory(base, elemental.storage(shape.dtype), shape.size, operand_leaves + k)
        window = _window_output(elemental, source, own, memory, k)
        if window is not None:
            found.append(window)
            continue
        dims = shape.dims
        found.append(Output(source, own, memory, dims, _Linear(dims), dims, leaf=k))
    return found


class _Linear(Struct, frozen=True):
    dims: tuple[int, ...]

    def __call__(self, index: Index) -> Expr:
        return affine.linear(index, self.dims)


def _buffer_slot(elemental: Elemental, number: int) -> Value:
    w = elemental.nest.w
    slot = w.address(Value("%buffers", "ptr"), w.int(number), "ptr")
    return w.pure("ptr", f"load ptr, ptr {slot}, align 8")


def _leaf_paths(instruction: Instruction) -> list[Path]:
    def walk(shape, prefix: Path) -> list[Path]:  # type: ignore[no-untyped-def]  # a Shape
        if not shape.is_tuple:
            return [prefix]
        return [p for k, e in enumerate(shape.elements) for p in walk(e, (*prefix, k))]

    return walk(instruction.shape, ())


def _window_output(
    elemental: Elemental, source: Instruction, path: Path, memory: Memory, leaf: int
) -> Output | None:
    """A dynamic-update-slice of an operand of the kernel writes its window only, in place."""
    if source.opcode != "dynamic-update-slice" or path:
        return None
    target, target_path = elemental.source(source.operands[0], ())
    held = elemental.memory.get((target, target_path))
    if held is None or not _only_updated(elemental, source, target):
        return None
    update = source.operands[1]
    dims = source.shape.dims

    def place(index: Index) -> Expr:
        def start(number: int, at: Index, low: int, high: int) -> Expr:
            return elemental.clamped(source.operands[number], at, low, high)

        starts = window_starts(source, 2, dims, update.shape.dims, start)
        return affine.linear(tuple(e + s for e, s in zip(index, starts, strict=True)), dims)

    alias = (held.leaf, leaf)
    return Output(update, (), memory, update.shape.dims, place, dims, alias, leaf)


def _only_updated(elemental: Elemental, update: Instruction, target: Instruction) -> bool:
    """Whether nothing else in the kernel reads the updated array (it changes under the reader)."""
    seen: set[Instruction] = set()
    stack = list(update.operands[1:])
    while stack:
        top, _ = elemental.source(stack.pop(), ())
        if top is target:
            return False
        if top not in seen:
            seen.add(top)
            if not any(key[0] is top for key in elemental.memory):
                stack += top.operands
    return True
