"""How long LLVM takes for each kernel: the part of --time-passes that comes after the passes.

    Compilation --code_times--> a table, the longest first

Each kernel is a module of its own here, one after the other. In a compilation several are one
module, which saves what a module costs, and modules are compiled on all processors.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from hlo.backend.compilation import Compilation
from hlo.backend.entry.kernel_modules import module_alone
from hlo.backend.ir.definitions import symbol
from hlo.backend.ir.kernel import Kernel
from hlo.backend.linking.toolchain import Effort, effort
from hlo.backend.planning.brevity import brief_kernels
from hlo.backend.planning.program import Program, kernel_steps

_HEAD = f"{'kernel':<44}{'lines':>7}{'read':>10}{'middle-end':>12}{'code':>10}{'bytes':>9}"


def code_times(made: Compilation) -> str:
    """A row for each of the program's kernels, and of the functions that they call; their sum."""
    found: dict[str, tuple[str, int, Effort]] = {}
    brief = {made.program.kernels[n] for n in brief_kernels(made.program)}
    for label, kernel in _labelled(made.program):
        if (name := symbol(kernel)) not in found:  # equal kernels are compiled once
            module = module_alone(name, kernel, is_brief=kernel in brief)
            taken = effort(replace(module, machine=made.machine))
            found[name] = (label, kernel.length, taken)
    rows = sorted(found.values(), key=lambda row: -row[2].seconds)
    total = sum(row[2].seconds for row in rows)
    lines = [_HEAD, *(_row(*row) for row in rows)]
    return "\n".join([*lines, f"{f'total of {len(rows)}':<44}{1e3 * total:>36.1f} ms", ""])


def _labelled(program: Program) -> Iterator[tuple[str, Kernel]]:
    """The kernels by number and the instruction that they are for; functions that they call have
    the number of a part beside it.
    """
    names: dict[int, str] = {}
    for step in kernel_steps(program):
        names.setdefault(step.kernel, step.instruction.name)
    for number, name in names.items():
        kernel = program.kernels[number]
        yield f"k{number} ({name})", kernel
        for part, function in enumerate(kernel.functions):
            yield f"k{number} part {part} ({name})", function


def _row(label: str, lines: int, taken: Effort) -> str:
    return (
        f"{label[:43]:<44}{lines:>7,}{1e3 * taken.read:>7.1f} ms{1e3 * taken.middle:>9.1f} ms"
        f"{1e3 * taken.code:>7.1f} ms{taken.code_bytes:>9,}"
    )
