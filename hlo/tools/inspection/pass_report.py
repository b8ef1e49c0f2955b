"""What passes did: --print-changed, its diff form, and the table of --time-passes."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable

from hlo.ir.module import Module
from hlo.passes.manager import Manager, PassRun
from hlo.passes.pipeline import Step
from hlo.printer.options import PrintOptions
from hlo.printer.printer import print_module


def watch_changes(manager: Manager, write: Callable[[str], None], *, diff: bool) -> None:
    """Print the module, or what changed in it, after each pass that changed it."""
    last = {"text": ""}

    def before(module: Module, step: Step) -> None:
        del step
        last["text"] = last["text"] or print_module(module, PrintOptions())

    def after(module: Module, run: PassRun) -> None:
        if not run.changed:
            return
        text = print_module(module, PrintOptions())
        write(f"; after {run.step}\n")
        write(_diff(last["text"], text) if diff else text)
        last["text"] = text

    manager.before.append(before)
    manager.after.append(after)


def _diff(before: str, after: str) -> str:
    rows = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), "before", "after", n=1
    )
    return "".join(rows)


def print_after(manager: Manager, names: frozenset[str], write: Callable[[str], None]) -> None:
    """Print the module after each run of the passes of these names, changed or not."""

    def after(module: Module, run: PassRun) -> None:
        if run.step.name in names:
            write(f"; after {run.step}\n")
            write(print_module(module, PrintOptions()))

    manager.after.append(after)


def rule_table(hits: Counter[str]) -> str:
    """How often each rewrite rule fired, the most frequent first; "" where none did."""
    if not hits:
        return ""
    ranked = sorted(hits.items(), key=lambda item: (-item[1], item[0]))
    rows = [f"{f'{hits.total():,} rewrites by {len(hits)} rules':<34}{'times':>6}"]
    return "\n".join([*rows, *(f"  {name:<32}{count:>6,}" for name, count in ranked)]) + "\n"


def timing_table(runs: list[PassRun]) -> str:
    """Passes by total time: runs, runs that changed something, instructions before and after."""
    names = list(dict.fromkeys(run.step.name for run in runs))
    total = sum(run.seconds for run in runs) or 1e-9
    rows = [f"{'pass':<34}{'runs':>5}{'changed':>9}{'instructions':>20}{'time':>11}{'share':>8}"]
    for name in sorted(names, key=lambda n: -_seconds(runs, n)):
        own = [run for run in runs if run.step.name == name]
        change = f"{own[0].instructions_before:,} -> {own[-1].instructions_after:,}"
        seconds = _seconds(runs, name)
        rows.append(
            f"{name:<34}{len(own):>5}{sum(r.changed for r in own):>9}{change:>20}"
            f"{seconds * 1e3:>8.1f} ms{seconds / total:>7.0%}"
        )
    rows.append(f"{'total':<34}{len(runs):>5}{'':>29}{total * 1e3:>8.1f} ms")
    return "\n".join(rows) + "\n"


def _seconds(runs: list[PassRun], name: str) -> float:
    return sum(run.seconds for run in runs if run.step.name == name)
