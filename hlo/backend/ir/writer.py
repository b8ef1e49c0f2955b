"""Writer: LLVM IR as records, one typed instruction at a time; text is made of them once.

    w.binary("fadd", a, b) -> Value      and the record of `%v3 = fadd float %v1, %v2` in w.records

Common subexpressions within a block are found here (same opcode, same operands: same Value), since
kernels run no LLVM middle-end. A record is a struct of a few fields, 0.1 us; llvmlite's builder
takes 6-12. Does not know HLO.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, reduce

from msgspec import Struct, field
from msgspec.structs import replace

from hlo.backend.ir.functions import (
    BOUNDED_PARAMETERS,
    BUFFERS,
    PARAMETERS,
    Data,
    Definition,
    Function,
)
from hlo.backend.ir.records import (
    Alloca,
    Arithmetic,
    Call,
    Cast,
    GetElementPtr,
    Instruction,
    Label,
    Line,
    Load,
    Phi,
    branch,
    branch_if,
)
from hlo.backend.ir.values import Value as Value
from hlo.backend.ir.values import counted, lane_order, poison, truths_of
from hlo.backend.ir.values import float_bits as float_bits
from hlo.backend.ir.values import lanes_of as lanes_of
from hlo.backend.ir.values import mangled as mangled
from hlo.backend.ir.values import scalar_of as scalar_of
from hlo.backend.ir.values import vector_of as vector_of

Known = dict[tuple[Hashable, ...], Value]  # what was computed: by opcode and operands
Count = int  # inside Writer `int` is its method


class Writer(Struct):
    """The body of one function. Names are `%1`-style with a letter: `%v12`; labels `b3`.

    inlines: how many more long formulas may stand where they are called (math/term.py).
    """

    records: list[Line] = field(default_factory=list)
    declarations: dict[str, str] = field(default_factory=dict)  # symbol -> `declare ...` line
    globals: dict[str, Definition] = field(default_factory=dict)
    location: str = ""  # debug location that new records get (annotate.py)
    inlines: int = 0
    _count: int = 0
    _known: Known = field(default_factory=dict)
    _around: Sequence[Known] = ()

    # -- plumbing ----------------------------------------------------------------------------

    def fresh(self, prefix: str = "v") -> str:
        self._count += 1
        return f"%{prefix}{self._count}"

    def emit(self, opcode: str, *operands: Value, rest: str = "") -> None:
        """An instruction without a result: `opcode T a, T b` and what follows the operands."""
        self.records.append(Instruction("", "void", opcode, operands, rest, self.location))

    def assign(
        self, kind: type[Instruction], type: str, opcode: str, *operands: Value, rest: str = ""
    ) -> Value:
        """An instruction of that kind with a fresh result of the type. Never shared."""
        return self._defined(kind(self.fresh(), type, opcode, operands, rest, self.location))

    def pure(
        self, kind: type[Instruction], type: str, opcode: str, *operands: Value, rest: str = ""
    ) -> Value:
        """Like `assign`, but the same in the same scope gives the earlier value."""
        key = (opcode, *operands, type, rest)
        found = self._known.get(key)
        if found is None:
            self._count += 1
            name = f"%v{self._count}"
            self.records.append(kind(name, type, opcode, operands, rest, self.location))
            found = self._known[key] = Value(name, type)
        return found

    def append(self, record: Instruction) -> Value:
        """An instruction whose result has a name already."""
        record.location = self.location
        return self._defined(record)

    def _defined(self, record: Instruction) -> Value:
        self.records.append(record)
        return Value(record.name, record.type)

    def function(
        self,
        parameters: Iterable[Value] = PARAMETERS,
        *,
        result: str = "void",
        has_entry: bool = False,
        ends_line: bool = False,
    ) -> Function:
        """The function of which this is the body, as a kernel's or as what kernels call.

        has_entry: whether its first block has a label.
        """
        records = [Label("entry"), *self.records] if has_entry else self.records
        return Function(
            parameters=tuple(parameters),
            records=records,
            result=result,
            attributes="nounwind",
            ends_line=ends_line,
        )

    def counting(self, first: Value, lanes: int) -> Value:
        """first, first + 1, ... in lanes."""
        steps = counted(first.type, lanes)
        return self.binary("add", self.splat(first, lanes).of_type(steps.type), steps)

    @property
    def beside(self) -> tuple[tuple[str, ...], tuple[Definition, ...]]:
        """What the function needs beside it: declarations, functions and data."""
        return tuple(self.declarations.values()), tuple(self.globals.values())

    def kernel_function(self) -> Function:
        """The kernel's function of which this is the body."""
        self.ret()
        return self.function(ends_line=True)

    def bounded_function(self) -> Function:
        """The same of a kernel that is called with bounds."""
        self.ret()
        return self.function(BOUNDED_PARAMETERS, ends_line=True)

    def buffer_address(self, place: int) -> Value:
        """An address from the kernel's table; called at its head."""
        slot = self.address(BUFFERS, self.int(place), "ptr") if place else BUFFERS
        return self.load_address(slot)

    def enter_data(self, symbol: str, text: str) -> None:
        """A global variable: `@symbol = ...`."""
        self.globals[symbol] = Data(symbol, text)

    def enter_function(self, symbol: str, body: Writer, parameters: Iterable[Value]) -> None:
        """A function of which another writer holds the body, defined beside this one: internal, and
        the same under this symbol in every module.
        """
        last = body.records[-1]
        assert isinstance(last, Instruction), "a function returns"
        result = last.operands[0].type if last.operands else "void"
        self.globals[symbol] = replace(
            body.function(parameters, result=result),
            symbol=symbol, linkage="internal", is_library=True,
        )  # fmt: skip

    def text(self) -> str:
        """The records as lines."""
        return "\n".join(map(str, self.records))

    def note(self, about: Value, what: str, value: Value) -> None:
        """Remember, as long as `about` is known, a value that belongs to it."""
        self._known["note", what, about.text] = value

    def noted(self, about: Value, what: str) -> Value | None:
        """What was noted of a value, or of the scalar that is in all its lanes; else None."""
        found = self._found(("note", what, about.text))
        scalar = self._found(("splat", about.text)) if found is None else None
        if scalar is not None and (of_scalar := self._found(("note", what, scalar.text))):
            return self.splat(of_scalar, about.lanes)
        return found

    def _found(self, key: tuple[Hashable, ...]) -> Value | None:
        """What is known here or in a region around this one."""
        found = self._known.get(key)
        around = iter(self._around)
        while found is None and (known := next(around, None)) is not None:
            found = known.get(key)
        return found

    def scope(self) -> Known:
        """A copy of what is known here, for a region of its own."""
        return dict(self._known)

    @contextmanager
    def region(self) -> Iterator[None]:
        """Blocks that what comes behind them is not always reached through: what is computed in
        them is not known there, nor to open loops, which have the same dictionary.
        """
        known, before = self._known, dict(self._known)
        yield
        known.clear()
        known.update(before)
        self._known = known

    def restore(
        self,
        known: Known,
        around: Sequence[Known] | None = None,
    ) -> None:
        """around: what is known in the regions around that of `known`, which may have grown since
        that was begun; None: the same regions.
        """
        self._known = known
        if around is not None:
            self._around = around

    def new_label(self, prefix: str = "b") -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def label(self, label: str) -> None:
        self.records.append(Label(label))

    def branch(self, label: str) -> None:
        self.append(branch(label))

    def branch_if(self, when: Value, then: str, otherwise: str, *, is_rare: bool = False) -> None:
        self.append(branch_if(when, then, otherwise, is_rare=is_rare))

    def ret(self, value: Value | None = None) -> None:
        """The end of the function."""
        if value is None:
            self.emit("ret void")
        else:
            self.emit("ret", value)

    def phi(
        self, type: str, *incoming: tuple[Value, str], name: str = "", is_tight: bool = False
    ) -> Phi:
        """What comes from each of the blocks; more are told by `add_incoming`."""
        values, blocks = tuple(v for v, _ in incoming), tuple(label for _, label in incoming)
        name = name or self.fresh()
        made = Phi(name, type, "phi", values, "", self.location, blocks, is_tight)
        self.records.append(made)
        return made

    def declare(self, result: str, symbol: str, parameters: Sequence[str]) -> None:
        self.declarations[symbol] = f"declare {result} @{symbol}({', '.join(parameters)})"

    # -- constants ---------------------------------------------------------------------------

    def int(self, value: int, type: str = "i64") -> Value:
        """An integer constant, splat when the type is a vector."""
        return self._constant(str(int(value)), type)

    def float(self, value: float, type: str = "float") -> Value:
        """A float or double constant, splat when the type is a vector."""
        return self._constant(float_bits(value, scalar_of(type)), type)

    def _constant(self, text: str, type: str) -> Value:
        if type.startswith("<"):
            return Value(f"splat ({scalar_of(type)} {text})", type)
        return Value(text, type)

    def zero(self, type: str) -> Value:
        return Value("zeroinitializer" if type.startswith("<") else _ZERO.get(type, "0"), type)

    # -- arithmetic --------------------------------------------------------------------------

    def binary(self, opcode: str, a: Value, b: Value) -> Value:
        """`opcode` is an LLVM instruction with its flags: add, fsub, fmul contract, lshr, ..."""
        assert a.type == b.type, f"{opcode} {a.typed}, {b.typed}"
        return self.pure(Arithmetic, a.type, opcode, a, b)

    def unary(self, opcode: str, a: Value) -> Value:
        return self.pure(Arithmetic, a.type, opcode, a)

    def compare(self, opcode: str, a: Value, b: Value) -> Value:
        """`opcode` such as "icmp slt" or "fcmp olt"; the result is i1 lanes."""
        assert a.type == b.type, f"{opcode} {a.typed}, {b.typed}"
        return self.pure(Arithmetic, truths_of(a.type), opcode, a, b)

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        assert a.type == b.type, f"select {a.typed}, {b.typed}"
        return self.pure(Instruction, a.type, "select", condition, a, b)

    def cast(self, opcode: str, a: Value, type: str) -> Value:
        """`opcode`: zext, sext, trunc, fpext, fptrunc, bitcast, sitofp, ...; the value itself if it
        has the type already.
        """
        return a if a.type == type else self.pure(Cast, type, opcode, a)

    # -- calls -------------------------------------------------------------------------------

    def intrinsic(self, name: str, type: str, *operands: Value, suffix: str = "") -> Value:
        """A call to a pure intrinsic, `llvm.fma`, overloaded on the result type (or `suffix`)."""
        symbol = f"{name}.{suffix or mangled(type)}" if suffix != "-" else name
        if symbol not in self.declarations:
            self.declare(type, symbol, [o.type for o in operands])
        return self.call_pure(type, symbol, *operands)

    def call_pure(
        self, type: str, symbol: str, *operands: Value, attributes: tuple[str, ...] = ()
    ) -> Value:
        """A call of a function of values alone, which is declared or defined beside this one."""
        key = ("call", symbol, operands, attributes)
        found = self._known.get(key)
        if found is None:
            made = self.call(symbol, *operands, type=type, attributes=attributes)
            found = self._known[key] = made
        return found

    def call(
        self,
        symbol: str,
        *operands: Value,
        type: str = "void",
        attributes: tuple[str, ...] = (),
    ) -> Value:
        """A call. attributes: of its arguments, "" of those without. The result, if it has one."""
        name = self.fresh() if type != "void" else ""
        made = Call(name, type, "call", operands, "", self.location, symbol, "", attributes)
        return self._defined(made)

    def call_declared(self, symbol: str, *operands: Value, type: str = "void") -> Value:
        """A call of a function of another module, which is declared as it is called."""
        self.declare(type, symbol, [o.type for o in operands])
        return self.call(symbol, *operands, type=type)

    def call_variadic(self, type: str, symbol: str, *operands: Value) -> None:
        """A call of a C function whose first parameter is typed, and whose result is dropped."""
        self.declare(type, symbol, [operands[0].type, "..."])
        form = f"{type} ({operands[0].type}, ...)"
        self.records.append(Call("", type, "call", operands, "", self.location, symbol, form))

    # -- lanes -------------------------------------------------------------------------------

    def splat(self, a: Value, lanes: Count) -> Value:
        """A scalar in every lane."""
        if lanes in (1, a.lanes):
            return a
        if a.is_constant:
            return self._constant(a.text, vector_of(a.type, lanes))
        type = vector_of(a.type, lanes)
        head = self.insert(poison(type), a, 0)
        zeros = Value("zeroinitializer", f"<{lanes} x i32>")
        result = self.pure(Instruction, type, "shufflevector", head, poison(type), zeros)
        self._known["splat", result.text] = a
        return result

    def any_lane(self, *masks: Value) -> Value:
        """i1: whether one of these masks, of any lengths, holds in some lane."""
        totals: dict[Count, Value] = {}
        for mask in masks:
            total = totals.get(mask.lanes)
            totals[mask.lanes] = mask if total is None else self.binary("or", total, mask)
        found = [
            self.intrinsic("llvm.vector.reduce.or", "i1", total, suffix=f"v{lanes}i1")
            if lanes > 1
            else total
            for lanes, total in totals.items()
        ]
        return reduce(partial(self.binary, "or"), found)

    def extract(self, a: Value, lane: Count) -> Value:
        return self.pure(Instruction, a.scalar_type, "extractelement", a, self.int(lane))

    def insert(self, a: Value, element: Value, lane: Count) -> Value:
        """The vector with another element in one lane."""
        return self.pure(Instruction, a.type, "insertelement", a, element, self.int(lane))

    def shuffle(self, a: Value, b: Value | None, order: Iterable[Count]) -> Value:
        """Lanes of a and of b (None: any), one after the other, in an order; -1 is any value."""
        mask = lane_order(tuple(order))
        type = vector_of(a.scalar_type, mask.lanes)
        second = poison(a.type) if b is None else b
        return self.pure(Instruction, type, "shufflevector", a, second, mask)

    def end_to_end(self, parts: Sequence[Value]) -> Value:
        """1, 2, 4, ... vectors, one after the other in one."""
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [self.shuffle(a, b, range(2 * a.lanes)) for a, b in pairs]
        return parts[0]

    def interleaved(self, a: Value, b: Value) -> Value:
        """Lanes of two vectors turn by turn."""
        count = a.lanes
        return self.shuffle(a, b, (k // 2 + k % 2 * count for k in range(2 * count)))

    def turn_by_turn(self, parts: Sequence[Value]) -> list[Value]:
        """As many vectors as there are, of all their lanes 0, then of all their lanes 1, ..

        Of each result the lanes of two parts are picked, then those of each further part.
        """
        count, lanes = len(parts), parts[0].lanes
        made: list[Value] = []
        for first in range(0, count * lanes, lanes):
            wanted = [divmod(at, count)[::-1] for at in range(first, first + lanes)]
            order = (k + part * lanes if part < 2 else -1 for part, k in wanted)
            result = self.shuffle(parts[0], parts[1], order)
            for other in range(2, count):
                picked = (k + lanes if p == other else n for n, (p, k) in enumerate(wanted))
                result = self.shuffle(result, parts[other], picked)
            made.append(result)
        return made

    def every_second(self, a: Value, first: Count) -> Value:
        """Lanes first, first + 2, ..."""
        return self.shuffle(a, None, range(first, a.lanes, 2))

    # -- structures --------------------------------------------------------------------------

    def extract_value(self, a: Value, member: Count, type: str) -> Value:
        """A member of a structure, of that type."""
        return self.pure(Instruction, type, "extractvalue", a, rest=f", {member}")

    def insert_value(self, a: Value, element: Value, member: Count) -> Value:
        """The structure with another member."""
        return self.assign(Instruction, a.type, "insertvalue", a, element, rest=f", {member}")

    # -- memory ------------------------------------------------------------------------------

    def alloca(self, memory: str, align: Count) -> Value:
        """The address of memory of that type on the stack."""
        rest = f", align {align}"
        return self._defined(Alloca(self.fresh(), "ptr", "alloca", (), rest, self.location, memory))

    def address(self, base: Value, index: Value, element: str) -> Value:
        """base + index elements of the scalar type; an address per lane of the index."""
        return self.offset("getelementptr inbounds", base, index, element)

    def offset(self, opcode: str, base: Value, index: Value, element: str) -> Value:
        """The same by getelementptr with or without its flags; the base may be lanes too."""
        key = (opcode, base, index, element)
        found = self._known.get(key)
        if found is None:
            is_one = base.type == "ptr" and index.type == "i64"  # most are
            type = "ptr" if is_one else vector_of("ptr", max(base.lanes, index.lanes))
            made = GetElementPtr(
                self.fresh(), type, opcode, (base, index), "", self.location, element
            )
            found = self._known[key] = self._defined(made)
        return found

    def load(self, address: Value, type: str, align: Count = 1) -> Value:
        made = Load(self.fresh(), type, "load", (address,), f", align {align}", self.location)
        return self._defined(made)

    def load_address(self, place: Value) -> Value:
        """An address from a table of them, which are as wide as the machine's are."""
        return self._defined(Load(self.fresh(), "ptr", "load", (place,), "", self.location))

    def load_constant(self, address: Value, type: str, align: Count) -> Value:
        """A load of what nobody writes while the function runs, done once in a scope."""
        return self.pure(Load, type, "load", address, rest=f", align {align}")

    def load_constant_address(self, place: Value) -> Value:
        """Such a load of an address."""
        return self.pure(Load, "ptr", "load", place)

    def copy_bytes(self, target: Value, source: Value, size: Value) -> None:
        """Memory copied that does not overlap."""
        no = Value("false", "i1")
        self.call_declared("llvm.memcpy.p0.p0.i64", target, source, size, no)

    def fill_bytes(self, target: Value, byte: Count, size: Count) -> None:
        """Memory filled with equal bytes."""
        operands = (target, self.int(byte, "i8"), self.int(size), Value("false", "i1"))
        self.call_declared("llvm.memset.p0.i64", *operands)

    def prefetch(self, address: Value, *, locality: Count = 3, is_written: bool = False) -> None:
        """A hint that a line is read, or written, soon; no access: it may lie behind an array.
        locality: LLVM's, 3 for the first cache, 2 for the second.
        """
        data = (self.int(n, "i32") for n in (int(is_written), locality, 1))
        self.call_declared("llvm.prefetch.p0", address, *data)

    def store(self, value: Value, address: Value, align: Count = 1, hint: str = "") -> None:
        """hint: metadata behind the alignment, such as ", !nontemporal !{i32 1}"."""
        rest = f", align {align}{hint}"
        self.records.append(Instruction("", "void", "store", (value, address), rest, self.location))

    def store_address(self, address: Value, place: Value) -> None:
        """An address into a table of them."""
        self.records.append(Instruction("", "void", "store", (address, place), "", self.location))


_ZERO = {
    "float": "0.0",
    "double": "0.0",
    "half": "0.0",
    "bfloat": "0.0",
    "ptr": "null",
    "i1": "false",
}
