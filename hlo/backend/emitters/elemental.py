"""Elemental: an expression as a function from indices to lanes, evaluated once per index.

    lanes_at(instruction, indices) -> the lanes at each; code goes to the outermost loop that it can

Indices come in batches (the unrolled copies of a loop body), so that a reduction met on the way
makes one loop for all of them, and so that independent chains stand interleaved. Under guards
(the region of a concatenate or a pad) lanes outside the region hold any value, and loads do not
touch memory. Does not know: how the kernel's own loops are chosen (kernels/).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from hlo.analysis.fusibility import is_elementwise, is_zero
from hlo.backend.emitters import constants, exact_division
from hlo.backend.emitters.applied import apply, reread
from hlo.backend.ir.writer import Value
from hlo.backend.lanes import access, types
from hlo.backend.lanes.access import Memory, lane_atom
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.transposed import are_rows, is_square, load_rows, load_square
from hlo.backend.lanes.types import Lanes
from hlo.backend.loops.chains import chain_to
from hlo.backend.loops.domain import is_within
from hlo.backend.loops.expression import (
    Expression,
    Leaf,
    Node,
    Path,
    dims_of,
    keeps_elements,
    unsupported,
)
from hlo.backend.loops.storage import StorageUse
from hlo.indexing import affine
from hlo.indexing.affine import Expr, Index, Opaque
from hlo.indexing.maps import CASES, Case, Condition, Start, cases
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ops.table import Opcodes, Trait, opcodes

# Moves whose place in an operand is an index alone, known without what is in memory.
_PLACED = (
    opcodes(Trait.REPEATS)
    | opcodes(Trait.PERMUTES)
    | opcodes(Trait.CUTS)
    | opcodes(Trait.JOINS)
    | opcodes(Trait.REGROUPS)
)
# The same, and parts from a start on that is read.
TAKEN = _PLACED | opcodes(Trait.CUTS_AT)
Emitter = Callable[["Elemental", Instruction, Sequence[Index], Path], list[Lanes]]


class Elemental:
    """An expression that is evaluated at indices, in a kernel under construction.

    memory: where the expression's leaves lie. emitters: of opcodes that neither move nor act
    element by element (emitters/structural.py has them all).
    """

    def __init__(
        self,
        nest: Nest,
        lanes: int,
        emitters: Mapping[str, Emitter],
        expression: Expression | None = None,
    ) -> None:
        self.nest = nest
        self.emitters = emitters
        self.lanes = lanes  # elements of a full vector in this kernel
        self.expression = expression or Expression(nest.target)
        self.memory: dict[Node, Memory] = {}
        self.results: dict[int, Memory] = {}  # what is written, by the entry in the table
        self.guards: tuple[Condition, ...] = ()
        self.saved: dict[Instruction, Saved] = {}
        self.scratch_slot = 0  # The table's entry of the thread's scratch memory.
        self.scratch_bytes = 0  # How much of it the kernel needs.
        self.scratch_used = 0  # What the nest at hand has taken (kernels/thread_memory.py).
        self.storage_use = StorageUse()
        # Of a bounded kernel: between which columns it runs, and the reductions that keep to it.
        self.bounds: tuple[Value, Value] | None = None
        self.bounded: set[Instruction] = set()
        # a reduction's elements are being evaluated: what it asks is no stage
        self.is_reducing = False
        self._in_order = False  # the operands of an elementwise tree are being evaluated in order

    # -- memory ------------------------------------------------------------------------------

    def enter(self, node: Node, memory: Memory) -> None:
        """A value that is in memory from now on."""
        self.memory[node] = memory
        self.expression.leaves[node] = Leaf(memory.dtype, memory.size, memory.leaf)

    def forget(self, node: Node) -> None:
        """What `enter` entered."""
        self.memory.pop(node, None)
        self.expression.leaves.pop(node, None)

    def enter_leaves(self) -> None:
        """The addresses of the expression's leaves, before the first loop."""
        for node, leaf in self.expression.leaves.items():
            self.memory[node] = self.memory_of(leaf)

    def memory_of(self, leaf: Leaf) -> Memory:
        """Where a leaf with an entry in the table lies."""
        w = self.nest.w
        slot = w.address(Value("%buffers", "ptr"), w.int(leaf.number), "ptr")
        base = w.load_constant_address(slot)
        return Memory(base, leaf.dtype, leaf.size, leaf.number)

    # -- evaluation --------------------------------------------------------------------------

    def lanes_at(
        self, instruction: Instruction, indices: Sequence[Index], path: Path = ()
    ) -> list[Lanes]:
        """Lanes of the array (a tuple's element, by path) at each index; scalars where uniform."""
        instruction, path = self.expression.source(instruction, path)
        levels = self.nest.path
        found: dict[Index, Lanes] = {}
        missing: dict[tuple[int, tuple[Condition, ...]], list[Index]] = {}
        for index in dict.fromkeys(indices):
            guards = self._needed_guards(instruction, index, path)
            depth = min(_depth(index, guards), len(levels) - 1)
            known = levels[depth].memo.get((instruction, path, index, guards))
            if known is not None:
                found[index] = known  # type: ignore[assignment]  # the memo of a level holds lanes
            else:
                missing.setdefault((depth, guards), []).append(index)
        outer = self.guards
        for (depth, guards), wanted in missing.items():
            self.guards = guards
            try:
                with self.nest.at(depth) as level:
                    results = self._evaluated(instruction, wanted, path)
                    for index, lanes in zip(wanted, results, strict=True):
                        level.memo[instruction, path, index, guards] = found[index] = lanes
            finally:
                self.guards = outer
        return [found[index] for index in indices]

    def _needed_guards(
        self, instruction: Instruction, index: Index, path: Path
    ) -> tuple[Condition, ...]:
        """The guards, but none of an element that is there whether they hold or not: a row's sum
        that is met by some of the row's elements is that of the row, wherever it is asked for.
        """
        if not self.guards or is_within(index, dims_of(instruction, path)):
            return ()
        return self.guards

    def _evaluated(self, instruction: Instruction, indices: list[Index], path: Path) -> list[Lanes]:
        w, before = self.nest.w, self.nest.w.location
        if self.nest.target.debug_locations:
            from hlo.backend.ir.debug_locations import debug_location

            w.location = debug_location(w, instruction)
        try:
            saved = self.saved.get(instruction)
            if saved is not None:
                return saved.lanes_at(self, instruction, indices)
            return self.computed(instruction, indices, path)
        finally:
            w.location = before

    def computed(self, instruction: Instruction, indices: list[Index], path: Path) -> list[Lanes]:
        memory = self.memory.get((instruction, path))
        if memory is not None:
            return self._loaded(instruction, memory, indices, path)
        if is_elementwise(instruction):
            return self._elementwise(instruction, indices)
        in_order, self._in_order = self._in_order, False
        try:
            emitter = self.emitters.get(instruction.opcode)
            if emitter is not None:
                return emitter(self, instruction, indices, path)
            if instruction.opcode in CASES and keeps_elements(instruction):
                moved = self.moved(instruction, indices)
                if instruction.opcode == "bitcast":
                    return [reread(self.nest, instruction, lanes) for lanes in moved]
                return moved
        finally:
            self._in_order = in_order
        raise unsupported(instruction)

    def _loaded(
        self, instruction: Instruction, memory: Memory, indices: list[Index], path: Path
    ) -> list[Lanes]:
        dims = dims_of(instruction, path)
        positions = [affine.linear(index, dims) for index in indices]
        if len(positions) > 1 and not self.guards and not memory.dtype.is_complex:
            if is_square(positions):
                return load_square(self.nest, memory, positions)
            if are_rows(self.nest.target, memory.dtype, positions):
                return load_rows(self.nest, memory, positions)
        guard = self.test(self.guards) if self.guards else None
        results = []
        for position in positions:
            own = guard
            if own is not None and own.lanes > 1 and position.lanes == 1:
                own = Value(
                    "true", "i1"
                )  # some lane's guard puts a shared index in bounds, or clamps
            results.append(access.load(self.nest, memory, position, own))
        return results

    def _elementwise(self, instruction: Instruction, indices: list[Index]) -> list[Lanes]:
        chain = chain_to(self.expression, instruction)
        if chain is not None:
            xs = self.lanes_at(chain.source[0], indices, chain.source[1])
            from hlo.backend.emitters.lookup_tables import looked_up  # few programs have chains

            return looked_up(self.nest, self.expression, chain, xs)
        if not self._in_order:
            # Operands first, from a list: a tree of hundreds of ops would exhaust the stack.
            self._in_order = True
            for member in self._tree(instruction):
                self.lanes_at(member, indices)
            self._in_order = False
        operands = [
            self.lanes_at(o, [() for _ in indices] if not o.shape.dims else indices)
            for o in instruction.operands
        ]
        quotients = exact_division.divided(self.nest, instruction, *operands[:2])
        if quotients is not None:
            return quotients
        kinds = [o.shape.dtype for o in instruction.operands]
        if instruction.opcode == "exponential":
            from hlo.backend.emitters.added_exponentials import added_exponential, is_added

            if is_added(self.expression, instruction):
                return [added_exponential(self.nest, instruction, lanes) for lanes in operands[0]]
        if self.expression.underflows_in is not None:
            from hlo.backend.emitters import subnormal_products  # few programs underflow

            results = subnormal_products.computed(
                self.nest, self.expression, instruction, *operands
            )
            if results is not None:
                return results
        return [
            apply(self.nest, instruction, [o[n] for o in operands], kinds)
            for n in range(len(indices))
        ]

    def _tree(self, root: Instruction) -> list[Instruction]:
        """The elementwise ops of the root's dimensions that it rests on, operands first."""
        order: dict[Instruction, None] = {}
        stack = [(root, False)]
        seen = {root}
        while stack:
            top, is_ready = stack.pop()
            if is_ready:
                order[top] = None
                continue
            stack.append((top, True))
            chain = chain_to(self.expression, top)
            for operand in top.operands if chain is None else [chain.source[0]]:
                source, path = self.expression.source(operand, ())
                if source in seen or path or not is_elementwise(source) or source in self.saved:
                    continue
                if source.shape.dims == root.shape.dims and (source, ()) not in self.memory:
                    seen.add(source)
                    stack.append((source, False))
        del order[root]
        return list(order)

    def splat(self, lanes: Lanes, count: int) -> Lanes:
        """Scalars in every lane; vectors as they are."""
        return types.splat(self.nest.w, lanes, count)

    # -- movement ----------------------------------------------------------------------------

    def moved(self, instruction: Instruction, indices: Sequence[Index]) -> list[Lanes]:
        """The lanes of elements that a move takes from its operands."""
        if instruction.opcode == "gather" and not instruction.operands[0].shape.size:
            raise unsupported(instruction, "from an array without elements")
        found = [cases(instruction, index, self.starts(instruction)) for index in indices]
        results: list[Lanes | None] = [None] * len(indices)
        batches: dict[int, list[int]] = {}
        for n, choices in enumerate(found):
            if len(choices) == 1:
                batches.setdefault(choices[0].operand, []).append(n)
        for operand, numbers in batches.items():
            wanted = [found[n][0].index for n in numbers]
            lanes = self.lanes_at(instruction.operands[operand], wanted)
            for n, value in zip(numbers, lanes, strict=True):
                results[n] = value
        return [
            self._chosen(instruction, found[n]) if value is None else value
            for n, value in enumerate(results)
        ]

    def _chosen(self, instruction: Instruction, choices: list[Case]) -> Lanes:
        """The first case that holds, lane by lane."""
        place = self._chosen_place(instruction, choices)
        if place is not None:
            guard = self.test(self.guards) if self.guards else None
            return access.load(self.nest, *place, guard)
        run = self._run_in_zeros(instruction, choices)
        if run is not None:
            return run
        w = self.nest.w
        *guarded, last = choices
        with self.under(last.conditions):
            (result,) = self.lanes_at(instruction.operands[last.operand], [last.index])
        for case in reversed(guarded):
            with self.under(case.conditions):
                (value,) = self.lanes_at(instruction.operands[case.operand], [case.index])
            holds = self.test(case.conditions)
            lanes = max(holds.lanes, types.width(value), types.width(result))
            condition = w.splat(holds, lanes)
            pair = (self.splat(value, lanes), self.splat(result, lanes))
            dtype = self.expression.storage(instruction.shape.dtype)
            result = types.selected(w, self.nest.target, condition, pair, dtype)
        return result

    def _run_in_zeros(self, instruction: Instruction, choices: list[Case]) -> Lanes | None:
        """The lanes of an array that is padded with zeros, where a masked load makes these: lanes
        that are masked off are zero.
        """
        isa, dtype = self.nest.target.isa, instruction.shape.dtype
        if instruction.opcode != "pad" or dtype.is_complex or not isa.masks_loads_of(dtype.bits):
            return None
        array, value = instruction.operands
        if not is_zero(self.expression.source(value, ())[0]):
            return None
        place = self.place_in_memory(array, choices[0].index)
        if place is None or place[1].lanes == 1 or affine.stride(place[1]) != 1:
            return None
        guard = self.test((*self.guards, *choices[0].conditions))
        return access.load(self.nest, *place, guard)

    def place_in_memory(
        self, instruction: Instruction, index: Index, moves: Opcodes = _PLACED
    ) -> tuple[Memory, Expr] | None:
        """Where an element lies, if it is one of an array in memory that is moved by such ops."""
        instruction, path = self.expression.source(instruction, ())
        memory = self.memory.get((instruction, path))
        if instruction in self.saved or (memory is None and instruction.opcode not in moves):
            return None
        if memory is not None:
            return memory, affine.linear(index, dims_of(instruction, path))
        if not keeps_elements(instruction) or instruction.opcode in self.emitters:
            return None
        if instruction.shape.dtype is not instruction.operands[0].shape.dtype:
            return None  # a bitcast
        choices = cases(instruction, index, self.starts(instruction))
        if not choices:
            return None  # outside of the array: a place that is looked up before it is clamped
        if len(choices) > 1:
            return self._chosen_place(instruction, choices)
        (choice,) = choices
        return self.place_in_memory(instruction.operands[choice.operand], choice.index, moves)

    def _chosen_place(
        self, instruction: Instruction, choices: list[Case]
    ) -> tuple[Memory, Expr] | None:
        """Where the element of the first case that holds lies, if all are of one array, as those of
        a rotation are, and all lanes agree on the case: one load in place of a masked one for each.

        Lanes have to agree on how far the places are apart as well; the conditions choose one of
        these distances. The case that holds has an index within the array, so the place is one of
        its elements wherever the guards hold.
        """
        if instruction.opcode != "concatenate":
            return None
        conditions = [c for case in choices[:-1] for c in case.conditions]
        if any(c.index.lanes > 1 for c in conditions):
            return None
        places = [self.place_in_memory(instruction.operands[c.operand], c.index) for c in choices]
        found = [place for place in places if place is not None]
        memory, last = found[-1] if found else (None, affine.ZERO)
        steps = tuple(position - last for _, position in found)
        is_one = len(found) == len(choices) and all(m is memory for m, _ in found)
        if memory is None or not is_one or any(step.lanes > 1 for step in steps):
            return None
        with self.nest.at(max(e.depth for e in (*steps, *(c.index for c in conditions)))) as level:
            key = ("place", tuple(c.conditions for c in choices[:-1]), steps)
            if key not in level.memo:
                level.memo[key] = self._chosen_step(choices, steps, level.depth)
            step = level.memo[key]
        return memory, last + step  # type: ignore[operator]  # an Expr under this key

    def _chosen_step(self, choices: list[Case], steps: tuple[Expr, ...], depth: int) -> Expr:
        """The step of the first case that holds."""
        w = self.nest.w
        chosen = self.nest.scalar(steps[-1])
        for case, step in zip(reversed(choices[:-1]), reversed(steps[:-1]), strict=True):
            chosen = w.select(self.test(case.conditions), self.nest.scalar(step), chosen)
        low, high = min(s.low for s in steps), max(s.high for s in steps)
        return affine.of(Opaque(chosen.text, low, high, (), depth=depth, lanes=1, value=chosen))

    def end_stage(self) -> None:
        """A stage over whole rows is written: what it kept is there for the next ones."""
        for row in self.saved.values():
            row.is_filled = row.is_filled or row.is_touched

    @contextmanager
    def under(self, conditions: tuple[Condition, ...]) -> Iterator[None]:
        """Evaluate as if the conditions held; elsewhere any value will do."""
        outer = self.guards
        self.guards = outer + tuple(c for c in conditions if c not in outer)
        try:
            yield
        finally:
            self.guards = outer

    @contextmanager
    def in_other_lanes(self) -> Iterator[None]:
        """Evaluate along lanes of one's own: what holds for lanes outside holds for one of them."""
        from hlo.backend.lanes.conditions import for_one_lane

        outer = self.guards
        self.guards = for_one_lane(self.nest, outer)
        try:
            yield
        finally:
            self.guards = outer

    def test(self, conditions: Sequence[Condition]) -> Value:
        """i1 lanes (a scalar where uniform): all conditions hold."""
        from hlo.backend.lanes.conditions import tested  # for programs that pad, or have windows

        return tested(self.nest, conditions)

    def starts(self, instruction: Instruction) -> Start:
        """The starts of an op with some that are known in the run only, clamped: code."""

        def start(operand: int, index: Index, low: int, high: int) -> Expr:
            return self.clamped(instruction.operands[operand], index, low, high)

        return start

    def clamped(self, source: Instruction, index: Index, low: int, high: int) -> Expr:
        """The integer that `source` holds at the index, clamped on its own type, as an index."""
        known = self.expression.known_start(source, low, high)
        if known is not None:
            return known
        depth = min(_depth(index, self.guards), self.nest.depth)
        with self.nest.at(depth) as level:
            key = ("start", source, index, low, high, self.guards)
            if key not in level.memo:
                (lanes,) = self.lanes_at(source, [index])
                level.memo[key] = self.place(lanes, source.shape.dtype, index, low, high)
            return level.memo[key]  # type: ignore[return-value]  # an Expr under this key

    def place(self, lanes: Lanes, dtype: DType, index: Index, low: int, high: int) -> Expr:
        """Integers, clamped on their own type, as an index. index: what they were computed for."""
        assert isinstance(lanes, Value), "indices are integers"
        value = constants.clamped_index(self.nest.w, lanes, dtype, low, high)
        atom = next((a for a in map(lane_atom, index) if a is not None), None)
        return affine.of(
            Opaque(
                value.text, low, high, index, depth=self.nest.depth, lanes=value.lanes,
                value=value, mask=getattr(atom, "mask", None),
            )
        )  # fmt: skip


def _depth(index: Index, guards: Sequence[Condition]) -> int:
    """The open loop in which an index is known, and whether the guards hold."""
    depths = [e.depth for e in index]
    depths += [c.index.depth for c in guards]
    return max(depths, default=0)


class Saved(Protocol):
    """Where the elements of an instruction are kept: its lanes, computed and kept or read."""

    is_touched: bool
    is_filled: bool

    def lanes_at(
        self, elemental: Elemental, instruction: Instruction, indices: list[Index]
    ) -> list[Lanes]: ...
