"""hlo-opt FILE...: parse, verify, run passes, print at a stage."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

import click
from msgspec import Struct

from hlo.cli.completing import FILE, PASSES
from hlo.cli.machine_flags import machine_flags
from hlo.cli.print_flags import print_flags, print_options
from hlo.cli.reading import SEPARATOR, is_split, read_modules, reads_all_modules
from hlo.cli.terminal import say, tell
from hlo.cli.watching import watches
from hlo.errors import HloError
from hlo.printer.options import PrintOptions
from hlo.tools.files.reading import read_text, write_text
from hlo.tools.files.writing import check_writable

if TYPE_CHECKING:
    from hlo.ir.module import Module
    from hlo.machine import Machine
    from hlo.passes.manager import Manager
    from hlo.passes.remarks import Remark
    from hlo.tools.files.dump import Dump


class Wanted(Struct, frozen=True):
    """What is printed: a stage; of one kernel only; with reasons; with LLVM's times."""

    emit: str
    kernel: str | None
    remarks: bool
    timed: bool = False


CodeFor: TypeAlias = "tuple[str, Machine | None]"  # the numerics mode and the machine

STAGES = (
    "tokens",
    "hlo",
    "optimized",
    "schedule",
    "buffers",
    "loops",
    "program",
    "llvm",
    "llvm-opt",
    "asm",
)


def pass_list() -> str:
    """Passes with their first line and options, pipelines with their passes."""
    from hlo.passes.catalogue import CATALOGUE, PIPELINES, first_line, option_types

    rows = []
    for name, function in CATALOGUE.items():
        options = ", ".join(f"{k}={v!r}" for k, v in option_types(function).items())
        rows.append(f"{name:<34}{first_line(function)}" + (f"  [{options}]" if options else ""))
    rows.append("\npipelines")
    rows += [f"{name or '(empty)':<34}{','.join(steps)}" for name, steps in PIPELINES.items()]
    return "\n".join(rows) + "\n"


def rule_list() -> str:
    """algsimp's rules by family with their equations."""
    from hlo.passes.simplify.algsimp import all_rules

    rules = all_rules().values()
    rows = []
    for family in sorted({rule.family for rule in rules}):
        rows.append(f"{family}")
        for rule in rules:
            if rule.family == family:
                mark = " " if rule.exact else "~"
                rows.append(f" {mark} {rule.name:<34}{rule.equation}")
    return "\n".join(rows) + "\n(~: changes roundings or special values; runs with inexact=true)\n"


def listing(kind: str) -> str:
    """The text of one of the --list-... flags."""
    from hlo.ops.listing import op_table

    lists = {"passes": pass_list, "ops": op_table, "rules": rule_list, "machines": machine_list}
    return lists[kind]()


def machine_list() -> str:
    """The named descriptions, the processors that they serve, registers, caches, features."""
    from hlo.machine import NAMED

    rows = []
    for machine in NAMED.values():
        also = f" ({', '.join(machine.processors)})" if machine.processors else ""
        rows.append(f"{machine.name}{also}")
        caches = ", ".join(
            f"{c.bytes >> 10} KiB{' shared' if c.shared else ''}" for c in machine.caches
        )
        rows.append(
            f"  {machine.triple}, {machine.registers} vectors of {machine.vector_bytes} bytes"
        )
        rows.append(f"  caches of {caches}, lines of {machine.line_bytes} bytes")
        rows.append(f"  {' '.join(sorted(machine.features))}")
    return "\n".join(rows) + "\n"


def _regex(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    """A regular expression, or a usage error."""
    del ctx, param
    try:
        re.compile(text or "")
    except re.error as error:
        raise click.BadParameter(f"{text!r} is no regular expression: {error}") from None
    return text


@click.command("transform")
@click.argument("files", nargs=-1, type=FILE, metavar="FILE...")
@click.option(
    "-p", "--passes", type=PASSES, default=None, help="Passes, groups and pipelines: a,b{opt=1}."
)
@click.option(
    "--pipeline-file", type=FILE, default=None, help="A text file that holds the pipeline."
)
@click.option("--emit", type=click.Choice(STAGES), default="hlo", show_default=True)
@click.option(
    "--kernel",
    default=None,
    metavar="NAME",
    help="With --emit=loops: one kernel; --emit=asm: beside HLO names, with instruction mixes.",
)
@click.option("--remarks", "remarked", is_flag=False, flag_value="", default=None,
              metavar="[REGEX]", callback=_regex,
              help="What was fused and what not, and why, on stderr; with --emit=loops also why "
              "loops are what they are.")  # fmt: skip
@print_flags
@click.option("--list-passes", "listed", flag_value="passes", help="Passes and pipelines.")
@click.option("--list-ops", "listed", flag_value="ops", help="The op table.")
@click.option("--list-rules", "listed", flag_value="rules", help="algsimp's equations.")
@click.option("--list-machines", "listed", flag_value="machines", help="Machines of --machine.")
@click.option("--print-changed", is_flag=False, flag_value="full", default=None,
              type=click.Choice(["full", "diff"]), help="Print after changes.")  # fmt: skip
@click.option("--print-after", "printed_after", multiple=True, type=PASSES, metavar="PASS",
              help="Print the module after each run of a pass; may be repeated.")  # fmt: skip
@click.option("--time-passes", is_flag=True, help="Tables of passes and rules on "
              "stderr; with --emit=asm also of LLVM's time for each kernel.")  # fmt: skip
@click.option(
    "--dump-to", type=FILE, default=None, metavar="DIR", help="Numbered files, one per stage."
)
@click.option("--no-verify", is_flag=True, help="Do not verify before and between passes.")
@click.option("--mode", type=click.Choice(["strict", "fast"]), default="strict")
@click.option(
    "-o", "--output", type=FILE, default="-", metavar="FILE", help="Default: standard output."
)
@machine_flags
@reads_all_modules
@watches
def command(
    files: tuple[str, ...],
    passes: str | None,
    pipeline_file: str | None,
    emit: str,
    kernel: str | None,
    remarked: str | None,
    form: str,
    listed: str | None,
    print_changed: str | None,
    printed_after: tuple[str, ...],
    time_passes: bool,
    dump_to: str | None,
    no_verify: bool,
    mode: str,
    output: str,
    machine: Machine | None,
    **fields: object,
) -> int:
    """Parse, verify, run passes, print at --emit."""
    from hlo import driver

    options = print_options(form, fields)
    wanted = _wanted(emit, kernel, remarks=remarked is not None, timed=time_passes)
    if listed:
        tell(listing(listed), nl=False)
        return 0
    if not files:
        raise click.UsageError("no FILE given; - is standard input")
    check_writable(output)
    if pipeline_file is not None:
        passes = _pipeline_text(pipeline_file)
    told = _Told(print_changed, printed_after, dump_to, remarked, is_timed=time_passes)
    work = None
    if passes is not None or emit not in ("hlo", "tokens") or told.wants_passes:
        work = _work(told, no_verify=no_verify)
    code_for: CodeFor = (mode, machine)
    code, texts = 0, []
    for file in files:
        if emit == "tokens":
            texts.append(driver.tokens_text(read_text(file)))
            continue
        for module in read_modules(file):
            if work is not None and work.dump is not None:
                work.dump.module("input", module)
            if not no_verify:
                looked_at = not passes and emit == "hlo" and output == "-"
                code |= _verified(module, looked_at=looked_at)
            if work is None:
                texts.append(driver.to_text(module, options))
            else:
                texts.append(_emitted(module, passes, wanted, options, code_for, work))
    write_text(output, (f"{SEPARATOR}\n\n" if is_split() else "\n").join(texts))
    if work is not None:
        _say_of(work, told)
    return code


class _Told(Struct, frozen=True):
    """What the flags ask to be told of passes."""

    changed: str | None
    after: tuple[str, ...]
    dump_to: str | None
    remarked: str | None
    is_timed: bool

    @property
    def wants_passes(self) -> bool:
        """Whether there is something to say, or a name to check, where no pass runs."""
        return bool(self.after or self.dump_to is not None or self.is_timed)


class _Work(Struct, frozen=True):
    """What runs passes, where modules are dumped between them, and what is heard of them."""

    manager: Manager
    dump: Dump | None
    hits: Counter[str]
    remarks: list[Remark]


def _work(told: _Told, *, no_verify: bool) -> _Work:
    from hlo import driver
    from hlo.passes.manager import Manager
    from hlo.passes.remarks import heard_remarks
    from hlo.passes.rewriting import counted_rules
    from hlo.tools.files.dump import Dump

    context = click.get_current_context()
    hits = context.with_resource(counted_rules())
    remarks = [] if told.remarked is None else context.with_resource(heard_remarks())
    manager = Manager(verify=None if no_verify else driver.verify)
    dump = None if told.dump_to is None else Dump(told.dump_to)
    if dump is not None:
        manager.after.append(dump.after_pass)
    _print_between(manager, told.changed, told.after)
    return _Work(manager, dump, hits, remarks)


def _say_of(work: _Work, told: _Told) -> None:
    """Times and counts of passes, and the remarks that a regular expression is found in."""
    from hlo.tools.inspection.pass_report import rule_table, timing_table

    if told.is_timed:
        say(timing_table(work.manager.runs) + rule_table(work.hits), nl=False)
    for row in map(str, work.remarks):
        if re.search(told.remarked or "", row):
            say(row)


def _print_between(manager: Manager, changed: str | None, printed_after: tuple[str, ...]) -> None:
    """Have modules printed while passes run, on stderr."""
    from hlo.tools.inspection.pass_report import print_after, watch_changes

    if changed:
        watch_changes(manager, lambda s: say(s, nl=False), diff=changed == "diff")
    if printed_after:
        print_after(manager, _pass_names(printed_after), lambda s: say(s, nl=False))


def _pass_names(given: tuple[str, ...]) -> frozenset[str]:
    """The passes' own names; a usage error for one that is none."""
    from hlo.passes.pipeline import canonical_name

    found = {name: canonical_name(name) for name in given}
    for name, known in found.items():
        if known is None:
            raise click.UsageError(f"--print-after: {name} is no pass; --list-passes shows all")
    return frozenset(name for name in found.values() if name is not None)


def _wanted(emit: str, kernel: str | None, *, remarks: bool, timed: bool) -> Wanted:
    if kernel is not None and emit not in ("asm", "loops"):
        raise click.UsageError("--kernel goes with --emit=asm or --emit=loops")
    return Wanted(emit, kernel, remarks=remarks, timed=timed and emit == "asm")


def _pipeline_text(path: str) -> str:
    """A pipeline file: steps separated by commas or line ends, `#` starts a comment."""
    lines = [line.partition("#")[0].strip() for line in read_text(path).splitlines()]
    return ",".join(line.rstrip(",") for line in lines if line)


def _verified(module: Module, *, looked_at: bool) -> int:
    """The exit code. looked_at: an invalid module is shown all the same; it is never kept."""
    from hlo import driver

    try:
        driver.verify(module)
    except HloError as error:
        if not looked_at:
            raise
        say(str(error))
        return 1
    return 0


def _emitted(
    module: Module,
    passes: str | None,
    wanted: Wanted,
    options: PrintOptions,
    code_for: CodeFor,
    work: _Work,
) -> str:
    from hlo import driver

    emit, manager, dump = wanted.emit, work.manager, work.dump
    text = None  # of a module, before its code is looked at for a dump
    if emit == "hlo" and passes is None:
        text = driver.to_text(module, options)
    chosen = passes if passes is not None else "default"
    if emit in ("hlo", "optimized"):
        module, chosen = driver.optimize(module, chosen, manager), ""
        text = text or driver.to_text(module, options)
        if dump is None:
            return text
    from hlo.backend.compilation import Compilation
    from hlo.backend.stages.printing import stage_text, stage_texts

    mode, machine = code_for
    made = Compilation(module, passes=chosen, mode=mode, machine=machine, manager=manager)
    if dump:
        for name, content in stage_texts(made):
            dump.write(name, content)
    if text is not None:
        return text
    text = stage_text(made, emit, wanted.kernel, remarks=wanted.remarks)
    if wanted.timed:
        from hlo.backend.profiling.code_times import code_times  # for the flag alone

        say(code_times(made), nl=False)
    return text if text.endswith("\n") else text + "\n"
