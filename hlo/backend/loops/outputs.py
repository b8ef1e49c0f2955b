"""Outputs: the arrays that a kernel writes, what stands in them, and where."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from hlo.analysis.leaves import leaves_of
from hlo.backend.loops.expression import Expression, Leaf, Path
from hlo.backend.loops.trace import trace
from hlo.indexing import affine
from hlo.indexing.affine import Expr, Index, Variable
from hlo.indexing.maps import Start, window_starts
from hlo.ir.instruction import Instruction

Readers = dict[tuple[Instruction, Path], list[Instruction | None]]


class Output(Struct, frozen=True):
    """array[place(index)] = source (its tuple element by path) at index, for all index in dims.

    frame: the dimensions of the whole array, whose steps the place takes. update: the op whose
    window of the array the source is, beginning at its `starts`; alias: (operand leaf, result leaf)
    that have to be one memory then, as nothing else of it is written.
    """

    source: Instruction
    path: Path
    array: Leaf
    dims: tuple[int, ...]
    frame: tuple[int, ...]
    update: Instruction | None = None
    starts: Start | None = None
    alias: tuple[int, int] | None = None
    leaf: int = 0

    def place(self, index: Index, starts: Start | None = None) -> Expr:
        """Where in the array; starts: of the update in the run, symbols where there are none."""
        if self.update is not None:
            start = starts or self.starts
            assert start is not None, "an update has starts"
            window = window_starts(self.update, 2, self.frame, self.dims, start)
            index = tuple(e + s for e, s in zip(index, window, strict=True))
        return affine.linear(index, self.frame)

    @property
    def name(self) -> str:
        """The array's name where loops are printed."""
        return "result" if self.leaf == 0 else f"result{self.leaf}"

    @property
    def rows(self) -> tuple[int, ...]:
        """The dimensions without the ones at the end: [n, 1] are rows of [n, m], as [n] is."""
        count = next((k for k in range(len(self.dims), 0, -1) if self.dims[k - 1] != 1), 0)
        return self.dims[:count]

    def row_index(self, index: Index) -> Index:
        """The index of the row that holds an element of a larger output."""
        count = len(self.rows)
        return (*index[:count], *[affine.ZERO] * (len(self.dims) - count))


def outputs_of(
    expression: Expression, instruction: Instruction, operand_leaves: int
) -> list[Output]:
    """One per array leaf of the result."""
    root = instruction
    if instruction.opcode == "fusion":
        (callee,) = instruction.called_computations()
        root = callee.root
    found: list[Output] = []
    sources = [expression.source(root, path) for path in _leaf_paths(instruction)]
    is_updating = any(source.opcode == "dynamic-update-slice" for source, _ in sources)
    readers = _readers(expression, sources) if is_updating else {}
    for k, (source, own) in enumerate(sources):
        shape = leaves_of(instruction.shape)[k]
        if not shape.is_array:
            continue
        array = Leaf(expression.storage(shape.dtype), shape.size, operand_leaves + k)
        window = _window_output(
            expression, source, own, array, k, readers, is_alone=len(sources) == 1
        )
        found.append(window or Output(source, own, array, shape.dims, shape.dims, leaf=k))
    return found


def _leaf_paths(instruction: Instruction) -> list[Path]:
    def walk(shape, prefix: Path) -> list[Path]:  # type: ignore[no-untyped-def]  # a Shape
        if not shape.is_tuple:
            return [prefix]
        return [p for k, e in enumerate(shape.elements) for p in walk(e, (*prefix, k))]

    return walk(instruction.shape, ())


def _window_output(
    expression: Expression,
    source: Instruction,
    path: Path,
    array: Leaf,
    leaf: int,
    readers: Readers,
    *,
    is_alone: bool,
) -> Output | None:
    """A dynamic-update-slice of an operand of the kernel writes its window only, in place."""
    if source.opcode != "dynamic-update-slice" or path:
        return None
    target, target_path = expression.source(source.operands[0], ())
    held = expression.leaves.get((target, target_path))
    if held is None:
        return None
    update = source.operands[1]
    starts, alias = expression.starts(source), (held.number, leaf)
    dims, frame = update.shape.dims, source.shape.dims
    output = Output(update, (), array, dims, frame, source, starts, alias, leaf)
    # What anybody else reads would change under the reader.
    is_only_updated = readers.get((target, target_path)) == [source]
    if is_only_updated or (is_alone and _reads_own(expression, output)):
        return output
    return None


def _reads_own(expression: Expression, output: Output) -> bool:
    """Whether each element of the update reads the updated array at most where it is written,
    and no reduction reads it: so it may be written as soon as it is known.
    """
    assert output.alias is not None, "an update of an operand"
    at = tuple(Variable(f"u{d}", 0, max(n - 1, 0)) for d, n in enumerate(output.dims))
    index = tuple(map(affine.of, at))
    found = trace(expression, [(output.source, index, output.path)])
    place = output.place(index)
    own = [read for read in found.reads if read.leaf == output.alias[0]]
    return all(read.position == place and not read.reduced for read in own)


def _readers(expression: Expression, results: Sequence[tuple[Instruction, Path]]) -> Readers:
    """Who reads each of the kernel's operands, for all its results; None: a result that is one."""
    found: Readers = {}
    seen: set[Instruction] = set()
    stack: list[tuple[tuple[Instruction, Path], Instruction | None]]
    stack = [(source, None) for source in results]
    while stack:
        source, reader = stack.pop()
        top, _ = source
        if source in expression.leaves:
            found.setdefault(source, []).append(reader)
        elif top not in seen:
            seen.add(top)
            stack += [(expression.source(x, ()), top) for x in top.operands]
    return found


def is_interleaved(output: Output) -> bool:
    """Whether vectors of neighbouring elements can be stored turn by turn: numbers of one part, at
    places that are known.
    """
    return not output.array.dtype.is_complex and output.update is None
