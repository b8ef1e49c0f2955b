"""Machines that a test can run code of: those whose every instruction this one has."""

from __future__ import annotations

from hlo.driver import host_machine
from hlo.machine import NAMED


def runs_here(name: str) -> bool:
    """Whether code for a named machine runs on this one."""
    return NAMED[name].features <= host_machine().features
