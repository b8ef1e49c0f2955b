"""Elemental: a fused expression as a function from indices to lanes, evaluated once per index.

    lanes_at(instruction, indices) -> the lanes at each; code goes to the outermost loop that it can

Indices come in batches (the unrolled copies of a loop body), so that a reduction met on the way
makes one loop for all of them, and so that independent chains stand interleaved. Under guards
(the region of a concatenate or a pad) lanes outside the region hold any value, and loads do not
touch memory. Does not know: how the kernel's own loops are chosen (kernels/).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from hlo.backend.emitters import code_tables, constants, elementwise, exact_division
from hlo.backend.emitters import half_arithmetic as by_halves
from hlo.backend.emitters import uniform_division as by_one
from hlo.backend.emitters.chains import Chain
from hlo.backend.emitters.exactness import is_exact
from hlo.backend.ir.marks import location
from hlo.backend.ir.writer import Value
from hlo.backend.lanes import access, types
from hlo.backend.lanes.access import Memory, lane_atom
from hlo.backend.lanes.conditions import for_one_lane, tested
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.transposed import are_rows, is_square, load_rows, load_square
from hlo.backend.lanes.types import Lanes, parts
from hlo.errors import HloError
from hlo.indexing import affine
from hlo.indexing.affine import Expr, Index, Opaque
from hlo.indexing.maps import CASES, Case, Condition, cases
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ops.table import call_attributes

Path = tuple[int, ...]
# What makes no value of its own.
_LOOKED_THROUGH = frozenset({
    "get-tuple-element", "tuple", "opt-barrier", "optimization-barrier", "domain", "add-dependency",
    "fusion", "call", "parameter",
})  # fmt: skip
Emitter = Callable[["Elemental", Instruction, Sequence[Index], Path], list[Lanes]]

# IEEE arithmetic in single instructions: a NaN in the result is an operand's, or the default one.
_KEEPS_NANS = frozenset({"add", "subtract", "multiply", "divide", "sqrt"})


def unsupported(instruction: Instruction, why: str = "in a loop kernel") -> HloError:
    """The one error by which a kernel of loops is declined."""
    return HloError("unsupported", f"{instruction.opcode} {why}", instruction.span)


class Elemental:
    """memory: where leaves of the kernel's operands lie, by (instruction, path)."""

    def __init__(self, nest: Nest, lanes: int) -> None:
        self.nest = nest
        self.lanes = lanes  # elements of a full vector in this kernel
        self.is_raw = False  # elements are moved only: narrow floats are seen as their bits
        self.memory: dict[tuple[Instruction, Path], Memory] = {}
        self.bound: dict[Instruction, Instruction] = {}  # a called computation's parameters
        self.guards: tuple[Condition, ...] = ()
        self.saved: dict[Instruction, Saved] = {}
        self.chains: dict[Instruction, Chain | None] = {}  # what is looked up (code_tables.py)
        self.scratch_slot = 0  # the table's entry of the thread's scratch memory,
        self.scratch_bytes = 0  # of which the kernel needs so much, and the part at hand
        self.scratch_used = 0  # so much until now (kernels/thread_memory.py)
        self.stack_bytes = 0
        self.is_folding = False  # a fold's elements are being evaluated: what it asks is no stage
        self._in_order = False  # the operands of an elementwise tree are being evaluated in order

    def storage(self, dtype: DType) -> DType:
        """The type as which elements are loaded and stored."""
        if self.is_raw and (dtype.is_pred or types.is_narrow_float(dtype)):
            return dt.U16 if dtype.item_bytes == 2 else dt.U8
        return dtype

    # -- evaluation --------------------------------------------------------------------------

    def lanes_at(
        self, instruction: Instruction, indices: Sequence[Index], path: Path = ()
    ) -> list[Lanes]:
        """Lanes of the array (a tuple's element, by path) at each index; scalars where uniform."""
        instruction, path = self.source(instruction, path)
        levels = self.nest.path
        found: dict[Index, Lanes] = {}
        missing: dict[int, list[Index]] = {}
        for index in indices:
            if index in found:
                continue
            depth = min(self._depth(index), len(levels) - 1)
            known = levels[depth].memo.get((instruction, path, index, self.guards))
            if known is not None:
                found[index] = known  # type: ignore[assignment]  # the memo of a level holds lanes
            elif index not in missing.setdefault(depth, []):
                missing[depth].append(index)
        for depth, wanted in missing.items():
            with self.nest.at(depth) as level:
                results = self._evaluated(instruction, wanted, path)
                for index, lanes in zip(wanted, results, strict=True):
                    level.memo[instruction, path, index, self.guards] = found[index] = lanes
        return [found[index] for index in indices]

    def source(self, instruction: Instruction, path: Path) -> tuple[Instruction, Path]:
        """The instruction that makes the value: tuples, calls and parameters looked through."""
        while (instruction, path) not in self.memory:
            if instruction.opcode not in _LOOKED_THROUGH:
                break
            match instruction.opcode:
                case "get-tuple-element":
                    path = (tuple_index(instruction), *path)
                    instruction = instruction.operands[0]
                case "tuple":
                    instruction, path = instruction.operands[path[0]], path[1:]
                case "opt-barrier" | "optimization-barrier" | "domain" | "add-dependency":
                    instruction = instruction.operands[0]
                case "fusion" | "call":
                    instruction = self._entered(instruction)
                case "parameter" if instruction in self.bound:
                    instruction = self.bound[instruction]
                case _:
                    break
        return instruction, path

    def _entered(self, call: Instruction) -> Instruction:
        """The root of a called computation, its parameters bound to the call's operands."""
        (callee,) = call.called_computations()
        for parameter, operand in zip(callee.parameters, call.operands, strict=True):
            if self.bound.setdefault(parameter, operand) is not operand:
                raise unsupported(call, "of a computation that is called twice")
        return callee.root

    def _depth(self, index: Index) -> int:
        depths = [e.depth for e in index]
        return max(depths + [c.index.depth for c in self.guards], default=0)

    def _evaluated(self, instruction: Instruction, indices: list[Index], path: Path) -> list[Lanes]:
        w, before = self.nest.w, self.nest.w.mark
        if self.nest.target.marks:
            w.mark = location(w, instruction)
        try:
            saved = self.saved.get(instruction)
            if saved is not None:
                return saved.lanes_at(self, instruction, indices)
            return self.computed(instruction, indices, path)
        finally:
            w.mark = before

    def computed(self, instruction: Instruction, indices: list[Index], path: Path) -> list[Lanes]:
        memory = self.memory.get((instruction, path))
        if memory is not None:
            return self._loaded(instruction, memory, indices, path)
        if is_elementwise(instruction):
            return self._elementwise(instruction, indices)
        in_order, self._in_order = self._in_order, False
        try:
            emitter = EMITTERS.get(instruction.opcode)
            if emitter is not None:
                return emitter(self, instruction, indices, path)
            if instruction.opcode in CASES and keeps_elements(instruction):
                moved = self._moved(instruction, indices)
                if instruction.opcode == "bitcast":
                    return [self._reread(instruction, lanes) for lanes in moved]
                return moved
        finally:
            self._in_order = in_order
        raise unsupported(instruction)

    def _loaded(
        self, instruction: Instruction, memory: Memory, indices: list[Index], path: Path
    ) -> list[Lanes]:
        dims = self.dims(instruction, path)
        positions = [affine.linear(index, dims) for index in indices]
        if len(positions) > 1 and not self.guards and not memory.dtype.is_complex:
            if is_square(positions):
                return load_square(self.nest, memory, positions)
            if are_rows(self.nest, memory, positions):
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

    @staticmethod
    def dims(instruction: Instruction, path: Path) -> tuple[int, ...]:
        """Dimensions of a tuple's element."""
        shape = instruction.shape
        for k in path:
            shape = shape.elements[k]
        return shape.dims

    def _elementwise(self, instruction: Instruction, indices: list[Index]) -> list[Lanes]:
        chain = code_tables.chain_to(self, instruction)
        if chain is not None:
            return code_tables.looked_up(self, chain, indices)
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
        attributes = call_attributes(instruction)
        kinds = [o.shape.dtype for o in instruction.operands]
        return [
            self.apply(instruction, [o[n] for o in operands], kinds, attributes)
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
            chain = code_tables.chain_to(self, top)
            for operand in top.operands if chain is None else [chain.source[0]]:
                source, path = self.source(operand, ())
                if source in seen or path or not is_elementwise(source) or source in self.saved:
                    continue
                if source.shape.dims == root.shape.dims and (source, ()) not in self.memory:
                    seen.add(source)
                    stack.append((source, False))
        del order[root]
        return list(order)

    def apply(
        self,
        instruction: Instruction,
        operands: Sequence[Lanes],
        kinds: Sequence[DType],
        attributes: dict[str, object],
        *,
        rounds: bool = True,
    ) -> Lanes:
        """One elementwise op on lanes, rounded to the result's type."""
        w, target = self.nest.w, self.nest.target
        opcode = instruction.opcode
        if rounds and by_one.applies(self.nest, opcode, instruction.shape.dtype, list(operands)):
            quotient = by_one.quotient(self.nest, *operands)
            return types.rounded(w, target, quotient, dt.BF16, has_short_nans=True)
        if rounds and by_halves.applies(instruction.opcode, instruction.shape.dtype, target):
            return by_halves.emit(self.nest, instruction.opcode, operands)
        lanes = max((types.width(o) for o in operands), default=1)
        wide = [self.splat(o, lanes) for o in operands]
        dtype = instruction.shape.dtype
        result = elementwise.emit(
            instruction.opcode,
            w,
            target,
            wide,
            kinds,
            dtype,
            attributes,
        )
        if rounds and types.is_narrow_float(dtype) and not is_exact(instruction, operands, kinds):
            keeps = instruction.opcode in _KEEPS_NANS
            result = types.rounded(w, target, result, dtype, has_short_nans=keeps)
        return result

    @staticmethod
    def is_op(instruction: Instruction) -> bool:
        """Whether `apply` computes it, lane by lane."""
        return instruction.opcode != "bitcast-convert" and is_elementwise(instruction)

    def splat(self, lanes: Lanes, count: int) -> Lanes:
        """Scalars in every lane; vectors as they are."""
        w = self.nest.w
        return types.joined([v if v.lanes == count else w.splat(v, count) for v in parts(lanes)])

    # -- movement ----------------------------------------------------------------------------

    def _moved(self, instruction: Instruction, indices: list[Index]) -> list[Lanes]:
        if instruction.opcode == "gather" and not instruction.operands[0].shape.size:
            raise unsupported(instruction, "from an array without elements")
        found = [cases(instruction, index, self._start(instruction)) for index in indices]
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

    def _reread(self, bitcast: Instruction, lanes: Lanes) -> Lanes:
        """A bitcast's operand as the result's element type, of the same width."""
        source, target = bitcast.operands[0].shape.dtype, bitcast.shape.dtype
        if source is target:
            return lanes
        if source.bits != target.bits:
            raise unsupported(bitcast, "to elements of another width")
        w, machine = self.nest.w, self.nest.target
        return elementwise.emit("bitcast-convert", w, machine, [lanes], [source], target, {})

    def _chosen(self, instruction: Instruction, choices: list[Case]) -> Lanes:
        """The first case that holds, lane by lane."""
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
            dtype = instruction.shape.dtype
            result = types.selected(w, self.nest.target, condition, pair, dtype)
        return result

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
        outer = self.guards
        self.guards = for_one_lane(self.nest, outer)
        try:
            yield
        finally:
            self.guards = outer

    def test(self, conditions: Sequence[Condition]) -> Value:
        """i1 lanes (a scalar where uniform): all conditions hold."""
        return tested(self.nest, conditions)

    def _start(self, instruction: Instruction) -> Callable[[int, Index, int, int], Expr]:
        def start(operand: int, index: Index, low: int, high: int) -> Expr:
            return self.clamped(instruction.operands[operand], index, low, high)

        return start

    def clamped(self, source: Instruction, index: Index, low: int, high: int) -> Expr:
        """The integer that `source` holds at the index, clamped on its own type, as an index."""
        if low == high:
            return affine.number(low)
        depth = min(self._depth(index), self.nest.depth)
        with self.nest.at(depth) as level:
            key = ("start", source, index, low, high, self.guards)
            if key not in level.memo:
                (lanes,) = self.lanes_at(source, [index])
                assert isinstance(lanes, Value), "indices are integers"
                value = constants.clamped_index(self.nest.w, lanes, source.shape.dtype, low, high)
                atom = next((a for a in map(lane_atom, index) if a is not None), None)
                mask = getattr(atom, "mask", None)
                level.memo[key] = affine.of(
                    Opaque(
                        value.text, low, high, index,
                        depth=level.depth, lanes=value.lanes, value=value, mask=mask,
                    )
                )  # fmt: skip
            return level.memo[key]  # type: ignore[return-value]  # an Expr under this key

    # -- scalar computations -----------------------------------------------------------------

    def inlined(
        self,
        root: Instruction,
        values: dict[Instruction, tuple[Lanes, ...]],
        *,
        rounds: bool = True,
    ) -> tuple[Lanes, ...]:
        """The results of a scalar computation applied to lanes: `values` gives its parameters."""
        frames = [(root, values, [root])]  # of computations in computations
        while True:
            root, values, order = frames[-1]
            if not order:
                frames.pop()
                if not frames:
                    return values[root]
                _, outer, waiting = frames[-1]
                outer[waiting[-1]] = values[root]
            elif (top := order[-1]) in values:
                order.pop()
            elif missing := [o for o in top.operands if o not in values]:
                order += missing
            elif top.opcode in ("fusion", "call", "map"):
                (callee,) = top.called_computations()
                operands = [values[o] for o in top.operands]
                inner = dict(zip(callee.parameters, operands, strict=True))
                frames.append((callee.root, inner, [callee.root]))
            else:
                values[top] = self._inlined_one(top, values, rounds=rounds)

    def _inlined_one(
        self,
        instruction: Instruction,
        values: dict[Instruction, tuple[Lanes, ...]],
        *,
        rounds: bool,
    ) -> tuple[Lanes, ...]:
        operands = [values[o] for o in instruction.operands]
        match instruction.opcode:
            case "constant" if not instruction.shape.dims and instruction.shape.is_array:
                return (constants.scalar(self.nest.w, instruction["literal"]),)  # type: ignore[arg-type]  # Literal
            case "tuple":
                return tuple(lanes for o in operands for lanes in o)
            case "get-tuple-element":
                return (operands[0][tuple_index(instruction)],)
            case "bitcast":
                return (self._reread(instruction, operands[0][0]),)
            case "broadcast" | "reshape" | "copy" | "opt-barrier" | "transpose" if (
                instruction.shape.size == 1
            ):
                return operands[0]
        if not elementwise.supported(instruction.opcode) or instruction.shape.dims:
            raise unsupported(instruction, "in a computation on scalars")
        kinds = [o.shape.dtype for o in instruction.operands]
        flat = [o[0] for o in operands]
        attributes = call_attributes(instruction)
        return (self.apply(instruction, flat, kinds, attributes, rounds=rounds),)


def tuple_index(instruction: Instruction) -> int:
    """Which element a get-tuple-element takes."""
    index = instruction["index"]
    assert isinstance(index, int), "an INT64"
    return index


def keeps_elements(instruction: Instruction) -> bool:
    """Whether a movement op moves whole elements; a bitcast may regroup their bytes."""
    size = instruction.shape.size
    return instruction.opcode != "bitcast" or instruction.operands[0].shape.size == size


class Saved(Protocol):
    """Where the elements of an instruction are kept: its lanes, computed and kept or read."""

    is_touched: bool
    is_filled: bool

    def lanes_at(
        self, elemental: Elemental, instruction: Instruction, indices: list[Index]
    ) -> list[Lanes]: ...


EMITTERS: dict[str, Emitter] = {}


def is_elementwise(instruction: Instruction) -> bool:
    """Whether the result's element depends on the operands' elements at the same index only."""
    opcode = instruction.opcode
    if opcode == "bitcast-convert":  # between widths it regroups: an emitter's work
        return instruction.shape.rank == instruction.operands[0].shape.rank
    return opcode not in EMITTERS and opcode not in CASES and elementwise.supported(opcode)


def emits(*opcodes: str) -> Callable[[Emitter], Emitter]:
    """Enter a function as the emitter of opcodes that neither move nor act element by element."""

    def entered(emitter: Emitter) -> Emitter:
        for opcode in opcodes:
            EMITTERS[opcode] = emitter
        return emitter

    return entered
