"""graph: a module, or what stands around an instruction, as Graphviz's language, SVG or a tree.

    module, choice --Part--> dot text --the program `dot`--> SVG;  --tree_text--> lines

Source of the language: graphviz.org/doc/info/lang.html.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Iterator

from msgspec import Struct

from hlo.errors import HloError
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ops.table import Trait, has_trait

DOT_S = 120  # of the program `dot`, which is slow on large graphs
MOST_LINES = 2000  # of a tree


class Part(Struct, frozen=True):
    """Instructions that are drawn, by computation, and the one that it is about, if one is."""

    module: Module
    groups: tuple[tuple[Computation, tuple[Instruction, ...]], ...]
    centre: Instruction | None = None

    @property
    def size(self) -> int:
        return sum(len(instructions) for _, instructions in self.groups)


def part(
    module: Module, computation: str | None = None, around: str | None = None, depth: int = 2
) -> Part:
    """All of a module; one of its computations; or an instruction with its operands and users, so
    many steps away. HloError `arguments` where there is none of that name.
    """
    chosen = [c for c in module.computations if computation in (None, c.name)]
    if not chosen:
        raise HloError(
            "arguments",
            f"graph: there is no computation {computation}, expected one of the module's",
        )
    if around is None:
        return Part(module, tuple((c, c.instructions) for c in chosen))
    centre = _named(chosen, around.removeprefix("%"))
    found = neighbours(centre, depth)
    home = centre.computation
    assert home is not None, "an instruction of a module stands in a computation"
    return Part(module, ((home, tuple(i for i in home.instructions if i in found)),), centre)


def _named(chosen: Iterable[Computation], name: str) -> Instruction:
    for computation in chosen:
        for instruction in computation.instructions:
            if instruction.name == name:
                return instruction
    raise HloError("arguments", f"graph: there is no instruction {name}, expected a name")


def neighbours(centre: Instruction, depth: int) -> dict[Instruction, None]:
    """An instruction, operands of operands and users of users, so many steps away."""
    found = {centre: None}
    for following in (lambda i: i.operands, lambda i: tuple(i.users)):
        edge = [centre]
        for _ in range(depth):
            edge = [n for i in edge for n in following(i) if n not in found]
            if not edge:
                break
            found |= dict.fromkeys(edge)
    return found


def dot_text(chosen: Part) -> str:
    """A digraph: a cluster for each computation, an edge for each operand, dashed to callees."""
    numbers = {i: n for n, i in enumerate(i for _, group in chosen.groups for i in group)}
    clusters = {c: n for n, (c, _) in enumerate(chosen.groups)}
    rows = [
        f"digraph {_quoted(chosen.module.name)} {{",
        "  node [shape=box, style=filled, fillcolor=white, fontname=monospace, fontsize=10];",
        "  compound=true;",
    ]
    for number, (computation, instructions) in enumerate(chosen.groups):
        rows += [f"  subgraph cluster_{number} {{", f"    label={_quoted(computation.name)};"]
        rows += [f"    {_node(i, numbers[i], chosen)}" for i in instructions]
        rows.append("  }")
    for _, instructions in chosen.groups:
        for instruction in instructions:
            rows += _edges(instruction, numbers, clusters)
    return "\n".join([*rows, "}", ""])


def _node(instruction: Instruction, number: int, chosen: Part) -> str:
    label = f"%{instruction.name}\n{instruction.opcode}\n{instruction.shape}"
    marks = f', fillcolor="{_colour(instruction)}"'
    if instruction is chosen.centre:
        marks += ", penwidth=3"
    elif instruction.is_root:
        marks += ", peripheries=2"
    return f"n{number} [label={_quoted(label)}{marks}];"


def _colour(instruction: Instruction) -> str:
    """By what it is: from memory, calls, moves, else computes."""
    if has_trait(instruction, Trait.SOURCE):
        return "#dfe8f6"
    if instruction.called_computations():
        return "#f6e3c4"
    return "#eeeeee" if has_trait(instruction, Trait.MOVEMENT | Trait.FREE) else "#d8efd3"


def _edges(
    instruction: Instruction, numbers: dict[Instruction, int], clusters: dict[Computation, int]
) -> Iterator[str]:
    own = numbers[instruction]
    for place, operand in enumerate(instruction.operands):
        if operand in numbers:
            label = f" [label={place}]" if len(instruction.operands) > 1 else ""
            yield f"  n{numbers[operand]} -> n{own}{label};"
    for callee in instruction.called_computations():
        if callee in clusters and callee.root in numbers:
            rest = f"style=dashed, ltail=cluster_{clusters[callee]}"
            yield f"  n{numbers[callee.root]} -> n{own} [{rest}];"


def _quoted(text: str) -> str:
    """A string of the language: backslashes and quotes escaped, lines as \\n."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def svg(chosen: Part) -> bytes:
    """What the program `dot` draws; HloError `unsupported` where it is not installed or fails."""
    program = shutil.which("dot")
    if program is None:
        raise HloError(
            "unsupported",
            "graph: the program dot is not installed, which draws SVG",
            help="install Graphviz, or take --format=dot or --format=tree",
        )
    try:
        done = subprocess.run(
            [program, "-Tsvg"], input=dot_text(chosen).encode(), capture_output=True,
            timeout=DOT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        message = f"graph: dot takes more than {DOT_S} s for {chosen.size} instructions"
        raise HloError("unsupported", message, help="--around=NAME draws less") from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()[:600]
        raise HloError("unsupported", f"graph: dot failed: {said}")
    return done.stdout


def tree_text(chosen: Part) -> str:
    """Each computation from its root, or from the instruction that it is about: operands stand
    indented below, what was shown before only by name.
    """
    rows: list[str] = []
    for computation, instructions in chosen.groups:
        wanted = set(instructions)
        top = chosen.centre or computation.root
        rows.append(computation.name)
        seen: set[Instruction] = set()
        stack = [(top, 1)]
        while stack and len(rows) < MOST_LINES:
            instruction, level = stack.pop()
            again = instruction in seen and bool(instruction.operands)
            rows.append(f"{'  ' * level}{_line(instruction)}{' ...' if again else ''}")
            if instruction not in seen:
                seen.add(instruction)
                below = [o for o in instruction.operands if o in wanted]
                stack += [(o, level + 1) for o in reversed(below)]
    if len(rows) >= MOST_LINES:
        rows.append(f"... (the first {MOST_LINES} lines)")
    return "\n".join(rows) + "\n"


def _line(instruction: Instruction) -> str:
    calls = ", ".join(c.name for c in instruction.called_computations())
    return f"%{instruction.name} = {instruction.shape} {instruction.opcode}" + (
        f" -> {calls}" if calls else ""
    )
