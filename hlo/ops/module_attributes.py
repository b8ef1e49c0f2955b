"""Attributes of the module's header, in the order in which XLA prints them (docs/text.md 8.2)."""

from __future__ import annotations

from collections.abc import Mapping

from hlo.attributes.scalars import BOOL, BOOLS, INT64
from hlo.ops.attributes import Attr

MODULE_ATTRS: Mapping[str, Attr] = {
    "is_scheduled": Attr(BOOL, False),
    "input_output_alias": Attr("INPUT_OUTPUT_ALIAS", ()),
    "buffer_donor": Attr("BUFFER_DONOR", ()),
    "alias_passthrough_params": Attr(BOOL, False),
    "entry_computation_layout": Attr("ENTRY_LAYOUT", None, "always"),
    "allow_spmd_sharding_propagation_to_parameters": Attr(BOOLS, (False,)),
    "allow_spmd_sharding_propagation_to_output": Attr(BOOLS, (False,)),
    "replica_count": Attr(INT64, 1),
    "num_partitions": Attr(INT64, 1),
    "frontend_attributes": Attr("FRONTEND_ATTRIBUTES", ()),
    "origin_recovery_table": Attr("ORIGIN_RECOVERY_TABLE", ()),
    "debug_attributes": Attr("DEBUG_ATTRIBUTES", ()),
}
