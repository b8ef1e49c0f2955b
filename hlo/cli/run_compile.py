"""hlo-run compile FILE...: object files, libraries and headers that need no Python."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from hlo.choices import MODES
from hlo.cli.completing import FILE, PASSES
from hlo.cli.machine_flags import machine_flags
from hlo.cli.numbers import THREADS, Count
from hlo.cli.reading import read_module, reads_input
from hlo.cli.terminal import say
from hlo.errors import HloError
from hlo.tools.files.reading import write_bytes, write_text
from hlo.tools.files.writing import check_writable

if TYPE_CHECKING:
    from hlo.ir.module import Module
    from hlo.machine import Machine

FORMS = {
    ".o": "object", ".obj": "object", ".a": "library", ".so": "shared", ".dylib": "shared",
    ".wasm": "shared",
    ".s": "asm", ".ll": "llvm", ".h": "header", ".hpp": "header-cpp",
}  # fmt: skip
if TYPE_CHECKING:
    from hlo.backend.ahead.ahead_of_time import AheadOfTime

_LEVEL = "x86-64-"  # before the levels' short names
_WASM = "wasm32-unknown-unknown"
TEXTS = ("asm", "llvm", "header", "header-cpp")
SINGLE = ("object", "asm", "llvm")


def _ahead_machine() -> Machine:
    from hlo import driver
    from hlo.machine import named

    return named(driver.AHEAD_TARGET)


@click.command("compile")
@click.argument("files", type=FILE, metavar="FILE...", nargs=-1, required=True)
@click.option("-o", "--output", type=FILE, default="-", metavar="FILE",
              help="Its ending says the form: .o .a .so .s .ll .h; - is the header.")  # fmt: skip
@click.option("--emit", default=None, type=click.Choice(sorted({*FORMS.values()})),
              help="The form, whatever the ending.")  # fmt: skip
@click.option("--header", default=None, metavar="FILE.h", help="Write the header for C too.")
@click.option("--cpp-header", default=None, metavar="FILE.hpp", help="Write a class for C++ too.")
@click.option("--name", default=None, help="Of the function in C; by default the module's.")
@click.option("--prefix", default="", help="What the names of all functions begin with.")
@click.option("-p", "--passes", type=PASSES, default="default", show_default=True)
@click.option("--mode", type=click.Choice(MODES), default="strict", show_default=True)
@click.option("--threads", default="none", show_default=True,
              type=click.Choice(("none", "pthreads", "callback")),
              help="Who runs parallel loops: its own threads, or the caller's.")  # fmt: skip
@click.option("--max-threads", default=8, show_default=True, type=THREADS,
              help="For how many they are planned.")  # fmt: skip
@click.option("--lapack", default="none", show_default=True, type=click.Choice(("none", "fortran")),
              help="fortran: the linker finds its routines, as dgetrf_.")  # fmt: skip
@click.option("--weights", default=None, metavar="FILE",
              help="Write all constants there; each call gets them as its last input.")  # fmt: skip
@click.option("--bind", "bound", type=FILE, default=None, metavar="FILE",
              help="Parameters that become constants: arrays by their names.")  # fmt: skip
@click.option("--freestanding", is_flag=True, help="Leave nothing to the C library.")
@click.option("--optimize", default="speed", show_default=True,
              type=click.Choice(("speed", "size")),
              help="size: loops unrolled and versioned less.")  # fmt: skip
@click.option("--cancellable", is_flag=True, help="A word of the caller's ends calls.")
@click.option("--fill-elided", "fill", is_flag=False, flag_value=0, default=None,
              type=Count(0), metavar="[SEED]",
              help="Give constant({...}) made-up values.")  # fmt: skip
@click.option("--sizes", is_flag=True, help="What each symbol takes, on stderr.")
@click.option("--multiversion", default=None, metavar="A,B,..",
              help="Code for several machines of x86-64 (v2,v3,v4: its levels): calls run what the "
              "processor has.")  # fmt: skip
@click.option("--target-triple", "triple", default=None, metavar="TRIPLE",
              help="LLVM's triple: the system and the form of files.")  # fmt: skip
@partial(machine_flags, base=_ahead_machine)
@reads_input
def command(
    files: tuple[str, ...],
    output: str,
    emit: str | None,
    header: str | None,
    cpp_header: str | None,
    name: str | None,
    prefix: str,
    passes: str,
    mode: str,
    threads: str,
    max_threads: int,
    lapack: str,
    weights: str | None,
    bound: str | None,
    freestanding: bool,
    optimize: str,
    cancellable: bool,
    fill: int | None,
    sizes: bool,
    multiversion: str | None,
    triple: str | None,
    machine: Machine | None,
) -> int:
    """Compile ahead of time: files that a C program links, without Python."""
    from hlo import driver
    from hlo.tools.cases.arrays import load_arrays

    if weights == "-":
        raise click.UsageError("--weights is '-', expected a file's path")
    form = _checked_form(files, output, emit, name, weights)
    outputs = [path for path in (output, header, cpp_header, weights) if path is not None]
    for path in outputs:
        check_writable(path)
    _check_apart(files, outputs)
    if multiversion is not None and machine is not None:
        raise click.UsageError(
            "--multiversion names the machines, expected no other flag that does"
        )
    triple = triple or (_WASM if _is_wasm(output) and not machine else None)
    target = _levels(multiversion, triple) if multiversion is not None else _target(machine, triple)
    place = "separate" if weights else "embedded"
    how = (target, name, prefix, passes, mode, threads, max_threads, lapack, place, freestanding,
           cancellable, optimize)  # fmt: skip
    values = load_arrays(bound) if bound is not None else {}
    made = [driver.compile_ahead(_read(file, fill, values), *how) for file in files]
    data = _form(made, form, output)
    written: list[tuple[str | None, str | bytes]] = [
        (header, "\n".join(m.header for m in made) if header else ""),
        (cpp_header, "\n".join(m.cpp_header for m in made) if cpp_header else ""),
        (weights, made[0].weights if weights else b""),
        (output, data),
    ]
    _write([(path, content) for path, content in written if path is not None])
    if sizes:
        for m in made:
            say(f"{m.name}: {m.size_table}")
    return 0


def _write(files: Sequence[tuple[str, str | bytes]]) -> None:
    """All files, or, where one cannot be written, none that was not there before."""
    made = []
    try:
        for path, data in files:
            is_new = path != "-" and not os.path.lexists(path)
            if isinstance(data, str):
                write_text(path, data)
            else:
                write_bytes(path, data)
            made += [path] * is_new
    except BaseException:
        for path in made:
            os.unlink(path)
        raise


def _check_apart(inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """UsageError where what is written to a file would take the place of what is read from it, or
    of what else is written.
    """
    named = [path for path in inputs if path != "-" and "\0" not in path]
    taken = set(map(os.path.realpath, named))
    for path in outputs:
        place = os.path.realpath(path)
        if path != "-" and place in taken:
            raise click.UsageError(f"{path} is read, or named twice, expected a file of its own")
        taken.add(place)


def _checked_form(
    files: Sequence[str], output: str, emit: str | None, name: str | None, weights: str | None
) -> str:
    """The output's form; UsageError for flags that do not go together."""
    form = emit or ("header" if output == "-" else FORMS.get(PurePath(output).suffix))
    if form is None:
        raise click.UsageError(f"--output: {output} has none of the endings {', '.join(FORMS)}")
    if len(files) > 1:
        if name is not None:
            raise click.UsageError("--name is of one FILE, expected --prefix, which is for all")
        if weights is not None:
            raise click.UsageError("--weights is of one FILE, expected one")
        if form in SINGLE:
            raise click.UsageError(f"--emit={form} is of one FILE, expected a library: .a or .so")
    if output == "-" and form not in TEXTS:
        raise click.UsageError(f"--emit={form} needs --output=FILE")
    return form


def _is_wasm(output: str) -> bool:
    """Whether a file is named as a module of WebAssembly, which says the machine too."""
    return output.endswith(".wasm")


def _target(machine: Machine | None, triple: str | None) -> Machine | str:
    """The machine that code is for."""
    from hlo import driver
    from hlo.machine import of_triple

    if machine is None:
        return driver.AHEAD_TARGET if triple is None else of_triple(triple)
    return _target_of(machine, triple)


def _target_of(machine: Machine, triple: str | None) -> Machine:
    """A machine with another triple; HloError where that is of another architecture."""
    from hlo.machine import of_triple

    if triple is None:
        return machine
    least = of_triple(triple)
    if machine.architecture != least.architecture:
        message = f"{machine.name} is {machine.architecture}, expected {least.architecture}"
        raise HloError("machine", f"{message}, as {triple} is")
    return replace(machine, triple=triple)


def _levels(text: str, triple: str | None) -> list[Machine]:
    """The machines that an object chooses from."""
    from hlo.machine import NAMED, named

    names = [f"{_LEVEL}{name}" if f"{_LEVEL}{name}" in NAMED else name for name in text.split(",")]
    return [_target_of(named(name), triple) for name in names]


def _read(file: str, fill: int | None, values: Mapping[str, object]) -> Module:
    from hlo.tools.cases.binding import bind
    from hlo.tools.cases.fill import fill_elided

    module = read_module(file)
    if values:
        module = bind(module, values)
    return module if fill is None else fill_elided(module, fill)


def _form(made: Sequence[AheadOfTime], form: str, output: str) -> bytes | str:
    """All that the output file will hold."""
    from hlo import driver
    from hlo.tools.c_compiler import linker, shared_library

    first = made[0]
    match form:
        case "object":
            return first.object
        case "asm":
            return first.assembly
        case "llvm":
            return first.llvm
        case "header":
            return "\n".join(m.header for m in made)
        case "header-cpp":
            return "\n".join(m.cpp_header for m in made)
        case "library":
            return driver.static_library(made)
    if len({m.name for m in made}) < len(made):
        raise HloError("arguments", "library: two functions of one name, expected other ones",
                       help="rename a module")  # fmt: skip
    if _is_wasm(output) != (first.machine.architecture == "wasm32"):
        message = f"library: {output} is for {first.machine.architecture}"
        raise HloError("arguments", f"{message}, expected the ending .wasm for wasm32 alone")
    chosen = linker(first.machine, driver.host_machine())
    say(f"linked by {chosen.name}")
    flags = ("-pthread",) if any(m.options.threads == "pthreads" for m in made) else ()
    return shared_library([m.object for m in made], chosen, flags)
