"""PaddedExecutable: native code for a program whose sizes change at run time.

    arguments --filled to their bounds, and their sizes--> static code --cut to sizes--> results

Sizes that the program does not allow are the reference's to judge.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

import numpy as np

from hlo.interpreter.evaluate import evaluate
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.extents import filled_to
from hlo.passes.padding.boundary import Padded
from hlo.runtime.arguments import checked_arguments
from hlo.runtime.executable import (
    Binder,
    Executable,
    Program,
    Weights,
    checked_numbers,
    no_binder,
)
from hlo.runtime.native_calls import flattened


class PaddedExecutable:
    """Called like an Executable."""

    def __init__(self, module: Module, padded: Padded, static: Executable) -> None:
        self._module = module
        self._parameters = module.entry.parameters
        self._padded = padded
        self._static = static
        self.binder: Binder = no_binder

    @property
    def temporary_bytes(self) -> int:
        return self._static.temporary_bytes

    def __call__(
        self, *arguments: object, donate: Collection[int] = (), timeout: float | None = None
    ) -> object:
        checked_numbers(donate, len(self._parameters))  # nothing is ever in place
        return self._called(arguments, partial(self._static, timeout=timeout), timeout)

    def run_guarded(self, *arguments: object) -> object:
        """As `Executable.run_guarded`, on arguments filled to their bounds."""
        return self._called(arguments, self._static.run_guarded, None)

    def _called(
        self, arguments: Sequence[object], static: Callable[..., object], timeout: float | None
    ) -> object:
        given = list(checked_arguments(self._parameters, arguments))
        sizes = [
            np.array(_leaf(given[number], leaf).shape[d], np.int32)
            for number, leaf, d in self._padded.given
        ]
        for number in dict.fromkeys(number for number, _, _ in self._padded.given):
            given[number] = _filled(given[number], self._parameters[number].shape)
        result = static(*given, *sizes)
        assert isinstance(result, tuple), "leaves, sizes and the flag"
        if not result[-1]:
            return evaluate(self._module, *arguments, timeout=timeout)
        return self._cut(result)

    def bind(self, weights: Weights) -> Program:
        """The same program with some parameters bound to arrays, as `Executable.bind` says."""
        return self.binder(weights)

    def _cut(self, result: tuple[np.ndarray, ...]) -> object:
        count = self._padded.leaves
        leaves = list(result[:count])
        for (leaf, dimension), size in zip(self._padded.found, result[count:-1], strict=True):
            whole = (np.s_[:],) * dimension
            leaves[leaf] = leaves[leaf][(*whole, np.s_[: max(0, int(size))])]
        leaves = [np.ascontiguousarray(x) if x.ndim else x for x in leaves]
        return _value(iter(leaves), self._module.entry.root.shape)

    def run_devices(
        self, arguments: Sequence[Sequence[object]], *, timeout: float | None = None
    ) -> list[object]:
        return [self(*given, timeout=timeout) for given in arguments]

    def memory_report(self) -> str:
        return self._static.memory_report()


def _value(leaves: Iterator[np.ndarray], shape: Shape) -> object:
    """The next leaves in the structure of a shape."""
    if shape.is_tuple:
        return tuple(_value(leaves, element) for element in shape.elements)
    return next(leaves)


def _leaf(value: object, number: int) -> np.ndarray:
    """One of a value's leaves, an array."""
    found = list(flattened(value))[number]
    assert found is not None, "an array has dimensions"
    return found


def _filled(value: object, shape: Shape) -> object:
    """A value with arrays of their bounds."""
    if isinstance(value, tuple):
        return tuple(_filled(v, s) for v, s in zip(value, shape.elements, strict=True))
    return filled_to(value, shape.dims) if isinstance(value, np.ndarray) else value
