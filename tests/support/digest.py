"""A digest of everything that the back end makes, for changes that must not change it.

    python -m tests.support.digest FILE               writes it (about ten minutes)
    python -m tests.support.digest FILE --against OLD writes it and lists what differs, exit 1
    python -m tests.support.digest --show NAME        the texts behind one module's lines

For every program of `program_texts` (those in tests/digest are there to reach each branch of the
kernels' loops): the optimised HLO; for each named machine every kernel before it is cut (its text
and all fields), the buffers, the program for 1 and 8 threads and its modules; the bits of the
results on this machine. A line is a module, what, a hash. Runs under two seeds of Python's hashes,
which must not matter.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import hlo
from hlo.backend.compilation import Compilation
from hlo.backend.entry.llvm_ir import emit
from hlo.backend.planning.implementations import HostCall
from hlo.backend.planning.steps import program_of
from hlo.errors import HloError
from hlo.ir.module import Module
from hlo.machine import NAMED, Machine
from hlo.runtime.native_calls import flattened
from hlo.tools.cases.inputs import made_up_inputs
from tests.support import program_texts

SEEDS = ("0", "1")
RUN_BYTES = 50_000_000  # of arrays, of modules that are run
RUN_S = 20.0
GRAPHS = 40  # generated programs

MACHINES = {
    name: NAMED[name]
    for name in (
        "sapphirerapids", "znver4", "x86-64-v4", "x86-64-v3", "x86-64-v2", "neoverse-n1", "generic"
    )
}  # fmt: skip


def programs() -> Iterator[tuple[str, str]]:
    """The corpus."""
    yield from program_texts.written()
    yield from program_texts.shared()
    yield from program_texts.generated(range(GRAPHS))


def texts(module: Module, passes: str = "default") -> Iterator[tuple[str, str]]:
    """Everything made from a module: a name, a text."""
    optimised = hlo.optimize(module, passes)
    yield "optimised", str(optimised)
    for name, machine in MACHINES.items():
        yield from _texts_for(optimised, name, machine)
    yield "result", _result(module, passes)


def _texts_for(module: Module, name: str, machine: Machine) -> Iterator[tuple[str, str]]:
    try:
        made = Compilation(module, passes="", threads=1, machine=machine)
        programs = {1: made.program, 8: program_of(made.buffers, 8, machine)}
    except HloError as error:
        yield f"{name} error", f"{error.code}: {error.message}"
        return
    for instruction, implementation in made.implementations.items():
        known = "host" if isinstance(implementation, HostCall) else repr(implementation)
        assert instruction.computation is not None, "an instruction in a computation"
        yield f"{name} {instruction.computation.name} {instruction.name}", known
    yield f"{name} buffers", str(made.buffers)
    for threads, program in programs.items():
        yield (
            f"{name} program {threads}",
            f"{program}\n{program!r}" if threads == 1 else str(program),
        )
        yield f"{name} llvm {threads}", "\n".join(m.text for m in emit(program))


def _result(module: Module, passes: str) -> str:
    """The result's bits as text; or why there is none."""
    sizes = sum(i.shape.size_bytes for c in module.computations for i in c.instructions)
    if sizes > RUN_BYTES:
        return "large"
    try:
        filled = hlo.fill_elided(module)
        executable = hlo.compile(filled, passes=passes, cache=False, threads=2)
        arguments = made_up_inputs(filled, "normal", 0)
        result = executable(*arguments, timeout=RUN_S)
    except HloError as error:
        return error.code
    arrays = (a for a in flattened(result) if a is not None)
    return "\n".join(f"{a.dtype}{a.shape} {_hash(a.tobytes())}" for a in arrays)


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def lines() -> Iterator[str]:
    """The digest's lines, one module after the other."""
    for name, module in program_texts.verified(programs()):
        for what, text in texts(module, program_texts.passes_of(name)):
            yield f"{name}\t{what}\t{_hash(text.encode(errors='surrogateescape'))}"


def _both_seeds() -> tuple[list[str], list[str]]:
    """The lines under both seeds of Python's hashes, made side by side."""

    def made(seed: str) -> list[str]:
        child = [sys.executable, "-m", "tests.support.digest", "--print"]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(child, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"the digest failed under the seed {seed}:\n{done.stderr}")
        return done.stdout.splitlines()

    with ThreadPoolExecutor(len(SEEDS)) as pool:
        first, second = pool.map(made, SEEDS)
    return first, second


def differing(one: list[str], other: list[str]) -> list[str]:
    """Names of what differs, or is only in one."""
    first, second = (dict(line.rsplit("\t", 1) for line in lines) for lines in (one, other))
    return [name for name in {**first, **second} if first.get(name) != second.get(name)]


def _told(what: str, names: list[str], most: int = 40) -> None:
    sys.stdout.write("\n  ".join((f"{len(names)} {what}", *names[:most])) + "\n")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--show", metavar="NAME")
    parser.add_argument("--print", action="store_true")
    options = parser.parse_args()
    if options.show:
        for name, module in program_texts.verified(programs()):
            if name == options.show:
                for what, text in texts(module, program_texts.passes_of(name)):
                    sys.stdout.write(f"==== {what}\n{text}\n")
        return
    if options.print:
        for line in lines():
            sys.stdout.write(f"{line}\n")
        return
    first, second = _both_seeds()
    unstable = differing(first, second)
    options.file.write_text("\n".join(first) + "\n")
    _told("lines depend on the seed of Python's hashes", unstable)
    old = options.against.read_text().splitlines() if options.against else first
    changed = differing(old, first)
    _told(f"of {len(first)} lines differ", changed)
    sys.exit(1 if unstable or changed else 0)


if __name__ == "__main__":
    main()
