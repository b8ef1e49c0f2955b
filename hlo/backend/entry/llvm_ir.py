"""LLVM IR of a program: modules of kernels, and one with the entry.

    Program --emit--> IrModule ... (text, the symbols that it defines)

`i32 @hlo_entry(ptr %frame)` runs the steps on a frame's table and gives 0, or what a host call
that failed gave; `i32 @hlo_fill(ptr)` fills the tables that kernels read, where there are any. Long
lists of steps are cut into functions, because LLVM's time grows faster than a function's length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from msgspec import Struct, field
from msgspec.structs import replace

from hlo.backend.entry import copy_table, flushing, region_ir, watch_ir
from hlo.backend.entry.aligning import aligned_address
from hlo.backend.entry.byte_orders import hide
from hlo.backend.entry.copy_table import TABLE, Copies, gathered
from hlo.backend.entry.loop_ir import (
    LoopFunction,
    ShortLoop,
    branch_rows,
    cell_uses,
    is_short,
    loop_modules,
)
from hlo.backend.entry.polling import with_polls
from hlo.backend.entry.run_ir import PIECES, POLL_STEP
from hlo.backend.entry.step_lists import STEPS_PER_FUNCTION, may_fail, parts, weight
from hlo.backend.ir.cutting import cut
from hlo.backend.ir.definitions import Definitions, symbol
from hlo.backend.ir.filling import apart
from hlo.backend.ir.grouping import MOST_LINES, grouped, processors
from hlo.backend.ir.ir_module import ENTRY, FILL, PARALLEL, PARALLEL_TYPES, WAKE, IrModule
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.shared_functions import shared, shared_often
from hlo.backend.isa.generic import FloatMode
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
from hlo.backend.planning.slots import (
    SLOT_COUNTERS,
    SLOT_FRAME,
    SLOT_HOST,
    SLOT_THREADS,
)

TimedStep = KernelStep | CopyStep | HostStep
COPY = "llvm.memcpy.p0.p0.i64"
INLINED_LINES = 4000  # of short loops in one program
LEAST_CUT, MOST_CUT = 150, 400  # of a kernel that may stay whole; 400 are 11 ms
LONG_SHARE, PIECE_SHARE = 140, 60  # per cent of a processor's: what is cut, and into which pieces
GLUE_LINES = 24  # of an entry that is no module of its own


def emit(program: Program, *, flushed: FloatMode | None = None) -> tuple[IrModule, ...]:
    """The kernels' modules, the entry in the last of them. flushed: with denormals as zeros."""
    program = with_polls(program)
    names = [symbol(kernel) for kernel in program.kernels]
    return _modules(_Entry(program, names, flushed=flushed))


def emit_timed(program: Program) -> tuple[tuple[IrModule, ...], list[TimedStep]]:
    """Modules whose entry counts cycles and calls of every step, and the steps that it counts."""
    program = with_polls(program)
    names = [symbol(kernel) for kernel in program.kernels]
    entry = _Entry(program, names, flushed=None, timed=[])
    modules = _modules(entry)
    assert entry.timed is not None, "a timed entry lists its steps"
    return modules, entry.timed


def _modules(entry: _Entry) -> tuple[IrModule, ...]:
    entry.write()
    names, program = entry.names, entry.program
    called = {names[n]: program.kernels[n] for n in sorted(entry.called)}
    for kernel in (*called.values(), *entry.inlined.values()):
        called |= {symbol(function): function for function in kernel.functions}
    fills: dict[str, Kernel] = {}
    called, entry.inlined = apart(called, fills), apart(entry.inlined, fills)
    entry.fill_tables(fills)
    called |= fills
    scalar = {n: k for n, k in called.items() if k.needs_middle_end}
    glue = {n: k for n, k in called.items() if k.is_glue and n not in scalar}
    plain = shared({n: k for n, k in called.items() if n not in scalar and n not in glue})
    entry.inlined, often = shared_often(entry.inlined)
    plain = _cut_to_shares(often | plain)
    rest = [kernel_module(group, optimised=True) for group in grouped(scalar)]
    modules = [kernel_module(group) for group in grouped(plain)]
    glued = [kernel_module(group, is_glue=True) for group in grouped(glue)]
    modules = modules + glued if not entry.has_loops else glued + modules
    modules = [*rest, *loop_modules(entry.loops, entry.inlined), *modules]
    if entry.length() > GLUE_LINES and (plain or glue):
        return (*modules, *entry.modules())
    last = modules.pop() if plain or glue else kernel_module({})
    declared = re.findall(r"^declare [^@]*@([\w.$-]+)", last.text, re.MULTILINE)
    functions = tuple(entry.functions)
    together = last.text + entry.text(functions, frozenset((*last.symbols, *declared)))
    return (*modules, replace(last, text=together, symbols=(*last.symbols, *functions)))


def _cut_to_shares(kernels: dict[str, Kernel]) -> dict[str, Kernel]:
    """The kernels, long ones in pieces, so that each processor has its share of the lines."""
    share = sum(k.length for k in kernels.values()) // processors()
    longest = max(LEAST_CUT, min(MOST_CUT, LONG_SHARE * share // 100))
    return cut(kernels, min(MOST_CUT, PIECE_SHARE * share // 100), longest)


def kernel_module(
    group: dict[str, Kernel], *, optimised: bool = False, is_glue: bool = False
) -> IrModule:
    """The kernels of a group and what they need beside them, once each."""
    together = Definitions()
    for name, kernel in group.items():
        together.place(name, kernel)
    together.drop_declared(group)
    orders = [x.text for x in hide(together)] if optimised else []
    text = "\n".join([*orders, *together.lines(), ""])
    return IrModule(text, tuple(group), optimised, is_glue)


class _Function(Struct):
    """The lines of one function of the entry."""

    lines: list[str] = field(default_factory=list)
    count: int = 0

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def slot(self, number: int) -> str:
        """The address of a slot of the table."""
        name = "%" + self.fresh("t")
        self.lines.append(f"  {name} = getelementptr i8, ptr %frame, i64 {8 * number}")
        return name

    def held(self, number: int) -> str:
        """The address that a slot holds."""
        slot, name = self.slot(number), "%" + self.fresh("p")
        self.lines.append(f"  {name} = load ptr, ptr {slot}, align 8")
        return name


class _Entry:
    """Writes the entry's module."""

    def __init__(
        self,
        program: Program,
        names: list[str],
        *,
        flushed: FloatMode | None,
        timed: list[TimedStep] | None = None,
    ) -> None:
        self.timed = timed
        self.program = program
        self.names = names
        self.flushed = flushed
        self.functions: dict[str, str] = {}
        self.declarations: dict[str, str] = {}
        self.loops: list[ShortLoop] = []
        self.loop_lines = 0
        self.inlined: dict[str, Kernel] = {}
        self.called: dict[int, None] = {}
        self.uses = cell_uses(program, program.steps)
        for steps in program.routines:
            self.uses += cell_uses(program, steps)
        self.routines: list[str] = []
        self.slots = program.slots
        self.watched = program.watched
        if self.watched:
            self._declare(POLL_STEP.symbol, watch_ir.POLLS)
            self.declarations[PIECES.symbol] = PIECES.declaration

    def write(self) -> None:
        """Write all functions."""
        for steps in self.program.routines:
            self.routines.append(self._outlined(steps, "routine"))
        body = _Function()
        if self.program.wakes_pool:
            self._declare(WAKE, f"void @{WAKE}()")
            body.lines.append(f"  call void @{WAKE}()")
        if self.flushed:
            self._flush(body, self._outlined(self.program.steps, "steps"), self.flushed)
        else:
            self._steps(body, self.program.steps)
            body.lines.append("  ret i32 0")
        head = f"define i32 @{ENTRY}(ptr %frame) {{"
        self.functions[ENTRY] = "\n".join([head, *body.lines, "}"])

    def fill_tables(self, fills: Iterable[str]) -> None:
        """Write the function that makes all tables ready, in the mode in which kernels run."""
        body = _Function()
        for name in fills:
            self._declare(name, f"void @{name}()")
            body.lines.append(f"  call void @{name}()")
        if not body.lines:
            return
        name = f"{FILL}_all" if self.flushed else FILL
        head = f"define i32 @{name}(ptr %frame) {{"
        self.functions[name] = "\n".join([head, *body.lines, "  ret i32 0", "}"])
        if self.flushed:
            body = _Function()
            self._flush(body, name, self.flushed)
            self.functions[FILL] = "\n".join([head.replace(name, FILL), *body.lines, "}"])

    def modules(self) -> list[IrModule]:
        """The functions in modules of MOST_LINES: one alone would keep a processor waiting."""
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
            self.declarations.get(s) or f"declare i32 @{s}(ptr)"
            for s in used
            if s not in defined and s not in symbols and not s.endswith(TABLE)
        ]
        return "\n".join([*needed, *bodies, ""])

    @property
    def has_loops(self) -> bool:
        """Whether steps run more than once."""
        lists = (self.program.steps, *self.program.routines)
        return any(isinstance(step, LoopStep) for steps in lists for step in steps)

    @property
    def _run(self) -> str:
        """The run as the pool knows it: its frame, if it can be stopped."""
        return "ptr %frame" if self.watched else "ptr null"

    def length(self) -> int:
        """Lines of the functions."""
        return sum(f.count("\n") for f in self.functions.values())

    def _declare(self, symbol: str, signature: str) -> None:
        self.declarations[symbol] = f"declare {signature}"

    def _flush(self, body: _Function, run: str, mode: FloatMode) -> None:
        """Run with denormals as zeros, and put the caller's mode back."""
        body.lines += flushing.around(run, mode, self.declarations)

    def _outlined(self, steps: tuple[Step, ...], name: str) -> str:
        """A function of its own for the steps; its name."""
        function = _Function()
        self._steps(function, steps)
        symbol = f"hlo_{name}_{len(self.functions)}"
        head = f"define i32 @{symbol}(ptr %frame) {{"
        self.functions[symbol] = "\n".join([head, *function.lines, "  ret i32 0", "}"])
        return symbol

    def _steps(self, function: _Function, steps: tuple[Step, ...]) -> None:
        """Write the steps; too many of them go into functions that are called in turn."""
        if self.timed is None and any(isinstance(s, Copies) for s in gathered(steps)):
            self._with_tables(function, steps)
            return
        if sum(map(weight, steps)) > STEPS_PER_FUNCTION and len(steps) > 1:
            for part in parts(steps):
                name = self._outlined(part, "part")
                self._checked(function, f"call i32 @{name}(ptr %frame)", part)
            return
        since = 0.0
        for step in steps if self.timed is not None else self._regions(function, steps):
            began = self._clock(function, step)
            self._step(function, step)
            self._count(function, step, began)
            since += step.us
            if self.watched and (since >= watch_ir.POLL_US or isinstance(step, HostStep)):
                function.lines += watch_ir.asking(function.fresh("p"))
                since = 0.0

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
                name = self._outlined(between, "part")
                self._checked(function, f"call i32 @{name}(ptr %frame)", between)
                continue
            for copies in row:
                assert isinstance(copies, Copies), "a group of tables"
                symbol = f"hlo_copies_{len(self.functions)}"
                self.functions[symbol] = copy_table.function(symbol, copies)
                self._declare(symbol, f"void @{symbol}(ptr)")
                self._declare(COPY, f"void @{COPY}(ptr, ptr, i64, i1)")
                function.lines.append(f"  call void @{symbol}(ptr %frame)")

    def _regions(self, function: _Function, steps: tuple[Step, ...]) -> Iterator[Step]:
        """The steps; those of a region are written as one parallel loop instead."""
        for is_region, group in region_ir.grouped_steps(steps):
            if not is_region:
                yield from group
                continue
            own = region_ir.longest_first(group)
            for step in own:
                self.called[step.kernel] = None
                name = self.names[step.kernel]
                self._declare(name, f"void @{name}(ptr, i64, i64)")
            symbol = f"hlo_region_{len(self.functions)}"
            self.functions[symbol] = region_ir.function(symbol, own, self.names)
            self._declare(symbol, f"void @{symbol}(ptr, i64, i64)")
            self._declare(PARALLEL, f"void @{PARALLEL}({PARALLEL_TYPES})")
            chunks = region_ir.chunks(own, self.program.share_us)
            function.lines += region_ir.call(
                symbol, PARALLEL, len(own), chunks, function.fresh("region"), self._run
            )
            if self.watched:
                function.lines += watch_ir.asking(function.fresh("p"))

    def _clock(self, function: _Function, step: Step) -> str:
        """The cycle counter before a step, in a timed entry."""
        if self.timed is None or not isinstance(step, TimedStep):
            return ""
        self._declare("llvm.readcyclecounter", "i64 @llvm.readcyclecounter()")
        name = "%" + function.fresh("clock")
        function.lines.append(f"  {name} = call i64 @llvm.readcyclecounter()")
        return name

    def _count(self, function: _Function, step: Step, began: str) -> None:
        """Add a step's cycles and one call to its counters, in a timed entry."""
        if self.timed is None or not isinstance(step, TimedStep):
            return
        ended, counters = self._clock(function, step), function.held(SLOT_COUNTERS)
        function.count += 1
        n, row = function.count, 16 * len(self.timed)
        self.timed.append(step)
        function.lines += [
            f"  %spent{n} = sub i64 {ended}, {began}",
            f"  %at{n} = getelementptr i8, ptr {counters}, i64 {row}",
            f"  %old{n} = load i64, ptr %at{n}",
            f"  %new{n} = add i64 %old{n}, %spent{n}",
            f"  store i64 %new{n}, ptr %at{n}",
            f"  %times{n} = getelementptr i8, ptr %at{n}, i64 8",
            f"  %count{n} = load i64, ptr %times{n}",
            f"  %more{n} = add i64 %count{n}, 1",
            f"  store i64 %more{n}, ptr %times{n}",
        ]

    def _checked(self, function: _Function, call: str, part: tuple[Step, ...]) -> None:
        """A call that may fail: leave with its status when it did."""
        if not (self.watched or may_fail(part)):
            function.lines.append(f"  {call}")
            return
        status, bad = "%" + function.fresh("s"), "%" + function.fresh("c")
        leave, stay = function.fresh("leave"), function.fresh("stay")
        function.lines += [
            f"  {status} = {call}",
            f"  {bad} = icmp ne i32 {status}, 0",
            f"  br i1 {bad}, label %{leave}, label %{stay}",
            f"{leave}:",
            f"  ret i32 {status}",
            f"{stay}:",
        ]

    def _kernel(self, function: _Function, step: KernelStep) -> None:
        self.called[step.kernel] = None
        name, row = self.names[step.kernel], function.slot(step.slot)
        self._declare(name, f"void @{name}(ptr, i64, i64)")
        piece = watch_ir.piece(step)
        if step.chunks <= 1:
            line = f"  call void @{name}(ptr {row}, i64 0, i64 {step.units})"
            if self.watched and piece < step.units:
                line = watch_ir.in_pieces(name, row, step.units, piece)
            function.lines.append(line)
            return
        self._declare(PARALLEL, f"void @{PARALLEL}({PARALLEL_TYPES})")
        slot, threads = function.slot(SLOT_THREADS), "%" + function.fresh("n")
        function.lines += [
            f"  {threads} = load i64, ptr {slot}, align 8",
            f"  call void @{PARALLEL}(ptr @{name}, ptr {row}, i64 {8 * step.stride}, "
            f"i64 {step.units}, i64 {step.chunks}, i64 {threads}, i64 {int(step.at_ends)}, "
            f"i64 {piece}, {self._run})",
        ]

    def _copy(self, function: _Function, step: CopyStep) -> None:
        source, target = function.held(step.source), function.held(step.target)
        copy = f"void @{COPY}"
        self._declare(COPY, f"{copy}(ptr, ptr, i64, i1)")
        function.lines.append(
            f"  call {copy}(ptr {target}, ptr {source}, i64 {step.size}, i1 false)"
        )

    def _align(self, function: _Function, step: AlignStep) -> None:
        self._declare(COPY, f"void @{COPY}(ptr, ptr, i64, i1)")
        source, spare = function.held(step.source), function.held(step.spare)
        used = function.fresh("used")
        function.lines += aligned_address(used, source, spare, step)
        self._point(function, step.cell, f"%{used}")

    def _point(self, function: _Function, cell: int, address: str) -> None:
        """Put an address into all slots of a cell."""
        for number in self.slots.get(cell, ()):
            function.lines.append(f"  store ptr {address}, ptr {function.slot(number)}, align 8")

    def _call(self, function: _Function, step: CallStep) -> None:
        for slot, cell in step.pairs:
            if cell in self.slots:
                self._point(function, cell, function.held(slot))
        self._checked(function, f"call i32 @{self.routines[step.routine]}(ptr %frame)", (step,))
        if self.watched:
            function.lines += watch_ir.after_call(function.fresh("e"), step)

    def _host(self, function: _Function, step: HostStep) -> None:
        host, context = function.held(SLOT_HOST), function.held(SLOT_FRAME)
        self._checked(function, f"call i32 {host}(ptr {context}, i64 {step.number})", (step,))

    def _loop(self, function: _Function, step: LoopStep) -> None:
        if self._inlined(function, step):
            return
        test, body, end = (function.fresh(p) for p in ("test", "body", "end"))
        function.lines += [f"  br label %{test}", f"{test}:"]
        self._steps(function, step.condition)
        address, byte, more = (
            function.held(step.predicate),
            "%" + function.fresh("b"),
            "%" + function.fresh("c"),
        )
        function.lines += [
            f"  {byte} = load i8, ptr {address}",
            f"  {more} = icmp ne i8 {byte}, 0",
            f"  br i1 {more}, label %{body}, label %{end}",
            f"{body}:",
        ]
        self._steps(function, step.body)
        if self.watched and not watch_ir.is_short(step):
            function.lines += watch_ir.back_edge(function.fresh("e"), test, step.trip_us)
        function.lines += [f"  br label %{test}", f"{end}:"]

    def _inlined(self, function: _Function, step: LoopStep) -> bool:
        """Whether the loop is short and was written as a function of its own."""
        if self.timed is not None or self.loop_lines > INLINED_LINES:
            return False
        if not is_short(self.program, step, self.uses):
            return False
        name = f"hlo_loop_{len(self.loops)}"
        loop = LoopFunction(self.program, name, [f"{n}.in" for n in self.names], self.uses)
        text = loop.text(step)
        used = {self.names[n]: self.program.kernels[n] for n in loop.used}
        self.loops.append(ShortLoop(name, text, tuple(used)))
        self.inlined.update(used)
        self.loop_lines += text.count("\n")
        self._declare(name, f"i32 @{name}(ptr)")
        self._checked(function, f"call i32 @{name}(ptr %frame)", ())
        return True

    def _branch(self, function: _Function, step: BranchStep) -> None:
        function.count += 1
        prefix, end = f"case{function.count}.", f"end{function.count}"
        type, rows = branch_rows(step, prefix)
        address, value = function.held(step.selector), "%" + function.fresh("v")
        function.lines += [
            f"  {value} = load {type}, ptr {address}",
            f"  switch {type} {value}, {rows}",
        ]
        for number, branch in enumerate(step.branches):
            function.lines.append(f"{prefix}{number}:")
            self._steps(function, branch)
            function.lines.append(f"  br label %{end}")
        function.lines.append(f"{end}:")
