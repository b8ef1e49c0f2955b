"""hlo-opt graph FILE: a picture of a module, in text, SVG or a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hlo.cli.completing import FILE, PASSES
from hlo.cli.numbers import Count
from hlo.cli.reading import read_module, reads_modules
from hlo.cli.terminal import tell
from hlo.tools.files.reading import write_bytes, write_text
from hlo.tools.files.writing import check_writable

if TYPE_CHECKING:
    from hlo.ir.module import Module

FORMATS = ("tree", "dot", "svg")


@click.command("graph")
@click.argument("file", type=FILE, metavar="FILE")
@click.option("--format", "form", type=click.Choice(FORMATS), default="tree", show_default=True)
@click.option("--computation", default=None, metavar="NAME", help="Only this one.")
@click.option("--around", default=None, metavar="NAME",
              help="Only an instruction, its operands and its users.")  # fmt: skip
@click.option("--depth", default=2, type=Count(0), show_default=True,
              help="Of --around, in steps.")  # fmt: skip
@click.option("--html", "page", type=FILE, default=None, metavar="FILE",
              help="A report: modules, graph, buffers, kernels, in one page.")  # fmt: skip
@click.option("--profile", "timed", is_flag=True,
              help="With --html: also times of runs on made-up inputs.")  # fmt: skip
@click.option(
    "-p", "--passes", type=PASSES, default="default", show_default=True, help="With --html."
)
@click.option("--no-compile", is_flag=True, help="With --html: the module as it is, and no more.")
@click.option(
    "-o", "--output", type=FILE, default="-", metavar="FILE", help="Default: standard output."
)
@reads_modules
def command(
    file: str,
    form: str,
    computation: str | None,
    around: str | None,
    depth: int,
    page: str | None,
    timed: bool,
    passes: str,
    no_compile: bool,
    output: str,
) -> int:
    """Draw a module: operands lead to their users, computations are boxes."""
    from hlo.tools.inspection.graph import dot_text, part, svg, tree_text

    if timed and (page is None or no_compile):
        raise click.UsageError("--profile goes with --html, and without --no-compile")
    check_writable(page or output)
    module = read_module(file)
    if page is not None:
        write_text(page, _page(module, None if no_compile else passes, timed=timed))
        return 0
    chosen = part(module, computation, around, depth)
    if form == "svg":
        write_bytes(output, svg(chosen))
    elif output != "-":
        write_text(output, dot_text(chosen) if form == "dot" else tree_text(chosen))
    elif form == "dot":
        write_text("-", dot_text(chosen))
    else:
        tell(tree_text(chosen), nl=False)
    return 0


def _page(module: Module, passes: str | None, *, timed: bool) -> str:
    """The report; what it needs is loaded for it alone, which the text forms do without."""
    from hlo import driver
    from hlo.backend.compilation import Compilation
    from hlo.backend.profiling.profile import profile
    from hlo.tools.cases.fill import fill_elided
    from hlo.tools.cases.inputs import made_up_inputs
    from hlo.tools.inspection.report import report

    if passes is None:
        return report(module)
    driver.verify(module)
    module = fill_elided(module, 0) if timed else module
    made = Compilation(module, passes=passes)
    return report(module, made, profile(made, *made_up_inputs(module)) if timed else None)
