"""report: one HTML file that needs no network: modules, graph, buffers, kernels, times.

    Compilation, profile --report--> page

The page's code stands in report.html beside this file; what it shows is data in it. It draws what
is unfolded and in view only, so that modules of 50,000 instructions can be read.
"""

from __future__ import annotations

import re
from importlib import resources

import msgspec
from msgspec import Struct

from hlo.analysis.sources import source_of
from hlo.backend.compilation import Compilation
from hlo.backend.profiling.profile import Profile
from hlo.backend.stages.memory_map import Buffer, memory_map
from hlo.backend.stages.printing import stage_text
from hlo.errors import HloError
from hlo.ir.graph import callees_first
from hlo.ir.module import Module
from hlo.printer.options import PrintOptions
from hlo.printer.printer import print_module

PLACE = "/*DATA*/null"
WIDEST = 400  # characters of a line; longer constants and lists are cut


class _Line(Struct, frozen=True, array_like=True):
    """One instruction: name, text, where it comes from, operands as lines of its computation."""

    name: str
    text: str
    source: str
    operands: tuple[int, ...]


class _Group(Struct, frozen=True):
    name: str
    lines: tuple[_Line, ...]


class _Shown(Struct, frozen=True):
    title: str
    groups: tuple[_Group, ...]


class _Page(Struct, frozen=True):
    name: str
    modules: tuple[_Shown, ...]
    buffers: tuple[Buffer, ...]
    live: tuple[int, ...]
    kernels: str
    profile: Profile | None


def report(
    module: Module, compilation: Compilation | None = None, profiled: Profile | None = None
) -> str:
    """The page of a module. compilation: of it, for what passes make of it, buffers and kernels;
    profiled: times of a run, shown as bars.
    """
    shown = [_shown("before", module)]
    buffers: tuple[Buffer, ...] = ()
    live: tuple[int, ...] = ()
    kernels = "Nothing was compiled."
    if compilation is not None:
        shown.append(_shown("after", compilation.optimised))
        try:
            memory = memory_map(compilation)
            buffers, live = memory.buffers, memory.live
            kernels = stage_text(compilation, "loops")
        except HloError as refused:  # of what is left to the reference
            kernels = str(refused)
    page = _Page(module.name, tuple(shown), buffers, live, kernels, profiled)
    return _filled(msgspec.json.encode(page).decode())


def _filled(data: str) -> str:
    """The page with its data: nothing in it ends the script that it stands in."""
    template = resources.files("hlo.tools").joinpath("report.html").read_text("utf-8")
    safe = data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    before, _, after = template.partition(PLACE)
    return f"{before}{safe}{after}"


_NAME = re.compile(r"\s*(?:ROOT )?%?(\S+) = ")


def _shown(title: str, module: Module) -> _Shown:
    """The module's lines by computation, the entry first."""
    texts = _texts(module)
    groups = []
    callees = [c for c in callees_first(module) if c is not module.entry]
    for computation in (module.entry, *reversed(callees)):
        places = {i: n for n, i in enumerate(computation.instructions)}
        lines = tuple(
            _Line(
                i.name,
                texts.get((computation.name, i.name), i.name)[:WIDEST],
                source_of(i),
                tuple(places[o] for o in i.operands),
            )
            for i in computation.instructions
        )
        groups.append(_Group(computation.name, lines))
    return _Shown(title, tuple(groups))


_HEAD = re.compile(r"(?:ENTRY )?%?([^\s({]+)[^=]*{$")


def _texts(module: Module) -> dict[tuple[str, str], str]:
    """The printed line of each instruction, by the names of its computation and of itself."""
    found: dict[tuple[str, str], str] = {}
    home = ""
    text = print_module(module, PrintOptions.short_parsable())
    for line in text.splitlines():
        if not line.startswith(" "):
            head = _HEAD.match(line)
            home = head[1] if head else home
        elif match := _NAME.match(line):
            found[home, match[1]] = line.strip()
    return found
