"""ModuleBuilder: what the text says, in text order -> Module, with XLA's parse-time checks.

    open(name) instruction(...) instruction(...) close() ... finish() -> Module

References are resolved at once: an operand, a control predecessor, a computation must be complete
before it is named (docs/text.md 2.4, 2.5). What is wrong raises Violation, its role saying where;
both readers of text (actions.py, lines.py) stand above this file and know the places.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, cast

from hlo.attributes.kind import AttributeKind
from hlo.errors import Violation
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.names import NameTable, sanitised
from hlo.ir.shape import Shape, compatible
from hlo.ops.attributes import REQUIRED
from hlo.ops.making import check_required, inferred_shape
from hlo.ops.table import OPS, Trait
from hlo.parser.checks import CHECKS, Check, Draft
from hlo.parser.finish import finish_module
from hlo.parser.kinds import is_async
from hlo.process.lazy_functions import LazyModule
from hlo.source import Source

if TYPE_CHECKING:
    from hlo.attributes.sharding import Sharding


class Poisoned(Exception):
    """Something that it needs is wrong already, and was reported."""


class Scope:
    """A computation that is being read, and the names defined in it so far."""

    __slots__ = (
        "computation",
        "is_entry",
        "names",
        "numbers",
        "poisoned",
        "result",
        "root",
        "start",
    )

    def __init__(self, name: str, start: int, result: Shape | None, *, is_entry: bool) -> None:
        self.computation = Computation(name)
        self.names: dict[str, Instruction] = {}
        self.poisoned: set[str] = set()
        self.numbers: set[int] = set()
        self.root: Instruction | None = None
        self.start = start
        self.result = result
        self.is_entry = is_entry


class ModuleBuilder:
    """Makes one module. `single`: a text that is one instruction, whose unknown operands are new
    parameters (docs/text.md 2.8).
    """

    def __init__(self, source: Source, *, single: bool = False) -> None:
        self.source = source
        self.module = Module("_")
        self.module.source = source
        self.single = single
        self.scopes: list[Scope] = []
        self.by_name: dict[str, Computation] = {}
        self.bodies: dict[str, Computation] = {}
        self.broken: set[str] = set()  # names of computations with errors of their own
        self.has_gaps = False  # text was skipped that may have defined computations
        self.entry: Computation | None = None
        self.tables: object | None = None
        self._written: list[str] = []
        self._anonymous: NameTable | None = None

    # --- computations

    def open(
        self, name: str, start: int, result: Shape | None = None, *, entry: bool = False
    ) -> Scope:
        scope = Scope(name, start, result, is_entry=entry)
        self.scopes.append(scope)
        return scope

    def check_head(self, scope: Scope) -> None:
        """Names of computations differ, and one at most is the entry."""
        name = scope.computation.name
        if name in self.by_name or name in self.broken:
            raise Violation("duplicate-name", "", f"a second computation {name}", "another name")
        if scope.is_entry and self.entry is not None:
            raise Violation("syntax", "", "a second ENTRY", f"one (the first is {self.entry.name})")

    def close(self, *, thread: str = "main", body: bool = False) -> Computation:
        """The innermost computation is complete."""
        scope = self.scopes.pop()
        computation = scope.computation
        computation.execution_thread = thread
        if not computation.instructions:
            raise Violation(
                "syntax", "", f"{computation.name} without instructions", "at least one"
            )
        computation.root = scope.root or computation.instructions[-1]
        if scope.numbers != set(range(len(scope.numbers))):
            listed = ", ".join(map(str, sorted(scope.numbers)))
            expected = f"all from 0 to {len(scope.numbers) - 1}"
            raise Violation("parameter-number", "", f"numbered {listed}", expected)
        root = computation.root.shape
        if scope.result is not None and not compatible(scope.result, root):
            raise Violation(
                "shape-mismatch", "signature", f"-> {scope.result}", f"{root}, the root's shape"
            )
        self.module.add(computation, entry=False)
        if body:
            self.bodies[f"{{{len(self.bodies)}}}"] = computation
        else:
            self.by_name[computation.name] = computation
        if scope.is_entry:
            self.entry = computation
        return computation

    def computation(self, name: str) -> Computation:
        """A computation by the name that an attribute gives (or the key of an inline body)."""
        found = self.bodies.get(name) if name.startswith("{") else self.by_name.get(name)
        if found is None:
            if self.has_gaps or name in self.broken or name.startswith("{"):
                raise Poisoned
            from hlo.parser.wording import near  # of faults

            expected = "the name of a computation before this one"
            raise Violation(
                "unknown-name",
                "",
                f"{name} is not defined",
                expected,
                help=near(name, self.by_name),
            )
        return found

    # --- instructions

    def operand(self, scope: Scope, name: str, shape: Shape | None) -> Instruction:
        """The instruction that an operand names; `shape` is what the text writes before it."""
        found = scope.names.get(name)
        if found is None:
            if name in scope.poisoned:
                raise Poisoned
            if shape is not None and self.single and len(self.scopes) == 1:
                return self.missing(scope, name, shape)
            from hlo.parser.wording import near  # of faults

            expected = f"an instruction before this one in {scope.computation.name}"
            raise Violation(
                "unknown-name", "", f"{name} is not defined", expected, help=near(name, scope.names)
            )
        if shape is not None and shape is not found.shape and not compatible(shape, found.shape):
            raise Violation(
                "shape-mismatch", "", f"written as {shape}", f"{found.shape}, the shape of {name}"
            )
        return found

    def missing(self, scope: Scope, name: str, shape: Shape) -> Instruction:
        """A parameter for an operand that a single-instruction text does not define."""
        number = len(scope.numbers)
        made = Instruction(
            name or f"_{number}", "parameter", shape, (), {"parameter_number": number}
        )
        made.source = self.source
        scope.numbers.add(number)
        scope.names[made.name] = made
        return scope.computation.add(made)

    def element(self, of: Instruction, index: int, place: tuple[int, int]) -> Instruction:
        """`p#1`: the operand is an element of p."""
        attributes: dict[str, object] = {"index": index}
        opcode = "get-tuple-element"
        return self.instruction(
            self.scopes[-1], "", opcode, None, (of,), attributes, *place, nested=True
        )

    def anonymous(self, opcode: str) -> str:
        """The name of a nested instruction, free among all names written so far in the text."""
        if self._anonymous is None:
            self._anonymous = NameTable()
        for name in self._written:
            self._anonymous.unique(name)
        self._written.clear()
        return self._anonymous.unique(f"{opcode}.anon")

    def check_name(self, scope: Scope, name: str) -> None:
        """Names in a computation differ and are legal."""
        if name in scope.names or name in scope.poisoned:
            raise Violation("duplicate-name", "", f"a second {name}", "another name")
        legal = sanitised(name)
        if legal != name:
            expected = f"a legal name, for example {legal}"
            raise Violation("illegal-name", "", f"the name {name}", expected)

    def instruction(  # noqa: PLR0913  # one call a line of text: no object in between
        self,
        scope: Scope,
        name: str,
        opcode: str,
        shape: Shape | None,
        operands: tuple[Instruction, ...],
        attributes: dict[str, object],
        start: int,
        end: int,
        *,
        root: bool = False,
        nested: bool = False,
    ) -> Instruction:
        """Make an instruction and add it to the computation that is being read."""
        made = self.create(scope, name, opcode, shape, operands, attributes)
        made.start, made.end = start, end
        made.source = self.source
        if nested:
            made.name = self.anonymous(made.opcode)
        else:
            self.check_name(scope, name)
            self._written.append(name)
        if root:
            if scope.root is not None:
                raise Violation(
                    "syntax", "", "a second ROOT", f"one (the first is {scope.root.name})"
                )
            scope.root = made
        scope.names[made.name] = made
        return scope.computation.add(made)

    def _wrapped(
        self,
        opcode: str,
        result: Shape,
        operands: tuple[Instruction, ...],
        attributes: dict[str, object],
    ) -> Computation:
        """The computation that a sugared start calls, before the one that is being read."""
        scope = self.open("async_wrapped", -1)
        parameters = []
        for number, operand in enumerate(operands):
            parameter = Instruction(
                "async_param", "parameter", operand.shape, (), {"parameter_number": number}
            )
            parameters.append(scope.computation.add(parameter))
            scope.numbers.add(number)
        arity = OPS[opcode].arity
        if arity is not None:  # XLA takes the first ones, and dies when there are too few
            del parameters[arity:]
        try:
            if opcode == "tuple" and not attributes:  # XLA does not compare its shape here
                root = Instruction(opcode, opcode, result, tuple(parameters), {})
            else:
                root = self.create(scope, opcode, opcode, result, tuple(parameters), attributes)
        except Violation:
            self.scopes.pop()
            raise
        scope.root = scope.computation.add(root)
        return self.close(body=True)

    def create(
        self,
        scope: Scope,
        name: str,
        opcode: str,
        shape: Shape | None,
        operands: tuple[Instruction, ...],
        attributes: dict[str, object],
    ) -> Instruction:
        """An instruction after the checks that XLA makes on reading it, in no computation yet."""
        form = _form(opcode)
        if form is None:
            from hlo.parser.asynchronous import build_async  # few programs have such ops

            made = build_async(self._wrapped, name, opcode, shape, operands, attributes)
            _complete(made.opcode, made.shape, made.attributes)  # type: ignore[arg-type]  # our dict
            return made
        arity, inferable, check, required = form
        if arity is not None and len(operands) != arity:
            found = f"given {len(operands)} operand{'' if len(operands) == 1 else 's'}"
            raise Violation("arity", "", found, str(arity))
        if shape is None and not inferable:
            raise Violation(
                "shape-missing", "", "written without a shape", "one: it cannot be inferred"
            )
        if check is not None:
            draft = Draft(opcode, shape, operands, attributes)
            check(draft)
            shape, operands, attributes = draft.shape, draft.operands, draft.attributes
        if not required <= attributes.keys():
            check_required(opcode, attributes)
        if opcode == "parameter":
            self._check_number(scope, attributes["parameter_number"])
        elif opcode == "constant":
            literal = attributes["literal"]
            assert isinstance(literal, Literal), "the reader built it"
            shape = literal.shape
        if shape is None:
            shape = inferred_shape(opcode, operands, attributes)
        if attributes:
            _complete(opcode, shape, attributes)
        return Instruction(name, opcode, shape, operands, attributes)

    def _check_number(self, scope: Scope, number: object) -> None:
        assert isinstance(number, int), "the reader built it"
        if number < 0:
            raise Violation("parameter-number", "", f"number {number}", "0 or more")
        if number in scope.numbers:
            raise Violation(
                "parameter-number", "", f"a second parameter {number}", "another number"
            )
        scope.numbers.add(number)

    def resolved(self, scope: Scope, kind: AttributeKind, value: object) -> object:
        """Names turned into what they name, for the kinds that refer to something."""
        if kind.refers == "computation":
            return self.computation(value)  # type: ignore[arg-type]  # a name
        assert isinstance(value, Iterable), "names"
        if kind.refers == "computations":
            return tuple(self.computation(name) for name in value)
        return tuple(self.operand(scope, name, None) for name in value)

    def finish(self) -> Module:
        """The module, complete and checked as a whole."""
        if self.entry is None:
            self.entry = self.module.computations[-1]
        self.module.entry = self.entry
        finish_module(self.module, self.tables, entry_first=self.single)
        return self.module


_Form = tuple[int | None, bool, Check | None, frozenset[str]]


@lru_cache(maxsize=512)
def _form(opcode: str) -> _Form | None:
    """What reading asks of an opcode: operands, may the shape be left out, check, and attributes
    that must be written; None for those of asynchronous operations.
    """
    row = OPS.get(opcode)
    if row is None or is_async(opcode):
        return None
    required = frozenset(n for n, a in row.attrs.items() if a.default is REQUIRED)
    talks = row.traits & (Trait.COLLECTIVE | Trait.TRANSFERS)
    check = _communication.check if talks else CHECKS.get(opcode)
    return row.arity, row.inferable, check, required


def may_complete(opcode: str) -> bool:
    """Whether the builder may change the attributes of such an instruction."""
    form = _form(opcode)
    return form is None or form[2] is not None


def _communication_checks() -> ModuleType:
    from hlo.parser import communication_checks

    return communication_checks


_communication = LazyModule(_communication_checks)


def _complete(opcode: str, shape: Shape, attributes: dict[str, object]) -> None:
    """What depends on the final shape: one sharding per leaf, one replication flag per leaf."""
    if "sharding" in attributes and shape.is_tuple:
        from hlo.attributes.sharding import repeated

        attributes["sharding"] = repeated(cast("Sharding", attributes["sharding"]), shape)
    if "parameter_replication" in attributes:
        _check_replication(opcode, shape, attributes["parameter_replication"])


def _check_replication(opcode: str, shape: Shape, flags: object) -> None:
    leaves = sum(1 for _ in shape.leaves())
    assert isinstance(flags, tuple), "of booleans"
    if opcode != "parameter":
        raise Violation("attribute-unknown", "parameter_replication", f"on {opcode}", "a parameter")
    if len(flags) != leaves:
        expected = f"{leaves}, one for each leaf of {shape}"
        raise Violation("attribute-value", "parameter_replication", f"{len(flags)} flags", expected)
