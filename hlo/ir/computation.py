"""Computation: an ordered set of instructions with one root; the only editor of edges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import TYPE_CHECKING, TypeVar

from hlo.ir.instruction import NO_ATTRIBUTES, Attributes, Instruction
from hlo.ir.rewiring import replace_operand
from hlo.ir.shape import ProgramShape, Shape

if TYPE_CHECKING:
    from hlo.ir.module import Module

Fact = TypeVar("Fact")
_states = count(1)


class Computation:
    """Instructions in text order (operands first when it came from text), one of them the root.

    `add` appends: after edits the order is no longer topological; `hlo.ir.graph.post_order` is.
    What follows from instructions, edges and attributes may be kept as a fact until the next edit;
    what says nothing of names and holds no instruction, for all that are equal (`contents`).
    """

    __slots__ = (
        "_by_order", "_contents", "_facts", "_instructions", "_next", "_root", "_taken",
        "execution_thread", "module", "name",
    )  # fmt: skip

    def __init__(self, name: str, *, execution_thread: str = "main") -> None:
        self.name = name
        self.execution_thread = execution_thread
        self.module: Module | None = None
        self._instructions: dict[Instruction, None] = {}
        self._by_order: tuple[Instruction, ...] | None = None
        self._root: Instruction | None = None
        self._facts: dict[object, object] | None = None
        self._contents: dict[object, object] | None = None
        self._taken: set[str] | None = None  # names in use, known from the first edit on
        self._next: dict[str, int] = {}  # the next number to try for a name in use

    def __repr__(self) -> str:
        return f"<computation {self.name}, {len(self._instructions)} instructions>"

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        if self._by_order is None:
            self._by_order = tuple(self._instructions)
        return self._by_order

    @property
    def root(self) -> Instruction:
        """The root; the last instruction added where none was chosen."""
        if self._root is not None:
            return self._root
        assert self._instructions, f"computation {self.name} has no instruction"
        return self.instructions[-1]

    @root.setter
    def root(self, instruction: Instruction) -> None:
        assert instruction.computation is self, f"{instruction.name} is not in {self.name}"
        self._root = instruction
        self._facts = self._contents = None

    def fact(self, of: Callable[[Computation], Fact]) -> Fact:
        """What a function says of the computation, called once between two edits."""
        facts = self.facts
        if of not in facts:
            facts[of] = of(self)
        return facts[of]  # type: ignore[return-value]  # what `of` gave

    @property
    def facts(self) -> dict[object, object]:
        """What is known of the computation as it stands; an edit forgets it."""
        if self._facts is None:
            self._facts = {}
        return self._facts

    @property
    def contents(self) -> dict[object, object]:
        """What is known of the computation and of equal ones that share it; one that is edited
        has its own from then on.

        It holds no instruction, and nothing that depends on names, places in the text or metadata.
        """
        if self._contents is None:
            self._contents = {}
        return self._contents

    @contents.setter
    def contents(self, of_equal: dict[object, object]) -> None:
        self._contents = of_equal

    @property
    def contents_number(self) -> int:
        """A number that no computation of other contents has."""
        found = self.contents.get(_next_state)
        if found is None:
            found = self.contents[_next_state] = next(_states)
        assert isinstance(found, int), "what was put there"
        return found

    @property
    def state(self) -> int:
        """A number that no other state of a computation has, before or after an edit."""
        return self.fact(_next_state)

    @property
    def parameters(self) -> tuple[Instruction, ...]:
        """The parameters by number."""
        return self.fact(_parameters)

    @property
    def program_shape(self) -> ProgramShape:
        return ProgramShape(tuple(p.shape for p in self.parameters), self.root.shape)

    def __contains__(self, instruction: Instruction) -> bool:
        return instruction in self._instructions

    def __len__(self) -> int:
        return len(self._instructions)

    def add(self, instruction: Instruction) -> Instruction:
        """Append an instruction and enter it among its operands' users."""
        assert instruction.computation is None, f"{instruction.name} already has a computation"
        instruction.computation = self
        if self._taken is not None:
            self._taken.add(instruction.name)
        self._instructions[instruction] = None
        self._by_order = self._facts = self._contents = None
        for operand in instruction.operands:
            operand.users[instruction] = None
        return instruction

    def new(
        self,
        opcode: str,
        shape: Shape,
        operands: Iterable[Instruction] = (),
        attributes: Attributes = NO_ATTRIBUTES,
        *,
        name: str = "",
        like: Instruction | None = None,
    ) -> Instruction:
        """Make and append an instruction; `like` gives it that instruction's place and metadata."""
        made = Instruction(name or opcode, opcode, shape, tuple(operands), attributes)
        if like is not None:
            made.start, made.end, made.source = like.start, like.end, like.source
            metadata = like.attributes.get("metadata")
            if metadata is not None and "metadata" not in made.attributes:
                made.attributes = {**made.attributes, "metadata": metadata}
        return self.adopt(made)

    def adopt(self, instruction: Instruction) -> Instruction:
        """Append an instruction under a name that no other one here has."""
        if self._taken is None:
            self._taken = {i.name for i in self._instructions}
        if instruction.name in self._taken:
            instruction.name = self._fresh(instruction.name)
        return self.add(instruction)

    def _fresh(self, name: str) -> str:
        root, dot, number = name.rpartition(".")
        if not dot or not number.isdigit():
            root = name
        assert self._taken is not None, "names are known"
        at = self._next.get(root, 1)
        while f"{root}.{at}" in self._taken:
            at += 1
        self._next[root] = at + 1
        return f"{root}.{at}"

    def set_operand(self, user: Instruction, index: int, new: Instruction) -> None:
        """Make `new` operand `index` of `user`."""
        operands = list(user.operands)
        old, operands[index] = operands[index], new
        user.operands = tuple(operands)
        self._facts = self._contents = None
        if old not in user.operands:
            old.users.pop(user, None)
        new.users[user] = None

    def set_operands(self, user: Instruction, operands: Iterable[Instruction]) -> None:
        """Replace all operands of `user`."""
        for old in user.operands:
            old.users.pop(user, None)
        user.operands = tuple(operands)
        self._facts = self._contents = None
        for new in user.operands:
            new.users[user] = None

    def set_attributes(self, instruction: Instruction, attributes: Attributes) -> None:
        instruction.attributes = attributes
        self._facts = self._contents = None

    def replace_uses(self, old: Instruction, new: Instruction) -> None:
        """Every user of `old` now uses `new`, which is the root if `old` was. O(users)."""
        assert old is not new, f"{old.name} replaced by itself"
        self._facts = self._contents = None
        for user in tuple(old.users):
            if user is not new:
                replace_operand(user, old, new)
                new.users[user] = None
                del old.users[user]
        if self.root is old:
            self._root = new

    def replace_all_uses(self, replaced: Mapping[Instruction, Instruction]) -> None:
        """The same for many at once: the operands of each user are gone through once.

        No new instruction is an old one.
        """
        self._facts = self._contents = None
        for user in dict.fromkeys(user for old in replaced for user in old.users):
            was = user.operands
            user.operands = tuple([_other_than(user, replaced.get(o, o), o) for o in was])
            for old, new in zip(was, user.operands, strict=True):
                if new is not old:
                    old.users.pop(user, None)
                    new.users[user] = None
        self._root = replaced.get(self.root, self.root)

    def remove(self, instruction: Instruction) -> None:
        """Take out an instruction that has no user and is not the root."""
        assert not instruction.users, f"{instruction.name} still has users"
        assert self._root is not instruction, f"{instruction.name} is the root"
        if self._root is None:
            self._root = self.root
        for operand in instruction.operands:
            operand.users.pop(instruction, None)
        instruction.operands = ()
        instruction.computation = None
        del self._instructions[instruction]
        self._by_order = self._facts = self._contents = None

    def reorder(self, order: Iterable[Instruction]) -> None:
        """Set the order of the instructions: the same ones, each once."""
        self._root = self.root
        ordered = dict.fromkeys(order)
        assert ordered.keys() == self._instructions.keys(), "a permutation of the instructions"
        self._instructions = ordered
        self._by_order = self._facts = self._contents = None


def _parameters(computation: Computation) -> tuple[Instruction, ...]:
    found = [i for i in computation.instructions if i.opcode == "parameter"]
    return tuple(sorted(found, key=lambda i: i.attributes["parameter_number"]))  # type: ignore[arg-type,return-value]  # an int


def _other_than(user: Instruction, new: Instruction, old: Instruction) -> Instruction:
    """The new operand of a user, the old one if the new one is the user itself."""
    return old if new is user else new


def _next_state(_: Computation) -> int:
    return next(_states)
