"""hlo: a toolchain for the textual HLO language of XLA.

The public names are loaded at first use, so that `hlo-opt --version` and `import hlo` cost no
grammar, no NumPy and no LLVM (PEP 562).
"""

from importlib import import_module
from typing import Any

from hlo.forking import GATE  # its handlers stand before any thread imports more of this package

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
    "compile": "hlo.driver",
    "compile_ahead": "hlo.driver",
    "cost": "hlo.tools.cost",
    "diff": "hlo.tools.diff",
    "evaluate": "hlo.driver",
    "evaluate_devices": "hlo.driver",
    "fill_elided": "hlo.tools.fill",
    "from_jax": "hlo.formats.jax_program",
    "jit": "hlo.frontend.jit",
    "optimize": "hlo.driver",
    "parse": "hlo.driver",
    "parse_shape": "hlo.parser.parse",
    "print_module": "hlo.printer.printer",
    "read": "hlo.driver",
    "register_ffi": "hlo.runtime.ffi",
    "register_custom_call": "hlo.ops.custom_call",
    "stats": "hlo.tools.stats",
    "to_dlpack": "hlo.runtime.dlpack",
    "verify": "hlo.driver",
    "write": "hlo.driver",
}

__all__ = sorted(_PUBLIC)  # names served by __getattr__ below


def __getattr__(name: str) -> Any:
    home = _PUBLIC.get(name)
    if home is None:
        raise AttributeError(f"module 'hlo' has no attribute {name!r}")
    GATE.check()
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
