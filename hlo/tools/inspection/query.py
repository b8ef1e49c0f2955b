"""query: the instructions of a module that a condition holds for.

    'dot where flops > 1e9 and operand(0).dtype == bf16' --Query--> --query--> matches, in order

    query      opcodes [where condition] | where condition
    opcodes    names with * and ?, separated by commas: dot,conv*
    condition  values compared by == != < <= > >= =~ !~, joined by and, or, not, ( )
    value      a property, a number, 'text'; what follows a comparison is text unless . is before it

`=~` looks for a regular expression. A property alone holds where it is neither false, nor 0, nor
missing. `operand(*)` and `user(*)` stand for each of them: one that fits is enough. A query is read
without recursion, so that none is too deep.
"""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from hlo.analysis.sources import op_name_of, program_line_of, source_of
from hlo.analysis.work import work_of
from hlo.attributes.metadata import Metadata
from hlo.errors import HloError
from hlo.ir.computation import Computation
from hlo.ir.graph import callees_first
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.shape import shape_text
from hlo.ops.instruction_attributes import INSTRUCTION_ATTRS
from hlo.ops.table import OPS
from hlo.printer.constants import constant_text
from hlo.printer.options import PrintOptions
from hlo.source import Source, Span

Value = str | int | float | bool | None
MOST_CHARACTERS = 10_000  # of a query


class Match(Struct, frozen=True):
    """An instruction that was found. source: the line of the module's text, or of the program."""

    module: str
    computation: str
    instruction: str
    text: str
    source: str
    line: int
    column: int


def query(module: Module, asked: str | Query) -> list[Match]:
    """The instructions that a query fits, in the order of the module.

    asked: its text, or one that was read already. Raises HloError `query` for one that says nothing
    that can be asked.

    >>> [match.line for match in hlo.query(hlo.read("examples/axpy.hlo"), "multiply,add")]
    [9, 10]
    """
    asked = Query(asked) if isinstance(asked, str) else asked
    facts = Facts(module)
    return [
        _match(module, instruction)
        for computation in module.computations
        for instruction in computation.instructions
        if asked.fits(instruction, facts)
    ]


def _match(module: Module, instruction: Instruction) -> Match:
    operands = ", ".join(f"%{o.name}" for o in instruction.operands)
    literal = instruction.get("literal")
    if isinstance(literal, Literal):
        operands = constant_text(literal, PrintOptions())
    listed = "".join(f", {k}={v}" for k, v in _own_attributes(instruction))
    span, home = instruction.span, instruction.computation
    return Match(
        module.name,
        "" if home is None else home.name,
        instruction.name,
        f"%{instruction.name} = {instruction.shape} {instruction.opcode}({operands}){listed}",
        source_of(instruction),
        0 if span is None else span.line,
        0 if span is None else span.column,
    )


def _own_attributes(instruction: Instruction) -> Iterator[tuple[str, str]]:
    """The attributes of the opcode as text, but for values of constants."""
    attrs = OPS[instruction.opcode].attrs if instruction.opcode in OPS else {}
    for name in attrs:
        if name in instruction.attributes and name != "literal":
            yield name, _attribute(instruction, name) or ""


# -- what is asked of an instruction -----------------------------------------------------------


class Facts:
    """What is known of a module's computations: how many loops are around each."""

    def __init__(self, module: Module) -> None:
        order = callees_first(module)
        self.depths = dict.fromkeys(order, 0)
        for caller in reversed(order):
            for instruction in caller.instructions:
                inside = self.depths[caller] + (instruction.opcode == "while")
                for callee in instruction.called_computations():
                    self.depths[callee] = max(self.depths.get(callee, 0), inside)
        self.entry = module.entry

    def depth(self, instruction: Instruction) -> int:
        home = instruction.computation
        return 0 if home is None else self.depths.get(home, 0)


def _attribute(instruction: Instruction, name: str) -> str | None:
    """An attribute as it is printed; None where the instruction has none."""
    if name not in instruction.attributes:
        return None
    value = instruction.attributes[name]
    attrs = OPS[instruction.opcode].attrs if instruction.opcode in OPS else {}
    attr = attrs.get(name) or INSTRUCTION_ATTRS.get(name)
    if isinstance(value, Computation):
        return value.name
    if attr is None:
        return str(value)
    return str(attr.kind.print(value)) if attr.kind.print is not None else str(value)


def _file(instruction: Instruction) -> str:
    return program_line_of(instruction).rpartition(":")[0]


def _line(instruction: Instruction) -> int:
    metadata = instruction.get("metadata")
    line = program_line_of(instruction).rpartition(":")[2]
    return int(line) if isinstance(metadata, Metadata) and line.isdigit() else 0


PROPERTIES: dict[str, tuple[str, Callable[[Instruction, Facts], Value]]] = {
    "opcode": ("its opcode", lambda i, _: i.opcode),
    "name": ("its name", lambda i, _: i.name),
    "dtype": ("element type; tuple for a tuple", lambda i, _: i.shape.dtype.name),
    "shape": ("without layout, as f32[2,3]", lambda i, _: shape_text(i.shape, layout=False)),
    "rank": ("dimensions", lambda i, _: i.shape.rank if i.shape.is_array else 0),
    "elements": ("of an array", lambda i, _: i.shape.size if i.shape.is_array else 0),
    "bytes": ("of the result", lambda i, _: i.shape.size_bytes),
    "flops": ("operations of one run", lambda i, _: work_of(i).flops),
    "transcendentals": ("elements of exp and its like", lambda i, _: work_of(i).transcendentals),
    "moved": ("bytes read and written in one run", lambda i, _: work_of(i).bytes),
    "users": ("how many instructions use it", lambda i, _: len(i.users)),
    "operands": ("how many operands it has", lambda i, _: len(i.operands)),
    "computation": ("the name of its computation", lambda i, _: _home(i)),
    "depth": ("loops around it", lambda i, facts: facts.depth(i)),
    "root": ("whether it is its computation's root", lambda i, _: _is_root(i)),
    "entry": ("whether it is in the entry", lambda i, facts: i.computation is facts.entry),
    "op_name": ("what the framework called it", lambda i, _: op_name_of(i)),
    "source": ("file:line of the program", lambda i, _: program_line_of(i)),
    "file": ("the file of the program", lambda i, _: _file(i)),
    "line": ("the line of the program", lambda i, _: _line(i)),
    "target": ("of a custom call", lambda i, _: _attribute_text(i, "custom_call_target")),
    "value": ("of a scalar constant", lambda i, _: _scalar(i)),
}
STEPS = {"operand": "an operand by number, * for each", "user": "a user by number, * for each"}
FUNCTIONS = {"dim": "size of a dimension", "attr": "an attribute as printed"}


def _home(instruction: Instruction) -> str:
    return instruction.computation.name if instruction.computation else ""


def _is_root(instruction: Instruction) -> bool:
    home = instruction.computation
    return home is not None and home.root is instruction


def _attribute_text(instruction: Instruction, name: str) -> Value:
    value = instruction.get(name)
    return value if isinstance(value, str) else None


def _scalar(instruction: Instruction) -> Value:
    literal = instruction.get("literal")
    if not isinstance(literal, Literal) or not literal.shape.is_scalar or literal.is_elided:
        return None
    value = literal.array.item()
    return value if isinstance(value, bool | int | float) else float(value.real)


# -- the language ------------------------------------------------------------------------------

_TOKENS = re.compile(
    r"\s*(?:(?P<text>'[^']*'|\"[^\"]*\")|(?P<compare>==|!=|<=|>=|=~|!~|<|>|=)"
    r"|(?P<bracket>[()])|(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w\[]))"
    r"|(?P<word>[^\s()'\"=!<>~]+(?:\((?:\d+|\*|[\w-]+)\)[^\s()'\"=!<>~]*)*))"
)
_PART = re.compile(r"([A-Za-z_]\w*)(?:\((\*|[\w-]+)\))?$")
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq, "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
# What joins conditions; the last one binds its operands most.
_JOINING: dict[str, Callable[..., bool]] = {
    "or": operator.or_,
    "and": operator.and_,
    "not": operator.not_,
}


class _Token(Struct, frozen=True):
    kind: str
    text: str
    start: int
    end: int


class _Path(Struct, frozen=True):
    """Steps to instructions, then a property of each."""

    steps: tuple[tuple[str, str], ...]
    name: str
    argument: str | None

    def values(self, instruction: Instruction, facts: Facts) -> list[Value]:
        found = [instruction]
        for step, which in self.steps:
            found = [
                other
                for one in found
                for other in _chosen(one.operands if step == "operand" else tuple(one.users), which)
            ]
        return [self._value(one, facts) for one in found]

    def _value(self, instruction: Instruction, facts: Facts) -> Value:
        if self.name == "attr":
            return _attribute(instruction, self.argument or "")
        if self.name == "dim":
            dims = instruction.shape.dims if instruction.shape.is_array else ()
            number = int(self.argument or 0)
            return dims[number] if number < len(dims) else None
        return PROPERTIES[self.name][1](instruction, facts)


def _chosen(found: Sequence[Instruction], which: str) -> Sequence[Instruction]:
    if which == "*":
        return found
    return found[int(which) : int(which) + 1]


class _Comparison(Struct, frozen=True):
    left: _Path
    compare: str
    right: _Path | str | float

    def holds(self, instruction: Instruction, facts: Facts) -> bool:
        others: list[Value]
        if isinstance(self.right, _Path):
            others = self.right.values(instruction, facts)
        else:
            others = [self.right]
        found = self.left.values(instruction, facts)
        return any(_compared(self.compare, a, b) for a in found for b in others)


class _Holds(Struct, frozen=True):
    path: _Path

    def holds(self, instruction: Instruction, facts: Facts) -> bool:
        return any(bool(value) for value in self.path.values(instruction, facts))


_Step = _Comparison | _Holds | str


def _compared(compare: str, a: Value, b: Value) -> bool:
    if a is None or b is None:
        return compare in ("!=", "!~") and a is not b
    if compare in ("=~", "!~"):
        return bool(re.search(str(b), _as_text(a))) is (compare == "=~")
    if isinstance(a, int | float) and isinstance(b, int | float):
        return _COMPARE[compare](a, b)
    x, y = _as_text(a), _as_text(b)
    if compare in ("==", "="):
        return x == y
    return x != y if compare == "!=" else False


def _as_text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class Query:
    """A query that was read. Raises HloError `query`, with the place, for what is none."""

    def __init__(self, text: str) -> None:
        self.source = Source("query", text)
        if len(text) > MOST_CHARACTERS:
            message = f"query: {len(text):,} characters, expected at most {MOST_CHARACTERS:,}"
            raise HloError("query", message)
        tokens = list(self._tokens())
        head = next((n for n, t in enumerate(tokens) if t.text == "where"), None)
        names = tokens if head is None else tokens[:head]
        self.opcodes = self._opcodes(names)
        self.condition = [] if head is None else self._read(tokens[head + 1 :], tokens[head])

    def fits(self, instruction: Instruction, facts: Facts) -> bool:
        """Whether it holds for an instruction."""
        if self.opcodes and not any(fnmatchcase(instruction.opcode, o) for o in self.opcodes):
            return False
        stack: list[bool] = []
        for step in self.condition:
            if not isinstance(step, str):
                stack.append(step.holds(instruction, facts))
            else:
                operands = [stack.pop() for _ in range(1 if step == "not" else 2)]
                stack.append(_JOINING[step](*operands))
        return not stack or stack[0]

    def _error(self, message: str, token: _Token, help: str = "") -> HloError:
        span = Span(self.source, token.start, token.end)
        return HloError("query", f"query: {message}", span, help=help)

    def _tokens(self) -> Iterator[_Token]:
        at, text = 0, self.source.text
        while text[at:].strip():
            found = _TOKENS.match(text, at)
            if found is None or found.end() == at:
                start = at + len(text[at:]) - len(text[at:].lstrip())
                what = f"{text[start]!r} begins nothing, expected a word, a number or 'text'"
                raise self._error(what, _Token("", "", start, start + 1))
            kind = found.lastgroup or ""
            yield _Token(kind, found[kind], found.start(kind), found.end(kind))
            at = found.end()

    def _opcodes(self, tokens: list[_Token]) -> list[str]:
        found: list[str] = []
        for token in tokens:
            if token.kind != "word":
                message = f"{token.text} is no opcode, expected names, then `where`"
                raise self._error(message, token, "hlo-opt query FILE 'dot where rank > 2'")
            for name in filter(None, token.text.split(",")):
                known = [o for o in OPS if fnmatchcase(o, name)]
                if not known and name != "any":
                    near = difflib.get_close_matches(name, OPS, 1)
                    help = f"did you mean {near[0]}?" if near else "hlo-opt --list-ops has all"
                    raise self._error(f"{name} is no opcode", token, help)
                found.append("*" if name == "any" else name)
        return found

    def _read(self, tokens: list[_Token], before: _Token) -> list[_Step]:
        """The condition with each operator behind what it joins."""
        made: list[_Step] = []
        waiting: list[_Token] = []
        wants_value, at = True, 0
        while at < len(tokens):
            token = before = tokens[at]
            at += 1
            if not wants_value:
                wants_value = self._join(token, made, waiting)
            elif token.text in ("not", "("):
                waiting.append(token)
            elif token.kind == "word" and token.text not in _JOINING:
                size, found = self._comparison(tokens, at - 1)
                made.append(found)
                at += size - 1
                wants_value = False
            else:
                message = f"{token.text} stands where a property is expected"
                raise self._error(message, token, _listed())
        if wants_value:
            raise self._error(f"a property is expected behind {before.text}", before, _listed())
        for token in reversed(waiting):
            if token.text == "(":
                raise self._error("this bracket is never closed", token)
            made.append(token.text)
        return made

    def _join(self, token: _Token, made: list[_Step], waiting: list[_Token]) -> bool:
        """What stands behind a value; whether another one has to follow."""
        word = token.text
        if word == ")":
            while waiting and waiting[-1].text != "(":
                made.append(waiting.pop().text)
            if not waiting:
                raise self._error("this bracket closes nothing", token)
            waiting.pop()
            return False
        if word not in ("and", "or"):
            raise self._error(f"{word} stands where and, or, ) is expected", token)
        binding = list(_JOINING)[list(_JOINING).index(word) :]
        while waiting and waiting[-1].text in binding:
            made.append(waiting.pop().text)
        waiting.append(token)
        return True

    def _comparison(self, tokens: list[_Token], at: int) -> tuple[int, _Comparison | _Holds]:
        """What begins with a property; the number of its tokens."""
        left = self._path(tokens[at], tokens[at].text)
        if at + 1 >= len(tokens) or tokens[at + 1].kind != "compare":
            return 1, _Holds(left)
        compare = tokens[at + 1]
        if at + 2 >= len(tokens) or tokens[at + 2].kind in ("compare", "bracket"):
            raise self._error(f"a value is expected behind {compare.text}", compare)
        token = tokens[at + 2]
        if token.kind == "word" and token.text.startswith("."):
            return 3, _Comparison(left, compare.text, self._path(token, token.text[1:]))
        if token.kind == "number" and compare.text not in ("=~", "!~"):
            return 3, _Comparison(left, compare.text, float(token.text))
        value = token.text[1:-1] if token.kind == "text" else token.text
        if compare.text in ("=~", "!~"):
            try:
                re.compile(value)
            except re.error as error:
                message = f"{value} is no regular expression: {error}"
                raise self._error(message, token) from None
        elif compare.text not in ("==", "!=", "="):
            message = f"{value} is no number, expected one behind {compare.text}"
            raise self._error(message, token, "a property of the instruction has . before it")
        return 3, _Comparison(left, compare.text, value)

    def _path(self, token: _Token, text: str) -> _Path:
        *steps, last = text.split(".")
        found = []
        for step in steps:
            match = _PART.match(step)
            if (
                match is None
                or match[1] not in STEPS
                or not re.fullmatch(r"\d+|\*", match[2] or "")
            ):
                message = f"{step} is no instruction, expected operand(N), user(N) or either with *"
                raise self._error(message, token)
            found.append((match[1], match[2]))
        match = _PART.match(last)
        name = match[1] if match else last
        argument = match[2] if match else None
        if name in FUNCTIONS and argument is None:
            raise self._error(f"{name} of what? expected {name}(...)", token)
        if name == "dim" and not str(argument).isdigit():
            raise self._error(f"dim({argument}) is no dimension, expected a number", token)
        if name not in FUNCTIONS and (name not in PROPERTIES or argument is not None):
            near = difflib.get_close_matches(name, [*PROPERTIES, *FUNCTIONS], 1)
            help = f"did you mean {near[0]}?" if near and near[0] != name else _listed()
            raise self._error(f"{last} is no property of an instruction", token, help)
        return _Path(tuple(found), name, argument)


def _listed() -> str:
    return "properties: " + ", ".join([*PROPERTIES, *(f"{name}(...)" for name in FUNCTIONS)])
