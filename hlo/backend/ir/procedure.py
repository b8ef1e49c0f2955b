"""Procedures: functions written by hand, as C has them, of words and structured control.

    Unit().define(Prototype, body) ... --text--> declarations, data and functions of one module

A body is a Python function that takes the procedure and its parameters as words, and writes itself.
What it calls is known by a prototype, and declared where the module does not define it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from msgspec import Struct, field

from hlo.backend.ir.control import Count, Join, Repeat, When
from hlo.backend.ir.functions import Function
from hlo.backend.ir.interface import Prototype
from hlo.backend.ir.records import Alloca, Call, CallAddress, Label, Line, Switch, block
from hlo.backend.ir.values import Value
from hlo.backend.ir.words import Word
from hlo.backend.ir.writer import Writer


class Procedure(Struct):
    """The body of one function, written into w. head: what it does before all else."""

    w: Writer
    parameters: tuple[Word, ...]
    head: list[Line] = field(default_factory=list)

    @staticmethod
    def begun(parameters: Sequence[str], declarations: dict[str, str] | None = None) -> Procedure:
        """An empty body. parameters: their types; declarations: added to, what is called."""
        declared = {} if declarations is None else declarations
        w = Writer(records=[Label("start")], declarations=declared)
        return Procedure(w, tuple(Word(f"%p{n}", type, w) for n, type in enumerate(parameters)))

    def printed(
        self,
        function: Prototype,
        *,
        linkage: str = "",
        attributes: str = "",
        promises: Sequence[str] = (),
    ) -> str:
        """The whole as a function. promises: attributes of the parameters. Once only: words hold
        their writer, which would never be freed while it holds them.
        """
        named = self.parameters
        if promises:
            typed = zip(named, promises, strict=True)
            named = tuple(Word(x.text, f"{x.type} {promise}", x.w) for x, promise in typed)
        start, *others = self.w.records
        made = Function(
            parameters=named,
            records=[start, *self.head, *others],
            result=function.result,
            symbol=function.symbol,
            linkage=linkage,
            attributes=attributes,
            ends_line=False,
        )
        text = made.text
        self.w.records.clear()
        self.head.clear()
        return text

    @contextmanager
    def ahead(self) -> Iterator[None]:
        """What is written here is done before all else, once."""
        body, self.w.records = self.w.records, self.head
        yield
        self.w.records = body

    def word(self, number: int, type: str = "i64") -> Word:
        """A constant."""
        return Word(str(number), type, self.w)

    def symbol(self, name: str) -> Word:
        """The address of a variable or a function."""
        return Word(f"@{name}", "ptr", self.w)

    def stack(self, memory: str, align: int) -> Word:
        """The address of memory that is the function's while it runs."""
        name = self.w.fresh()
        self.head.append(Alloca(name, "ptr", "alloca", (), f", align {align}", memory=memory))
        return Word(name, "ptr", self.w)

    # -- calls -------------------------------------------------------------------------------

    def call(self, function: Prototype, *arguments: Value | int) -> Word:
        """What a function gives; of one that gives nothing, nobody asks."""
        w = self.w
        operands = [
            argument if isinstance(argument, Value) else Value(str(argument), type)
            for type, argument in zip(function.parameters, arguments, strict=True)
        ]
        if function.symbol not in w.declarations:
            w.declarations[function.symbol] = function.declaration
        name = "" if function.result == "void" else w.fresh()
        made = Call(name, function.result, "call", tuple(operands), symbol=function.symbol)
        w.records.append(made)
        return Word(name, function.result, w)

    def call_address(self, result: str, function: Word, *arguments: Value) -> Word:
        """The same of the function at an address."""
        name = "" if result == "void" else self.w.fresh()
        self.w.records.append(CallAddress(name, result, "call", (function, *arguments)))
        return Word(name, result, self.w)

    def ret(self, value: Value | None = None) -> None:
        """The end of the function."""
        self.w.ret(value)

    def fence(self, order: str) -> None:
        """What is before it is seen by others before what is after."""
        self.w.emit(f"fence {order}")

    # -- control -----------------------------------------------------------------------------

    def when(self, condition: Value) -> When:
        """with p.when(condition): if (condition) { .. }"""
        return When(self.w, condition)

    def counted(self, end: Value) -> Count:
        """with p.counted(end) as i: for (i = 0; i < end; i++) { .. }"""
        return Count(self.w, end)

    def loop(self, *first: Word) -> Repeat:
        """with p.loop(x) as (again, done): for (;;) { .. }, with values that change by rounds."""
        return Repeat(self.w, [v.type for v in first], first)

    def join(self, *types: str) -> Join:
        """A label for `goto`, and the types of what it brings."""
        return Join(self.w, types)

    def switch(self, value: Value, cases: Mapping[int, Join], otherwise: Join) -> None:
        """Go to where a number's case is."""
        rows = [
            x
            for number, j in cases.items()
            for x in (Value(str(number), value.type), block(j.label))
        ]
        operands = (value, block(otherwise.label), *rows)
        self.w.records.append(Switch("", "void", "switch", operands))


class Unit(Struct):
    """One module: procedures, and data and declarations that they share."""

    declarations: dict[str, str] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)  # texts by symbol

    def data(self, symbol: str, what: str) -> None:
        """A variable: `@symbol = ...`."""
        self.declarations[symbol] = f"@{symbol} = {what}"

    def define(
        self,
        function: Prototype,
        body: Callable[..., None],
        *,
        linkage: str = "",
        attributes: str = "",
    ) -> None:
        """A function of that body."""
        p = Procedure.begun(function.parameters, self.declarations)
        body(p, *p.parameters)
        self.functions[function.symbol] = p.printed(
            function, linkage=linkage, attributes=attributes
        )

    def text(self) -> str:
        """The module."""
        outside = (d for s, d in self.declarations.items() if s not in self.functions)
        return "\n".join((*outside, *self.functions.values()))
