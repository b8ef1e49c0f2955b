"""The modules of this package for the op table's rows, imported when a value is first computed.

Most programs are compiled and run without: the reference and constant folding compute values.
"""

from __future__ import annotations

from types import ModuleType

from hlo.process.lazy_functions import LazyModule


def _complexes() -> ModuleType:
    from hlo.ops.numerics import complexes

    return complexes


def _integers() -> ModuleType:
    from hlo.ops.numerics import integers

    return integers


def _reals() -> ModuleType:
    from hlo.ops.numerics import reals

    return reals


def _representation() -> ModuleType:
    from hlo.ops.numerics import representation

    return representation


complexes = LazyModule(_complexes)
integers = LazyModule(_integers)
reals = LazyModule(_reals)
representation = LazyModule(_representation)
