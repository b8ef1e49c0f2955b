"""Called functions: parts of kernels that are functions of their own, compiled once for all.

LLVM's time grows faster than the length of a function, so that what is long, or the same in many
kernels, is called.
"""

from __future__ import annotations

from collections.abc import Iterable

from hlo.backend.ir.definitions import symbol
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer


def as_function(
    w: Writer,
    parameters: Iterable[Value],
    value: Value | None = None,
    *,
    has_entry: bool = True,
    is_glue: bool = False,
    is_library: bool = False,
) -> Kernel:
    """The function of which this is the body, and which gives back the value."""
    w.ret(value)
    result = "void" if value is None else value.type
    function = w.function(parameters, result=result, has_entry=has_entry)
    return Kernel(function, 0, *w.beside, is_glue=is_glue, is_library=is_library)


def call(w: Writer, function: Kernel, *arguments: Value, type: str = "void") -> Value:
    """A call of it."""
    return w.call_declared(symbol(function), *arguments, type=type)
