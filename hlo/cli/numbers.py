"""Types of numeric options: what no command can mean is a usage error."""

from __future__ import annotations

import math
from typing import Any

import click

SEED = click.IntRange(0)
THREADS = click.IntRange(1, 1024)
INDENT = click.IntRange(0, 1000)
INTERVAL = click.IntRange(0)


class Numbers(click.types.StringParamType):
    """Numbers of a range, separated by commas, as 1,2,4; each once."""

    name = "integers"

    def __init__(self, each: click.IntRange) -> None:
        self._each = each

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A tuple of int."""
        if isinstance(value, tuple):
            return value
        words: list[Any] = str(value).split(",")
        return tuple(dict.fromkeys(self._each.convert(w, param, ctx) for w in words))


class Amount(click.FloatRange):
    """A float that is not negative and not NaN. above_zero: nor zero."""

    name = "amount"

    def __init__(self, most: float | None = None, *, above_zero: bool = False) -> None:
        super().__init__(0.0, most, min_open=above_zero)

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))  # type: ignore[arg-type]  # a text
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


THREAD_COUNTS = Numbers(THREADS)
TOLERANCE = Amount()
SECONDS = Amount(86_400.0)
TIMEOUT = Amount(86_400.0, above_zero=True)
RATE = Amount(above_zero=True)
