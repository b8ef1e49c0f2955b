"""text -> Module."""

from __future__ import annotations

from msgspec import Struct

from hlo.attributes.kind import MODULE_READERS
from hlo.errors import HloError, HloErrors, Violation
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.parser.actions import Actions, reading
from hlo.parser.build import ModuleBuilder
from hlo.parser.engine import Fault, Machine
from hlo.parser.lexer import Lexer
from hlo.parser.stacks import Callbacks
from hlo.process.garbage import uncollected
from hlo.source import Source, Span

MOST_ERRORS = 20
SMALL = 2000  # characters: the first shorter texts are read token by token at once
# So many of a process's short texts are: what reads lines takes longer to load than they to read,
# and reads those that follow in a fifth of the time.
FIRST_TEXTS = 2


class _Read(Struct):
    """What this process has read: how many short texts."""

    short_texts: int = 0


_READ = _Read()


def parse(text: str, name: str = "<string>") -> Module:
    """The module that a text says; raises HloErrors."""
    source = Source(name, text)
    start = start_rule(text)
    with uncollected():  # reading makes many objects and no cycles (1.4x)
        return _read(source, start)


def _read(source: Source, start: str) -> Module:
    if start != "instruction_text" and _goes_by_lines(source.text):
        from hlo.parser.pieces import Declined  # the first short texts need no reading by lines

        try:
            return fast(source, start)
        except Declined:
            pass
    return precise(source, start)


def _goes_by_lines(text: str) -> bool:
    """Whether reading line by line pays for a text."""
    if len(text) >= SMALL:
        return True
    _READ.short_texts += 1
    return _READ.short_texts > FIRST_TEXTS


def parse_shape(text: str) -> Shape:
    """One shape; raises HloErrors.

    >>> hlo.parse_shape("(f32[2,3], s32[])").size_bytes
    28
    """
    from hlo.parser.pieces import read_piece

    try:
        shape = read_piece("shape_text", text)
    except Fault as fault:
        raise HloErrors([_error(Source("<shape>", text), fault)]) from None
    assert isinstance(shape, Shape), "what the rules of shapes give"
    return shape


def start_rule(text: str) -> str:
    """Which of the three kinds of text it is, told by the first two tokens."""
    lexer = Lexer(text)
    first = lexer.token(0)
    if first.type == "HLO_MODULE":
        return "module_text"
    if first.type == "ENTRY" or lexer.token(first.end_pos, first.type).type == "LBRACE":
        return "computations_text"
    return "instruction_text"


def fast(source: Source, start: str) -> Module:
    """Reading line by line; raises Declined where the text is not plain or not right."""
    from hlo.parser.lines import read_lines
    from hlo.parser.pieces import Declined

    builder = read_lines(source, header=start == "module_text")
    try:
        return _finished(builder, start)
    except Violation as error:
        raise Declined from error


def precise(source: Source, start: str) -> Module:
    """Reading token by token: slower, and knows all places. Raises HloErrors."""
    builder = ModuleBuilder(source, single=start == "instruction_text")
    with reading(builder) as (actions, callbacks):
        return _precise(source, start, actions, callbacks)


def _precise(source: Source, start: str, actions: Actions, callbacks: Callbacks) -> Module:
    builder = actions.builder
    if builder.single:
        builder.open("_", 0, entry=True)
    _read_all(source, start, actions, callbacks)
    if not actions.errors:
        try:
            if builder.single:
                builder.close()
            return _finished(builder, start)
        except Violation as error:
            actions.violated("", error, _place_of_whole(source))
    errors = sorted(actions.errors, key=lambda e: e.span.start if e.span else 0)
    raise HloErrors(errors[:MOST_ERRORS])


def _read_all(source: Source, start: str, actions: Actions, callbacks: Callbacks) -> None:
    """Run the machine to the end, past errors where that makes sense."""
    machine = Machine(start, source.text, 0, actions, callbacks)
    while len(actions.errors) < MOST_ERRORS:
        try:
            machine.run()
            return
        except Fault as fault:
            actions.errors.append(_error(source, fault))
            from hlo.parser.recovery import next_head, resume  # for texts with an error

            if resume(machine, actions, fault.start):
                continue
            at = next_head(source.text, max(fault.start, machine.at))
            if at is None or start == "instruction_text":
                return
            actions.builder.scopes.clear()
            actions.builder.has_gaps = True
            machine = Machine("computations_text", source.text, at, actions, callbacks)


def _place_of_whole(source: Source) -> tuple[int, int]:
    """Where an error stands that concerns the whole module: its first word."""
    first = Lexer(source.text).token(0)
    return first.start_pos, first.end_pos


def _finished(builder: ModuleBuilder, start: str) -> Module:
    module = builder.module
    if start == "instruction_text":
        module.attributes = {"is_scheduled": True}
    module = builder.finish()
    if start == "computations_text":
        module.name = f"module_{module.entry.name}"
    return module


def _error(source: Source, fault: Fault) -> HloError:
    return HloError(
        fault.code, fault.message, Span(source, fault.start, fault.end), help=fault.help
    )


MODULE_READERS[:] = [parse]  # an origin_recovery_table holds modules as text
