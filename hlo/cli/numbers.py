"""Types of numeric options: what no command can mean is a usage error."""

from __future__ import annotations

import math
from typing import Any

import click


class Count(click.IntRange):
    """An integer, of at least so much and perhaps at most so much."""

    name = "integer"

    def __init__(self, least: int, most: int | None = None) -> None:
        super().__init__(least, most)

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        most = "or more" if self.max is None else f"to {self.max}"
        try:
            number = int(value)  # type: ignore[call-overload]  # a text, or the default
        except ValueError:
            self.fail(f"{value!r}, expected an integer: {self.min} {most}", param, ctx)
        if number < self.min or (self.max is not None and number > self.max):
            self.fail(f"{number}, expected {self.min} {most}", param, ctx)
        return int(number)


class Numbers(click.types.StringParamType):
    """Numbers of a range, separated by commas, as 1,2,4; each once."""

    name = "integers"

    def __init__(self, each: Count) -> None:
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
        try:
            number = float(value)  # type: ignore[arg-type]  # a text, or the default
        except ValueError:
            number = math.nan
        least = number >= 0.0 and not (self.min_open and number == 0.0)
        if not least or (self.max is not None and number > self.max):
            most = "" if self.max is None else f", at most {self.max:g}"
            wanted = "more than 0" if self.min_open else "0 or more"
            self.fail(f"{value!r}, expected a number: {wanted}{most}", param, ctx)
        return number


SEED = Count(0)
THREADS = Count(1, 1024)
INDENT = Count(0, 1000)
INTERVAL = Count(0)
THREAD_COUNTS = Numbers(THREADS)
TOLERANCE = Amount()
SECONDS = Amount(86_400.0)
TIMEOUT = Amount(86_400.0, above_zero=True)
RATE = Amount(above_zero=True)
