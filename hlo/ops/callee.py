"""Callee: a called computation as `evaluate` receives it: to_apply, body, condition, calls, ..."""

from __future__ import annotations

from typing import Protocol

from hlo.ir.computation import Computation
from hlo.ir.shape import ProgramShape


class Callee(Protocol):
    """Calls a computation with values: arrays (rank 0 ones too), tuples of values,
    None for a token.
    """

    @property
    def name(self) -> str: ...

    @property
    def computation(self) -> Computation:
        """What is called, so that an op can recognise common forms (a lone add, a plain LT)."""

    @property
    def program_shape(self) -> ProgramShape: ...

    @property
    def is_elementwise(self) -> bool:
        """Whether a scalar computation may be called with arrays of one shape, to act on each
        element.

        Its constants and iotas broadcast; the result of a constant-only computation may stay a
        scalar.
        """

    def __call__(self, *values: object) -> object: ...
