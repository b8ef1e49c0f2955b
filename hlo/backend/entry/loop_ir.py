"""Small loops as functions of their own, kernels inlined, for LLVM's middle-end to optimise.

    LoopStep of short iterations --LoopFunction--> text of @hlo_loop_N; its kernels' copies

Calling kernels through memory costs more than the work of a short iteration. Here the loop's state
is behind `noalias` parameters, temporaries and rows are on the stack and kernels are inlined, so
that LLVM keeps loop-carried scalars in registers and sees constant bounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from hlo.analysis.leaves import leaf_count
from hlo.backend.entry import table_ir, watch_ir
from hlo.backend.entry.process import POLL_NS
from hlo.backend.ir.control import Join
from hlo.backend.ir.definitions import Definitions
from hlo.backend.ir.functions import Function
from hlo.backend.ir.interface import MEMCPY, Prototype, prototype
from hlo.backend.ir.ir_module import IrModule
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.procedure import Procedure
from hlo.backend.ir.words import Word
from hlo.backend.planning.allocations import Allocation, AllocationKind
from hlo.backend.planning.constants import constant_array
from hlo.backend.planning.program import (
    AlignStep,
    BranchStep,
    CallStep,
    CopyStep,
    HostStep,
    KernelStep,
    LoopStep,
    Program,
    Step,
    nested,
)
from hlo.backend.planning.slots import HEADER_SLOTS
from hlo.machine import ALIGNMENT, aligned

MOST_STEPS = 200
MOST_LINES = 3600  # The most lines of all inlined kernels together.
# The longest work of an iteration beside its calls, in all and for each of its steps: where they
# work for longer, what a call and a pass through memory cost is less than a tenth.
MOST_US = 0.6
MOST_STEP_US = 0.06
CONSTANT_BYTES = 64  # Constants up to this size are written into the text.
COPY_BYTES = 1024
LOCAL_BYTES = 16 * 1024  # The most bytes of temporaries, which go on the stack.
FUEL = 1000 * POLL_NS  # Picoseconds of a loop's trips between two questions.
VECTOR_TRIPS = 8  # Trips that LLVM may run at once, of which the estimates know nothing.
MOST_SLOTS = 1024  # The most addresses of kernels, which go on the stack too.
MODULE_LINES = 240  # Lines of loops that share a module: 300 take 15 ms.


def is_short(program: Program, loop: LoopStep, uses: Counter[int]) -> bool:
    """Whether an iteration is so short that its calls would weigh."""
    lines = work = 0.0
    count = 0
    slots = sum(count for _, count in rows((loop,)))
    local = local_allocations(program, loop, uses)
    size_bytes = sum(aligned(program.plan.allocations[n].size) for n in local)
    if size_bytes > LOCAL_BYTES or slots > MOST_SLOTS:
        return False
    for count, step in enumerate(nested((loop,))):
        match step:
            case KernelStep():
                kernel = program.kernels[step.kernel]
                if step.chunks > 1 or step.stride or kernel.needs_middle_end or kernel.is_open:
                    return False
                lines += kernel.length
                work += step.cold_us - program.call_us
            case CopyStep():
                work += step.us - program.call_us
                if step.size > COPY_BYTES:
                    return False
            case HostStep() | AlignStep() | CallStep():
                return False
        if count > MOST_STEPS or lines > MOST_LINES:
            return False
    return work <= max(MOST_US, MOST_STEP_US * count)


def rows(steps: Sequence[Step]) -> Iterator[tuple[int, int]]:
    """(slot, count) of every row of addresses that the steps and what they hold use."""
    for step in nested(steps):
        match step:
            case KernelStep():
                yield step.slot, step.width
            case CopyStep():
                yield step.source, 1
                yield step.target, 1
            case AlignStep():
                yield step.source, 1
                yield step.spare, 1
            case HostStep():
                shapes = (*(o.shape for o in step.instruction.operands), step.instruction.shape)
                yield step.slot, sum(leaf_count(shape) for shape in shapes)
            case CallStep():
                yield from ((slot, 1) for slot, _ in step.pairs)
            case LoopStep():
                yield step.predicate, 1
            case BranchStep():
                yield step.selector, 1


def allocation_uses(program: Program, steps: Sequence[Step]) -> Counter[int]:
    """How often the steps name each allocation."""
    uses: Counter[int] = Counter()
    for slot, count in rows(steps):
        uses.update(program.table[slot - HEADER_SLOTS : slot - HEADER_SLOTS + count])
    return uses


def local_allocations(program: Program, loop: LoopStep, uses: Counter[int]) -> set[int]:
    """The arena allocations that only this loop names: values that no iteration hands to the
    next."""
    allocations = program.plan.allocations
    inside = allocation_uses(program, (loop,))
    return {
        number
        for number, count in inside.items()
        if number >= 0
        and allocations[number].kind is AllocationKind.ARENA
        and count == uses[number]
    }


class LoopFunction(Struct):
    """Writes one loop. symbols: the inlined copies' names; uses: of allocations in the whole
    program."""

    program: Program
    name: str
    symbols: list[str]
    uses: Counter[int]
    used: dict[int, None] = field(default_factory=dict)
    _addresses: dict[int, Word] = field(default_factory=dict)
    _rows: dict[tuple[int, int], Word] = field(default_factory=dict)
    # Slots of the allocations that are parameters.
    _slots: dict[int, int] = field(default_factory=dict)
    _constants: dict[int, bytes] = field(default_factory=dict)
    p: Procedure = field(default_factory=lambda: Procedure.begun(()))
    _fuel: Word | None = None

    def text(self, loop: LoopStep) -> str:
        """The function that the entry calls with the frame, and the loop itself."""
        self._place(loop)
        is_watched, allocations = self.program.watched, self.program.plan.allocations
        count = is_watched + len(self._slots)
        body = prototype("i32", f"{self.name}.body", *["ptr"] * count)
        p = self.p = Procedure.begun(body.parameters)
        self._addresses = dict(zip(self._slots, p.parameters[is_watched:], strict=True))
        if is_watched:
            self._fuel = p.stack("i64", 8)
            with p.ahead():
                self._fuel.put(p.word(FUEL))
        self._loop(loop)
        p.ret(p.word(0, "i32"))
        promises = [
            f"{self._promise(number)}dereferenceable({max(1, allocations[number].size)})"
            for number in self._slots
        ]
        if is_watched:
            promises.insert(0, "")
        return "\n".join(
            [
                *(constant_text(f"{self.name}.c{n}", d) for n, d in self._constants.items()),
                self._called(body),
                p.printed(body, linkage="internal", attributes="noinline", promises=promises),
            ]
        )

    def _called(self, body: Prototype) -> str:
        """What takes the addresses from a frame and calls the loop."""
        p = Procedure.begun(("ptr",))
        (frame,) = p.parameters
        addresses = [table_ir.slot(frame, slot).get("ptr") for slot in self._slots.values()]
        p.ret(p.call(body, *([frame] if self.program.watched else []), *addresses))
        return p.printed(prototype("i32", self.name, "ptr"))

    # -- memory --------------------------------------------------------------------------------

    def _place(self, loop: LoopStep) -> None:
        """Where each allocation is: a constant of the text, on the stack, or behind a parameter."""
        allocations = self.program.plan.allocations
        local = local_allocations(self.program, loop, self.uses)
        slot_of: dict[int, int] = {}
        for slot, count in rows((loop,)):
            for k in range(slot, slot + count):
                slot_of.setdefault(self.program.table[k - HEADER_SLOTS], k)
        for number, slot in slot_of.items():
            data = small_constant(allocations[number])
            if data is not None:
                self._constants[number] = data
            elif number not in local:
                self._slots[number] = slot

    def _promise(self, number: int) -> str:
        """`noalias` for an allocation whose bytes no other parameter's are."""
        allocations = self.program.plan.allocations
        allocation = allocations[number]
        if allocation.kind is not AllocationKind.ARENA:
            return "noalias "
        for other in self._slots:
            o = allocations[other]
            meets = (
                o.offset < allocation.offset + allocation.size
                and allocation.offset < o.offset + o.size
            )
            if other != number and o.kind is AllocationKind.ARENA and meets:
                return ""
        return "noalias "

    def _address(self, slot: int) -> Word:
        """The address in a slot."""
        number = self.program.table[slot - HEADER_SLOTS]
        if number in self._constants:
            return self.p.symbol(f"{self.name}.c{number}")
        if number not in self._addresses:
            size = max(1, self.program.plan.allocations[number].size)
            self._addresses[number] = self.p.stack(f"[{size} x i8]", ALIGNMENT)
        return self._addresses[number]

    def _row(self, step: KernelStep) -> Word:
        """A row of addresses on the stack."""
        row = self._rows.get((step.slot, step.width))
        if row is None:
            row = self.p.stack(f"[{max(1, step.width)} x ptr]", 8)
            self._rows[step.slot, step.width] = row
            with self.p.ahead():
                for k in range(step.width):
                    row.put(self._address(step.slot + k), k)
        return row

    # -- steps ---------------------------------------------------------------------------------

    def _steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            match step:
                case KernelStep():
                    self.used[step.kernel] = None
                    kernel = prototype("void", self.symbols[step.kernel], "ptr", "i64", "i64")
                    self.p.call(kernel, self._row(step), 0, step.units)
                case CopyStep():
                    target, source = self._address(step.target), self._address(step.source)
                    self.p.call(MEMCPY, target, source, step.size, 0)
                case LoopStep():
                    self._loop(step)
                case BranchStep():
                    self._branch(step)

    def _loop(self, step: LoopStep) -> None:
        if self.program.watched and not watch_ir.is_short(step):
            self._stripped_loop(step)
            return
        with self.p.loop() as (again, done):
            done.go_unless(self._goes_on(step))
            self._steps(step.body)
            again.go()

    def _stripped_loop(self, step: LoopStep) -> None:
        """A loop of strips with questions in between, in the form that LLVM gives loops itself:
        tested before and at its end, so that what a trip stores can stay in registers.
        """
        p, frame, fuel = self.p, self.p.parameters[0], self._fuel
        assert fuel is not None, "a program that asks has fuel"
        end, strip, trip = p.join(), p.join(), p.join()
        end.go_unless(self._goes_on(step))
        strip.here()
        trip.here()
        self._steps(step.body)
        end.go_unless(self._goes_on(step))
        watch_ir.spend(fuel, self._trip_cost(step), trip)
        watch_ir.ask(p, frame)
        fuel.put(p.word(FUEL))
        strip.go()
        end.here()

    def _goes_on(self, step: LoopStep) -> Word:
        """The condition."""
        self._steps(step.condition)
        return self._address(step.predicate).get("i8").ne(0)

    def _trip_cost(self, loop: LoopStep) -> int:
        """The picoseconds that a trip takes at least, whose kernels are not called."""
        calls = sum(isinstance(s, KernelStep) for s in (*loop.condition, *loop.body))
        us = loop.trip_us - self.program.call_us * calls
        return max(1, round(1e6 * us / VECTOR_TRIPS))

    def _branch(self, step: BranchStep) -> None:
        p, end = self.p, self.p.join()
        branches = [p.join() for _ in step.branches]
        choose(p, step, self._address(step.selector), branches)
        for here, branch in zip(branches, step.branches, strict=True):
            here.here()
            self._steps(branch)
            end.go()
        end.here()


def choose(p: Procedure, step: BranchStep, selector: Word, branches: Sequence[Join]) -> None:
    """Go to the branch that the value at an address selects.

    pred: 0 is the second branch, else the first. s32: out of range is the last branch.
    """
    if step.by_predicate:
        p.switch(selector.get("i8"), {0: branches[-1]}, branches[0])
    else:
        p.switch(selector.get("i32"), dict(enumerate(branches[:-1])), branches[-1])


def small_constant(allocation: Allocation) -> bytes | None:
    """The bytes of a constant allocation that is small enough to stand in the text."""
    if allocation.kind is not AllocationKind.CONSTANT or not 0 < allocation.size <= CONSTANT_BYTES:
        return None
    return constant_array(allocation).tobytes()


def constant_text(symbol: str, data: bytes) -> str:
    """A global constant of these bytes."""
    body = "".join(f"\\{byte:02X}" for byte in data)
    return f'@{symbol} = private unnamed_addr constant [{len(data)} x i8] c"{body}", align 8'


class ShortLoop(Struct, frozen=True):
    """A loop's function and the names of the kernels that it calls."""

    name: str
    text: str
    kernels: tuple[str, ...]


def loop_modules(loops: Sequence[ShortLoop], kernels: dict[str, Kernel]) -> list[IrModule]:
    """The loops with copies of their kernels, small ones together: processors share the others."""
    groups: list[list[ShortLoop]] = []
    room = 0
    for loop in loops:
        lines = loop.text.count("\n") + sum(kernels[n].length for n in loop.kernels)
        if not groups or lines > room:
            groups.append([])
            room = MODULE_LINES
        groups[-1].append(loop)
        room -= lines
    return [_loop_module(group, kernels) for group in groups]


def _loop_module(loops: Sequence[ShortLoop], kernels: dict[str, Kernel]) -> IrModule:
    from hlo.backend.entry.byte_orders import hide
    from hlo.backend.entry.even_copies import even  # for programs with short loops

    names = dict.fromkeys(name for loop in loops for name in loop.kernels)
    needed = Definitions({MEMCPY.declaration: None, watch_ir.POLLS: None})
    functions = map(inlinable, even([kernels[name].function for name in names]))
    for name, function in zip(names, functions, strict=True):
        needed.place(f"{name}.in", replace(kernels[name], function=function))
    orders = [x.text for x in hide(needed)]
    text = "\n".join([*orders, *needed.lines(), *(loop.text for loop in loops), ""])
    return IrModule(text, tuple(loop.name for loop in loops), optimised=True)


def inlinable(function: Function) -> Function:
    """A kernel as a private function that is always inlined."""
    others = f"{function.attributes} " if function.attributes else ""
    return replace(function, linkage="internal", attributes=f"{others} alwaysinline")
