"""hlo: a toolchain for the textual HLO language of XLA.

The public names are loaded at first use, so that `hlo-opt --version` and `import hlo` cost no
grammar, no NumPy and no LLVM (PEP 562).
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from hlo.process.forking import (
    GATE,  # its handlers stand before any thread imports more of this package
)
from hlo.process.garbage import uncollected

if TYPE_CHECKING:  # what checkers see of the names that __getattr__ serves
    from hlo.driver import (
        compile as compile,
    )
    from hlo.driver import (
        compile_ahead as compile_ahead,
    )
    from hlo.driver import (
        evaluate as evaluate,
    )
    from hlo.driver import (
        evaluate_devices as evaluate_devices,
    )
    from hlo.driver import (
        lint as lint,
    )
    from hlo.driver import (
        memory as memory,
    )
    from hlo.driver import (
        optimize as optimize,
    )
    from hlo.driver import (
        parse as parse,
    )
    from hlo.driver import (
        profile as profile,
    )
    from hlo.driver import (
        read as read,
    )
    from hlo.driver import (
        verify as verify,
    )
    from hlo.driver import (
        write as write,
    )
    from hlo.errors import HloError as HloError
    from hlo.errors import HloErrors as HloErrors
    from hlo.formats.jax_program import from_jax as from_jax
    from hlo.frontend.jit import jit as jit
    from hlo.interpreter.device import HostChannel as HostChannel
    from hlo.ir.graph import clone_module as clone_module
    from hlo.ir.literal import Literal as Literal
    from hlo.ir.shape import Shape as Shape
    from hlo.ops.builder import Builder as Builder
    from hlo.ops.custom_call import register_custom_call as register_custom_call
    from hlo.parser.parse import parse_shape as parse_shape
    from hlo.printer.options import PrintOptions as PrintOptions
    from hlo.printer.printer import print_module as print_module
    from hlo.runtime.dlpack import to_dlpack as to_dlpack
    from hlo.runtime.dynamic import Dynamic as Dynamic
    from hlo.runtime.ffi import register_ffi as register_ffi
    from hlo.tools.cases.binding import bind as bind
    from hlo.tools.cases.fill import fill_elided as fill_elided
    from hlo.tools.comparing import compare as compare
    from hlo.tools.comparing import nans as nans
    from hlo.tools.comparison.diff import diff as diff
    from hlo.tools.inspection.cost import cost as cost
    from hlo.tools.inspection.query import query as query
    from hlo.tools.inspection.stats import stats as stats

__version__ = "0.1.0"

_PUBLIC = {
    "Builder": "hlo.ops.builder",
    "Dynamic": "hlo.runtime.dynamic",
    "HloError": "hlo.errors",
    "HloErrors": "hlo.errors",
    "HostChannel": "hlo.interpreter.device",
    "Literal": "hlo.ir.literal",
    "PrintOptions": "hlo.printer.options",
    "Shape": "hlo.ir.shape",
    "bind": "hlo.tools.cases.binding",
    "clone_module": "hlo.ir.graph",
    "compile": "hlo.driver",
    "compile_ahead": "hlo.driver",
    "cost": "hlo.tools.inspection.cost",
    "diff": "hlo.tools.comparison.diff",
    "evaluate": "hlo.driver",
    "evaluate_devices": "hlo.driver",
    "fill_elided": "hlo.tools.cases.fill",
    "from_jax": "hlo.formats.jax_program",
    "jit": "hlo.frontend.jit",
    "lint": "hlo.driver",
    "memory": "hlo.driver",
    "compare": "hlo.tools.comparing",
    "nans": "hlo.tools.comparing",
    "optimize": "hlo.driver",
    "parse": "hlo.driver",
    "parse_shape": "hlo.parser.parse",
    "print_module": "hlo.printer.printer",
    "profile": "hlo.driver",
    "query": "hlo.tools.inspection.query",
    "read": "hlo.driver",
    "register_ffi": "hlo.runtime.ffi",
    "register_custom_call": "hlo.ops.custom_call",
    "stats": "hlo.tools.inspection.stats",
    "to_dlpack": "hlo.runtime.dlpack",
    "verify": "hlo.driver",
    "write": "hlo.driver",
}

__all__ = sorted(_PUBLIC)  # names served by __getattr__ below


# Homes of names that need no arrays.
_LIGHT = frozenset({"hlo.errors", "hlo.printer.options"})


def __getattr__(name: str) -> Any:
    if name == "driver":  # `from hlo import driver` asks here first
        return _imported("hlo.driver")
    home = _PUBLIC.get(name)
    if home is None:
        raise AttributeError(f"module 'hlo' has no attribute {name!r}")
    GATE.check()
    value = getattr(_imported(home), name)
    globals()[name] = value
    return value


def _imported(home: str) -> ModuleType:
    """A module, imported while Python's cycle collector rests: all that modules define is alive,
    and walking through it took as long as a small program's passes. NumPy comes before: its own
    import leaves garbage, whose memory is used again.
    """
    if home not in _LIGHT:
        import_module("numpy")
    with uncollected():
        return import_module(home)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
