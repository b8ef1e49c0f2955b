"""Machines whose code this processor runs: the others' code can be made here, but not called."""

from __future__ import annotations

from hlo.driver import host_machine
from hlo.machine import Machine, named


def runs_here(machine: Machine) -> bool:
    """Whether this processor has what code for a machine may use."""
    host = host_machine()
    return machine.architecture == host.architecture and machine.features <= host.features


def that_run_here(*names: str) -> list[str]:
    """Those of the machines that have these names."""
    return [name for name in names if runs_here(named(name))]
