"""hlo-opt extract FILE: some instructions as a module that runs by itself."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import click

from hlo.cli.case_flags import takes_case
from hlo.cli.completing import FILE
from hlo.cli.numbers import Count
from hlo.cli.reading import reads_modules
from hlo.cli.terminal import say
from hlo.errors import HloError
from hlo.tools.files.reading import write_text
from hlo.tools.files.writing import check_writable

if TYPE_CHECKING:
    from hlo.ir.instruction import Instruction
    from hlo.tools.cases.case import Case


@click.command("extract")
@click.option("--name", "names", multiple=True, required=True, metavar="NAME",
              help="An instruction; * stands for anything.")  # fmt: skip
@click.option("--depth", default=0, type=Count(0), show_default=True,
              help="And what it is computed from, so many steps back.")  # fmt: skip
@click.option("-o", "--output", type=FILE, default="-", metavar="FILE",
              help="FILE.npz beside it has the values that its inputs had.")  # fmt: skip
@reads_modules
@takes_case
def command(case: Case, names: tuple[str, ...], depth: int, output: str) -> int:
    """Cut instructions of one computation out, with the values that a run gave them."""
    from hlo.tools.cases.case import recorded
    from hlo.tools.cases.extract import extracted, with_operands

    check_writable(output)
    chosen = [i for name in names for i in named(case, name, "extract")]
    return written(extracted(with_operands(chosen, depth), recorded(case)), case, output)


def written(made: Case, case: Case, output: str) -> int:
    """Write what was cut out of a case; the exit code."""
    from hlo.tools.faults.properties import write_case

    if output == "-":
        write_text("-", made.text)
    else:
        write_case(made, output, f"{output}.npz")
        say(f"{made.size} instructions of {case.size}")
    return 0


def named(case: Case, name: str, command: str) -> list[Instruction]:
    """The instructions of a name; HloError of a command where there is none."""
    wanted = name.removeprefix("%")
    found = [
        i
        for computation in case.module.computations
        for i in computation.instructions
        if fnmatchcase(i.name, wanted)
    ]
    if not found:
        raise HloError(
            "arguments", f"{command}: there is no instruction {name}, expected a name of the module"
        )
    return found
