"""Static arguments: which of a jitted function's arguments are values of its program."""

from __future__ import annotations

import inspect
from collections.abc import Hashable
from typing import Any

from msgspec import Struct

from hlo.errors import HloError


class Statics(Struct, frozen=True):
    """Which arguments of a function are static.

    numbers: positions; names: keywords. Both, as jax.jit completes them from the signature.
    """

    numbers: tuple[int, ...]
    names: tuple[str, ...]
    count: int | None  # of positional parameters, where negative numbers count from the end

    def parted(
        self, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> tuple[Hashable, tuple[Any, Any]]:
        """The static values as a key, and the other arguments. HloError where one has no hash."""
        count = len(arguments)
        numbers = {n if n >= 0 else n + (self.count or count) for n in self.numbers}
        fixed = tuple((n, arguments[n]) for n in sorted(numbers) if n < count)
        named = tuple((k, keywords[k]) for k in sorted(keywords) if k in self.names)
        key = (tuple((n, type(v), v) for n, v in fixed), tuple((k, type(v), v) for k, v in named))
        try:
            hash(key)
        except TypeError as error:
            raise HloError("arguments", f"jit: a static argument has no hash: {error}") from None
        rest = tuple(v for n, v in enumerate(arguments) if n not in numbers)
        return key, (rest, {k: v for k, v in keywords.items() if k not in self.names})


def statics_of(jitted: Any) -> Statics | None:
    """The static arguments of a function that jax.jit gave; None where there are none."""
    said = getattr(jitted, "_jit_info", None)
    if said is None:
        raise HloError(
            "unsupported", f"jit: a {type(jitted).__name__}, expected jax.jit's function"
        )
    if not said.static_argnums and not said.static_argnames:
        return None
    try:
        count = len(inspect.signature(jitted).parameters)
    except (TypeError, ValueError):
        count = None
    return Statics(tuple(said.static_argnums), tuple(said.static_argnames), count)
