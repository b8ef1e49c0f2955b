"""The entry of a program as LLVM IR: its steps as functions.

    Program --Entry--> texts of functions; the kernels that they call, and short loops

`i32 @hlo_entry(ptr %frame)` runs the steps on a frame's table and gives 0, or what a host call
that failed gave; `i32 @hlo_fill(ptr)` fills the tables that kernels read, where there are any. Long
lists of steps are cut into functions, because LLVM's time grows faster than a function's length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from hlo.backend.entry import copy_table, region_ir, table_ir, watch_ir
from hlo.backend.entry.copy_table import TABLE, Copies, gathered
from hlo.backend.entry.loop_ir import (
    LoopFunction,
    ShortLoop,
    allocation_uses,
    choose,
    is_short,
    loop_modules,
)
from hlo.backend.entry.process import ALONE, POLL_STEP, WOKEN, WORTH_NS
from hlo.backend.entry.step_lists import STEPS_PER_FUNCTION, may_fail, parts, weight
from hlo.backend.ir.interface import MEMCPY, NULL, Prototype, prototype
from hlo.backend.ir.ir_module import AWAKE, ENTRY, FILL, PARALLEL, WAKE, IrModule
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.procedure import Procedure
from hlo.backend.ir.values import Value
from hlo.backend.ir.words import Word
from hlo.backend.isa.generic import FloatMode
from hlo.backend.planning.brevity import brief_loops
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
)
from hlo.backend.planning.slots import SLOT_FRAME, SLOT_HANDLERS, SLOT_HOST, SLOT_TEAM
from hlo.backend.planning.team import Team

if TYPE_CHECKING:
    from hlo.backend.entry.timing_ir import Timing

INLINED_LINES = 4000  # The most lines of short loops in one program.
MOST_LINES = 500  # Of a module of the entry: one alone would keep a processor waiting.


class Extern(Struct, frozen=True):
    """A host step that is a function of C: its name, and how many of its row's addresses are those
    of operands; those of results follow.
    """

    symbol: str
    operands: int


class _Function(Struct):
    """The body of one function of the entry, and the frame that it works on."""

    p: Procedure
    frame: Word

    def slot(self, number: int) -> Word:
        """The address of a slot of the table."""
        return table_ir.slot(self.frame, number)

    def held(self, number: int) -> Word:
        """The address that a slot holds."""
        return self.slot(number).get("ptr")


def _of_frame(symbol: str) -> Prototype:
    """A function of the entry."""
    return prototype("i32", symbol, "ptr")


def _of_kernel(symbol: str) -> Prototype:
    """A kernel, or what runs as one."""
    return prototype("void", symbol, "ptr", "i64", "i64")


class Entry:
    """The functions of a program's entry, their texts by symbol, and what they call."""

    def __init__(
        self,
        program: Program,
        names: list[str],
        *,
        flushed: FloatMode | None,
        timing: Timing | None = None,
        hands_frame: bool = False,
        externs: Mapping[int, Extern] | None = None,
    ) -> None:
        self.timing = timing
        self.inlines = timing is None
        self.is_told = False  # whether calls say who runs parallel loops
        self.is_plain = False  # whether LLVM leaves the entry as it is, wherever it stands
        self.externs = externs or {}
        self.program = program
        self.names = names
        self.flushed = flushed
        self.functions: dict[str, str] = {}
        self.declarations: dict[str, str] = {}
        self.loops: list[ShortLoop] = []
        self.loop_lines = 0
        self.inlined: dict[str, Kernel] = {}
        self.called: dict[int, None] = {}
        self.brief_loops = brief_loops(program)
        self.uses = allocation_uses(program, program.steps)
        for steps in program.routines:
            self.uses += allocation_uses(program, steps)
        self.routines: list[str] = []
        self.slots = program.slots
        self.watched = program.watched
        self.hands_frame = hands_frame or program.watched
        if self.watched:
            self.declarations[POLL_STEP.symbol] = watch_ir.POLLS

    def write(self) -> None:
        """Write all functions."""
        for steps in self.program.routines:
            self.routines.append(self._outlined(steps, "routine"))
        body = self._begun()
        self._gather(body)
        if self.flushed:
            from hlo.backend.entry import flushing

            run = _of_frame(self._outlined(self.program.steps, "steps"))
            flushing.around(body.p, body.frame, run, self.flushed)
            self._end(body, ENTRY)
        else:
            self._steps(body, self.program.steps)
            self._end(body, ENTRY, status=0)

    def _gather(self, body: _Function) -> None:
        """Who runs the parallel loops: the team of the plan, or whom the call has told."""
        p, frame, threads = body.p, body.frame, self.program.threads
        if self.program.team is Team.ALONE:
            return
        gathered = p.join("i64")
        if self.is_told:
            told = frame.get("ptr", SLOT_TEAM).to("i64")
            with p.when(told.eq(ALONE)):
                gathered.go(1)
            if self.program.team is Team.AWAKE:
                with p.when(told.eq(WOKEN)):
                    gathered.go(p.call(AWAKE, threads, WORTH_NS))
        if self.program.team is Team.WOKEN:
            p.call(WAKE)
            count = p.word(threads)
        else:
            count = p.call(AWAKE, threads, int(1000 * self.program.cost_us))
        (count,) = gathered.here(count)
        table_ir.put_threads(frame, count)

    def fill_tables(self, fills: Iterable[str]) -> None:
        """Write the function that makes all tables ready, in the mode in which kernels run."""
        body, names = self._begun(), tuple(fills)
        if not names:
            return
        for name in names:
            body.p.call(prototype("void", name))
        name = f"{FILL}_all" if self.flushed else FILL
        self._end(body, name, status=0)
        if self.flushed:
            from hlo.backend.entry import flushing

            around = self._begun()
            flushing.around(around.p, around.frame, _of_frame(name), self.flushed)
            self._end(around, FILL)

    def _begun(self) -> _Function:
        """An empty function."""
        p = Procedure.begun(("ptr",), self.declarations)
        return _Function(p, p.parameters[0])

    def _end(self, function: _Function, symbol: str, status: int | None = None) -> None:
        """Keep a function under its name. status: what it gives at its end, if it says no other."""
        if status is not None:
            function.p.ret(function.p.word(status, "i32"))
        quick = "noinline optnone" if self.is_plain else ""
        self.functions[symbol] = function.p.printed(_of_frame(symbol), attributes=quick)

    def modules(self) -> list[IrModule]:
        """The functions in modules of their own."""
        groups: list[list[str]] = [[]]
        lines = 0
        for name, text in self.functions.items():
            if groups[-1] and lines + text.count("\n") > MOST_LINES:
                groups.append([])
                lines = 0
            groups[-1].append(name)
            lines += text.count("\n")
        return [
            IrModule(self.text(group, frozenset()), tuple(group), is_glue=True) for group in groups
        ]

    def text(self, symbols: Sequence[str], defined: frozenset[str]) -> str:
        """Some of the functions, and declarations of what is not defined beside them."""
        bodies = [self.functions[s] for s in symbols]
        used = dict.fromkeys(m for body in bodies for m in re.findall(r"@([\w.$-]+)", body))
        needed = [
            self.declarations[s]
            for s in used
            if s not in defined and s not in symbols and not s.endswith(TABLE)
        ]
        return "\n".join([*needed, *bodies, ""])

    def beside(self, module: IrModule) -> IrModule:
        """A module with all functions behind what is in it."""
        declares = [line for line in module.text.split("\n") if line.startswith("declare ")]
        declared = re.findall(r"^declare [^@]*@([\w.$-]+)", "\n".join(declares), re.MULTILINE)
        functions = tuple(self.functions)
        together = module.text + self.text(functions, frozenset((*module.symbols, *declared)))
        return replace(module, text=together, symbols=(*module.symbols, *functions))

    def loop_modules(self) -> list[IrModule]:
        """Those of the short loops."""
        return loop_modules(self.loops, self.inlined)

    @property
    def has_loops(self) -> bool:
        """Whether steps run more than once."""
        lists = (self.program.steps, *self.program.routines)
        return any(isinstance(step, LoopStep) for steps in lists for step in steps)

    def _run(self, function: _Function) -> Value:
        """The run as the pool knows it: its frame, if it can be stopped or is asked for."""
        return function.frame if self.hands_frame else NULL

    def length(self) -> int:
        """Lines of the functions, but for the label that each begins with."""
        return sum(f.count("\n") - 1 for f in self.functions.values())

    def _outlined(self, steps: tuple[Step, ...], name: str) -> str:
        """A function of its own for the steps; its name."""
        function = self._begun()
        self._steps(function, steps)
        symbol = f"hlo_{name}_{len(self.functions)}"
        self._end(function, symbol, status=0)
        return symbol

    def _steps(self, function: _Function, steps: tuple[Step, ...]) -> None:
        """Write the steps; too many of them go into functions that are called in turn."""
        if self.timing is None and any(isinstance(s, Copies) for s in gathered(steps)):
            self._with_tables(function, steps)
            return
        if sum(map(weight, steps)) > STEPS_PER_FUNCTION and len(steps) > 1:
            for part in parts(steps):
                self._run_part(function, part)
            return
        since, timing = 0.0, self.timing
        has_regions = timing is None or timing.has_regions
        for step in self._regions(function, steps) if has_regions else steps:
            began = timing.begin(function.p, step) if timing else None
            self._step(function, step)
            if timing:
                timing.end(function.p, function.frame, step, began)
            since += step.us
            if self.watched and (since >= watch_ir.POLL_US or self._is_open(step)):
                watch_ir.ask(function.p, function.frame)
                since = 0.0

    def _is_open(self, step: Step) -> bool:
        """Whether nobody knows how long a step takes."""
        if isinstance(step, KernelStep):
            return self.program.kernels[step.kernel].is_open
        return isinstance(step, HostStep)

    def _step(self, function: _Function, step: Step) -> None:
        match step:
            case KernelStep():
                self._kernel(function, step)
            case CopyStep():
                self._copy(function, step)
            case AlignStep():
                self._align(function, step)
            case HostStep():
                self._host(function, step)
            case CallStep():
                self._call(function, step)
            case LoopStep():
                self._loop(function, step)
            case BranchStep():
                self._branch(function, step)

    def _with_tables(self, function: _Function, steps: tuple[Step, ...]) -> None:
        """Write the steps, long rows of copies by tables."""
        for is_table, row in groupby(gathered(steps), lambda s: isinstance(s, Copies)):
            if not is_table:
                between = tuple(s for s in row if not isinstance(s, Copies))
                self._run_part(function, between)
                continue
            for copies in row:
                assert isinstance(copies, Copies), "a group of tables"
                symbol = f"hlo_copies_{len(self.functions)}"
                self.functions[symbol] = copy_table.function(symbol, copies)
                self.declarations[MEMCPY.symbol] = MEMCPY.declaration
                function.p.call(prototype("void", symbol, "ptr"), function.frame)

    def _run_part(self, function: _Function, steps: tuple[Step, ...]) -> None:
        """Run steps as a function of their own, and leave with its status when it failed."""
        name = self._outlined(steps, "part")
        self._leave(function, function.p.call(_of_frame(name), function.frame), steps)

    def _regions(self, function: _Function, steps: tuple[Step, ...]) -> Iterator[Step]:
        """The steps; those of a region are written as one parallel loop instead."""
        for is_region, group in region_ir.grouped_steps(steps):
            if not is_region:
                yield from group
                continue
            own = region_ir.longest_first(group)
            kernels = [self._symbol(step) for step in own]
            for name in kernels:
                self._kernel_address(function, name)
            symbol = f"hlo_region_{len(self.functions)}"
            self.functions[symbol] = region_ir.function(symbol, own, kernels)
            region = self._kernel_address(function, symbol)
            chunks = region_ir.chunks(own, self.program.share_us)
            run = self._run(function)
            region_ir.call(function.p, function.frame, region, len(own), chunks, run)
            if self.watched:
                watch_ir.ask(function.p, function.frame)

    def _leave(self, function: _Function, status: Word, part: tuple[Step, ...]) -> None:
        """Behind a call that may fail: leave with its status when it did."""
        if self.watched or may_fail(part):
            with function.p.when(status.ne(0)):
                function.p.ret(status)

    def _kernel_address(self, function: _Function, name: str) -> Word:
        """A kernel for others to call."""
        self.declarations[name] = _of_kernel(name).declaration
        return function.p.symbol(name)

    def _symbol(self, step: KernelStep) -> str:
        """What a step calls."""
        self.called[step.kernel] = None
        name = self.names[step.kernel]
        return self.timing.kernel(step, name) if self.timing else name

    def _kernel(self, function: _Function, step: KernelStep) -> None:
        p, name, row = function.p, self._symbol(step), function.slot(step.slot)
        piece = watch_ir.piece(step)
        if step.chunks > 1:
            kernel, threads = self._kernel_address(function, name), table_ir.threads(function.frame)
            p.call(
                PARALLEL, kernel, row, step.stride, step.units, step.chunks,
                threads, int(step.at_ends), piece, self._run(function),
            )  # fmt: skip
        elif self.watched and piece < step.units:
            kernel = self._kernel_address(function, name)
            watch_ir.in_pieces(p, function.frame, kernel, row, step.units, piece)
        else:
            p.call(_of_kernel(name), row, 0, step.units)

    def _copy(self, function: _Function, step: CopyStep) -> None:
        source, target = function.held(step.source), function.held(step.target)
        function.p.call(MEMCPY, target, source, step.size, 0)

    def _align(self, function: _Function, step: AlignStep) -> None:
        from hlo.backend.entry.aligning import aligned_address

        source, spare = function.held(step.source), function.held(step.spare)
        self._point(function, step.allocation, aligned_address(function.p, source, spare, step))

    def _point(self, function: _Function, allocation: int, address: Word) -> None:
        """Put an address into all slots of an allocation."""
        for number in self.slots.get(allocation, ()):
            function.slot(number).put(address)

    def _call(self, function: _Function, step: CallStep) -> None:
        for slot, allocation in step.pairs:
            if allocation in self.slots:
                self._point(function, allocation, function.held(slot))
        routine = _of_frame(self.routines[step.routine])
        self._leave(function, function.p.call(routine, function.frame), (step,))
        if self.watched:
            watch_ir.ask_after_call(function.p, function.frame, step)

    def _host(self, function: _Function, step: HostStep) -> None:
        extern, row, p = self.externs.get(step.number), function.slot(step.slot), function.p
        if extern is not None:
            called = prototype("i32", extern.symbol, "ptr", "ptr")
            status = p.call(called, row, function.slot(step.slot + extern.operands))
        elif step.is_handler:
            from hlo.backend.entry import handler_ir  # few programs call handlers

            status = handler_ir.called(p, function.held(SLOT_HANDLERS), step.number, row)
        else:
            host, context = function.held(SLOT_HOST), function.held(SLOT_FRAME)
            status = p.call_address("i32", host, context, p.word(step.number))
        self._leave(function, status, (step,))

    def _loop(self, function: _Function, step: LoopStep) -> None:
        if self._inlined(function, step):
            return
        with function.p.loop() as (again, done):
            self._steps(function, step.condition)
            done.go_unless(function.held(step.predicate).get("i8").ne(0))
            self._steps(function, step.body)
            if self.watched and not watch_ir.is_short(step):
                watch_ir.ask_seldom(function.p, function.frame, step.trip_us, again)
            again.go()

    def _inlined(self, function: _Function, step: LoopStep) -> bool:
        """Whether the loop is short and was written as a function of its own."""
        if not self.inlines or self.loop_lines > INLINED_LINES:
            return False
        if step in self.brief_loops or not is_short(self.program, step, self.uses):
            return False
        name = f"hlo_loop_{len(self.loops)}"
        loop = LoopFunction(self.program, name, [f"{n}.in" for n in self.names], self.uses)
        text = loop.text(step)
        used = {self.names[n]: self.program.kernels[n] for n in loop.used}
        self.loops.append(ShortLoop(name, text, tuple(used)))
        self.inlined.update(used)
        self.loop_lines += text.count("\n")
        self._leave(function, function.p.call(_of_frame(name), function.frame), ())
        return True

    def _branch(self, function: _Function, step: BranchStep) -> None:
        p, end = function.p, function.p.join()
        branches = [p.join() for _ in step.branches]
        choose(p, step, function.held(step.selector), branches)
        for here, branch in zip(branches, step.branches, strict=True):
            here.here()
            self._steps(function, branch)
            end.go()
        end.here()
