"""A program for several numbers of threads: what they do not decide is made once.

    module, threads --for_threads--> an executable, as `hlo.compile` makes it without its cache

Passes, the order of instructions and, but for one thread alone, kernels and buffers are the same;
only `program` asks how many there are. Tests of bits for any number of threads compile each
program three or four times, which is most of what they take.
"""

from __future__ import annotations

from hlo import driver
from hlo.backend.compilation import Compilation
from hlo.given_machines import machine_of
from hlo.ir.module import Module
from hlo.machine import Machine
from hlo.runtime.executable import Executable

OF_ANY = ("optimised", "static", "schedule")
OF_SEVERAL = ("implementations", "buffers")
_last: list[tuple[Module, tuple[object, ...], list[Compilation]]] = []  # one at most


def for_threads(
    module: Module, passes: str = "default", *, threads: int, machine: Machine | str | None = None
) -> Executable:
    """Of a module that nobody changes between two calls."""
    made_for = None if machine is None else machine_of(machine)
    options = (passes, made_for)
    if not _last or _last[0][0] is not module or _last[0][1] != options:
        driver.verify(module)
        _last[:] = [(module, options, [])]
    before = _last[0][2]
    made = Compilation(module, passes=passes, threads=threads, machine=made_for, cache=False)
    for other in before:
        shared = (*OF_ANY, *OF_SEVERAL) if min(made.threads, other.threads) > 1 else OF_ANY
        vars(made).update({k: v for k, v in vars(other).items() if k in shared})
    executable = made.executable
    driver.verify(made.optimised)
    before.append(made)
    return executable
