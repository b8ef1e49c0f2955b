"""Attributes that every instruction may carry, in the order in which XLA prints them.

An opcode's own attributes (its row) come first, the called computations after them, then these.
"""

from __future__ import annotations

from collections.abc import Mapping

from hlo.attributes.names import INSTRUCTIONS
from hlo.attributes.scalars import BOOLS
from hlo.ops.attributes import Attr

# parameter_replication belongs to parameter alone and is printed before all others; result_accuracy
# to the rows that have it.
INSTRUCTION_ATTRS: Mapping[str, Attr] = {
    "parameter_replication": Attr(BOOLS, None),
    "sharding": Attr("SHARDING", None),
    "frontend_attributes": Attr("FRONTEND_ATTRIBUTES", ()),
    "control-predecessors": Attr(INSTRUCTIONS, ()),
    "statistics": Attr("STATISTICS", None),
    "result_accuracy": Attr("RESULT_ACCURACY", None),
    "origin": Attr("ORIGIN", None),
    "metadata": Attr("METADATA", None),
    "backend_config": Attr("BACKEND_CONFIG", ""),
}
