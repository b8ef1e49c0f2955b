"""Loop listing: the loops of a contraction's kernels, for who prints them.

A kernel and its loops are made of one plan, the loops only where somebody looks at them
(`--emit=loops`): what makes them is imported then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo.backend.kernels.contraction.packing.form import Packing
from hlo.backend.kernels.contraction.problem.axes import Axes, Contraction
from hlo.backend.kernels.contraction.problem.result import Epilogue
from hlo.backend.kernels.contraction.problem.ring import Ring
from hlo.backend.kernels.contraction.products.plan import ProductPlan
from hlo.backend.loops.schedule import LoopSchedule

if TYPE_CHECKING:  # of some contractions alone
    from hlo.backend.kernels.contraction.matrix_units.amx import TilePlan
    from hlo.backend.kernels.contraction.matrix_units.product import AmxProduct
    from hlo.backend.kernels.contraction.vectors.axpys import Axpys
    from hlo.backend.kernels.contraction.vectors.gemv import Dots
    from hlo.backend.kernels.contraction.vectors.word_stream import WordStream


def product(plan: ProductPlan, epilogue: Epilogue | None) -> LoopSchedule:
    """Those of products/product.py."""
    from hlo.backend.kernels.contraction.products.nest import product_schedule

    return product_schedule(plan, epilogue)


def parts(c: Contraction, ring: Ring, count: int, epilogue: Epilogue | None) -> LoopSchedule:
    """Those of products/split_k.py's sum."""
    from hlo.backend.kernels.contraction.products.parts_nest import parts_schedule

    return parts_schedule(c, ring, count, epilogue)


def packing(form: Packing, batch: Axes, side: str, read_from: str) -> LoopSchedule:
    """Those of packing/panels.py."""
    from hlo.backend.kernels.contraction.packing.nest import packing_schedule

    return packing_schedule(form, batch, side, read_from)


def vectors(stream: Dots | Axpys) -> LoopSchedule:
    """Those of vectors/gemv.py."""
    from hlo.backend.kernels.contraction.vectors.nest import vector_schedule

    return vector_schedule(stream)


def word_stream(stream: WordStream) -> LoopSchedule:
    """Those of vectors/word_stream.py."""
    from hlo.backend.kernels.contraction.vectors.word_nest import word_stream_schedule

    return word_stream_schedule(stream)


def tiles(made: AmxProduct) -> LoopSchedule:
    """Those of matrix_units/product.py."""
    from hlo.backend.kernels.contraction.matrix_units.nest import tile_schedule

    return tile_schedule(made)


def tile_packing(plan: TilePlan) -> LoopSchedule:
    """Those of matrix_units/packing.py."""
    from hlo.backend.kernels.contraction.matrix_units.nest import tile_packing_schedule

    return tile_packing_schedule(plan)
