"""Units of a product: which part of the result each is, and which one a thread comes to next.

unit --unit_numbers--> batch, block of rows, block of columns
unit --unit_after--> unit
"""

from __future__ import annotations

from hlo.backend.ir.arithmetic import add, split_index
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.products.plan import ProductPlan


def unit_numbers(w: Writer, plan: ProductPlan, unit: Value) -> tuple[Value, Value, Value]:
    """Batch, row block and column block; the factor that is packed once is the outer one's."""
    c, outer = plan.contraction, 1 << 40
    if not plan.group:
        b, row, column = split_index(w, unit, (outer, plan.row_blocks, plan.column_blocks))
    elif any(a.rhs for a in c.batch):
        b, column, row = split_index(w, unit, (outer, plan.column_blocks, plan.row_blocks))
    else:
        column, b, row = split_index(w, unit, (outer, c.batches, plan.row_blocks))
    return b, row, column


def unit_after(w: Writer, plan: ProductPlan, unit: Value) -> Value:
    """The unit that a thread most likely comes to next. Threads claim chunks of units at both ends
    (entry/pool_ir.py): the next one of who is in the upper half lies before.
    """
    following = add(w, unit, w.int(1))
    before = w.binary("sub", BEGIN, w.binary("sub", END, BEGIN))
    before = w.intrinsic("llvm.smax", "i64", before, w.int(0))
    is_last = w.compare("icmp eq", following, END)
    is_upper = w.compare("icmp ugt", END, w.int(plan.units // 2))
    return w.select(w.binary("and", is_last, is_upper), before, following)
