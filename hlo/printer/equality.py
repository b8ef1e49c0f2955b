"""difference: whether two modules say the same, whatever things are called.

Instructions are paired from the roots along operands, computations from the entry along calls; a
pair is equal when its own text (opcode, shape, attributes without names) is. Nothing recurses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from hlo.attributes.metadata import Metadata
from hlo.attributes.stack_frames import StackFrames, call_chain
from hlo.ir.computation import Computation
from hlo.ir.graph import control_predecessors
from hlo.ir.instruction import CALLING_ATTRIBUTES, Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.shape import Shape, shape_text
from hlo.printer.attribute_lists import AttributeLists, own_value
from hlo.printer.header import header_text
from hlo.printer.options import PrintOptions
from hlo.printer.orders import fusion_bodies

_OPTIONS = PrintOptions()
_NAMELESS = replace(_OPTIONS, print_ids=False, print_metadata=False)


def difference(first: Module, second: Module) -> str | None:
    """The first difference in words; None when the modules are equal up to names."""
    a, b = header_text(first, _NAMELESS), header_text(second, _NAMELESS)
    if a != b:
        return f"headers differ: {a} and {b}"
    if len(first.computations) != len(second.computations):
        return f"{len(first.computations)} and {len(second.computations)} computations"
    return _Comparison(first, second).run()


class _Comparison:
    """The pairs found so far, and what is still to compare."""

    def __init__(self, first: Module, second: Module) -> None:
        self._modules = first, second
        self._texts = Texts(first), Texts(second)
        self._computations: dict[Computation, Computation] = {}
        self._partners: set[Computation] = set()
        self._waiting: list[tuple[Computation, Computation]] = []
        self._fusions = fusion_bodies(first) if first.is_scheduled else set()

    def run(self) -> str | None:
        first, second = self._modules
        self._waiting = [(first.entry, second.entry)]
        found = self._drain()
        while found is None:
            left = next((c for c in first.computations if c not in self._computations), None)
            right = next((c for c in second.computations if c not in self._partners), None)
            if left is None or right is None:
                return None if left is right else "a computation that nothing calls differs"
            self._waiting.append((left, right))
            found = self._drain()
        return found

    def _drain(self) -> str | None:
        while self._waiting:
            a, b = self._waiting.pop()
            known = self._computations.get(a)
            if known is b:
                continue
            if known is not None or b in self._partners:
                return f"computations {a.name} and {b.name} are called in different places"
            self._computations[a] = b
            self._partners.add(b)
            found = self._compare(a, b)
            if found is not None:
                return found
        return None

    def _compare(self, a: Computation, b: Computation) -> str | None:
        """Two computations: threads, sizes, then the instructions from root and parameters."""
        if a.execution_thread != b.execution_thread or len(a) != len(b):
            return f"computations {a.name} and {b.name} differ in thread or length"
        pairs: dict[Instruction, Instruction] = {}
        partners: set[Instruction] = set()
        for start in _starts(a, b, pairs, partners):
            stack = [start]
            while stack:
                x, y = stack.pop()
                if x in pairs and pairs[x] is y:
                    continue
                if x in pairs or y in partners:
                    return f"{x.name} and {y.name} are used in different places"
                pairs[x] = y
                partners.add(y)
                found = self._compare_instructions(x, y)
                if found is not None:
                    return found
                stack += zip(x.operands, y.operands, strict=True)
                stack += zip(control_predecessors(x), control_predecessors(y), strict=True)
        return self._compare_schedules(a, b, pairs)

    def _compare_schedules(
        self, a: Computation, b: Computation, pairs: dict[Instruction, Instruction]
    ) -> str | None:
        if not self._modules[0].is_scheduled or a in self._fusions:
            return None
        for x, y in zip(a.instructions, b.instructions, strict=True):
            if pairs[x] is not y:
                return f"schedules differ: {x.name} and {y.name} have the same place"
        return None

    def _compare_instructions(self, x: Instruction, y: Instruction) -> str | None:
        text, other = (t.text(i) for t, i in zip(self._texts, (x, y), strict=True))
        if text != other:
            return f"{x.name} = {text}\n{y.name} = {other}"
        if len(x.operands) != len(y.operands):
            return f"{x.name} and {y.name} have {len(x.operands)} and {len(y.operands)} operands"
        if len(control_predecessors(x)) != len(control_predecessors(y)):
            return f"{x.name} and {y.name} differ in control predecessors"
        if not _same_literal(x.get("literal"), y.get("literal")):
            return f"the literals of {x.name} and {y.name} differ"
        return self._pair_calls(x, y)

    def _pair_calls(self, x: Instruction, y: Instruction) -> str | None:
        if x.opcode in ("async-update", "async-done"):
            return None  # what they run is their start's
        for key in CALLING_ATTRIBUTES:
            calls, others = (_listed(i.get(key)) for i in (x, y))
            if len(calls) != len(others):
                return f"{x.name} and {y.name} differ in {key}"
            self._waiting += zip(calls, others, strict=True)
        return None


def _listed(value: object) -> tuple[Computation, ...]:
    return value if isinstance(value, tuple) else (value,) if isinstance(value, Computation) else ()


def _starts(
    a: Computation,
    b: Computation,
    pairs: dict[Instruction, Instruction],
    partners: set[Instruction],
) -> Iterator[tuple[Instruction, Instruction]]:
    """Roots, parameters by number, then what no pair has reached: its last, which has no user."""
    yield a.root, b.root
    yield from zip(a.parameters, b.parameters, strict=False)
    others = iter(b.instructions[::-1])
    for x in a.instructions[::-1]:
        if x not in pairs:
            yield x, next(y for y in others if y not in partners)


def _same_literal(a: object, b: object) -> bool:
    if isinstance(a, Literal) and isinstance(b, Literal):
        return a.same_bits(b)
    return a is b


class Texts:
    """What the text of an instruction of one module says besides names; metadata if wanted."""

    def __init__(self, module: Module, *, metadata: bool = True) -> None:
        self._with_metadata = metadata
        self._lists = AttributeLists(_OPTIONS)
        self._frames = module.stack_frames
        self._metadata: dict[int, str] = {}
        self._shapes: dict[int, str] = {}

    def text(self, instruction: Instruction) -> str:
        """`shape opcode, attributes`; computations by how many, constants apart."""
        pieces = [self._shape(instruction.shape), " ", instruction.opcode]
        attributes = instruction.attributes
        listed = self._lists[instruction.opcode]
        if instruction.opcode == "parameter":
            pieces.append(f"({attributes.get('parameter_number')})")
        if attributes or listed.always:
            pieces += [e.piece(own_value(instruction, e)) for e in listed.own + listed.last]
        lists = self._lists
        entries = (lists.replication, lists.sharding, lists.frontend_attributes, lists.statistics)
        for entry in (*entries, lists.accuracy, *lists.behind):
            if entry.key not in attributes or not self._is_said(entry.key):
                continue
            value = attributes[entry.key]
            if isinstance(value, Metadata) and value.stack_frame_id:
                pieces.append(self._cached(self._metadata, value, self._resolved))
            else:
                pieces.append(entry.piece(value))
        return "".join(pieces)

    def _is_said(self, key: str) -> bool:
        return self._with_metadata or key != "metadata"

    def _shape(self, shape: Shape) -> str:
        return self._cached(self._shapes, shape, shape_text)

    @staticmethod
    def _cached(cache: dict[int, str], value: Metadata | Shape, make: Callable[..., str]) -> str:
        """Texts by identity: the module holds the values while it is compared."""
        text = cache.get(id(value))
        if text is None:
            text = cache[id(value)] = make(value)
        return text

    def _resolved(self, metadata: Metadata) -> str:
        """With the calls themselves in the place of the number of a frame."""
        frames = self._frames if isinstance(self._frames, StackFrames) else StackFrames()
        chain = call_chain(frames, metadata.stack_frame_id)
        return f"{replace(metadata, stack_frame_id=0)} {chain}"
