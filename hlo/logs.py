"""Logs: what this package says by Python's logging, which is imported when it is first needed.

    log = Log(__name__)
    log.warning("%s is not used", name)

A start of a small program is shorter by that import. Where no program imported logging, none can
have asked for messages below warnings, and these are left out.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from hlo.forking import stand_first
from hlo.once import once

if TYPE_CHECKING:
    from logging import Logger


class Log:
    """The messages of one module, under its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def debug(self, message: str, *values: object) -> None:
        """What happens in a run as expected."""
        if "logging" in sys.modules:
            _logger(self.name).debug(message, *values)

    def warning(self, message: str, *values: object) -> None:
        """What somebody should look at."""
        _logger(self.name).warning(message, *values)


@once
def _logger(name: str) -> Logger:
    import logging

    stand_first()  # logging takes locks before a fork
    return logging.getLogger(name)
