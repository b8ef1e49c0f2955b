"""The attributes of the opcodes as fields of an instruction's message: one row each."""

from __future__ import annotations

import math

from hlo.attributes.aliasing import OperandAlias
from hlo.attributes.dim_labels import DimLabels, dim_labels_text
from hlo.attributes.domain import Domain
from hlo.attributes.enums import PRECISIONS
from hlo.attributes.ints import ints_text
from hlo.attributes.literal_text import typed_literal_text
from hlo.attributes.padding import PaddingDim, padding_text
from hlo.attributes.slices import SliceDim, slice_text
from hlo.attributes.sparsity import Sparsity, SparsityConfig, sparsity_config_text
from hlo.attributes.window import Window, WindowDim, window_text
from hlo.formats.field_rows import (
    Row,
    first,
    flag,
    ints,
    number,
    parts,
    plain,
    positive,
    quoted_string,
    some_ints,
    string,
    truth,
    word,
)
from hlo.formats.literal_message import literal_message, literal_of
from hlo.formats.message import Message
from hlo.formats.shape_message import shape_message, shape_text
from hlo.formats.sharding_message import groups_text, put_groups, sharding_message, sharding_text
from hlo.ir.literal import Literal
from hlo.ir.shape import Shape

# -- what has a form of its own ----------------------------------------------------------------


WINDOW = {
    "size": "size", "stride": "stride", "pad_low": "padding_low", "pad_high": "padding_high",
    "base_dilation": "base_dilation", "window_dilation": "window_dilation",
    "reversed": "window_reversal",
}  # fmt: skip
LABELS = {
    "lhs_batch": "input_batch_dimension", "lhs_feature": "input_feature_dimension",
    "rhs_input_feature": "kernel_input_feature_dimension",
    "rhs_output_feature": "kernel_output_feature_dimension",
    "out_batch": "output_batch_dimension", "out_feature": "output_feature_dimension",
}  # fmt: skip
SPATIAL = {
    "lhs_spatial": "input_spatial_dimensions", "rhs_spatial": "kernel_spatial_dimensions",
    "out_spatial": "output_spatial_dimensions",
}  # fmt: skip
SPARSE = {"n": "num_non_zero", "m": "block_size", "dimension": "dimension", "stride": "stride"}


def _window_parts() -> Row:
    rows = parts("window.dimensions", WindowDim, WINDOW, lambda dims: window_text(Window(dims)))

    def write(message: Message, value: object) -> None:
        if value is not None:
            assert isinstance(value, Window), "a window"
            message.put("window")
            rows.write(message, value.dims)

    return Row(rows.read, write)


def _read_labels(message: Message) -> str | None:
    if "convolution_dimension_numbers" not in message:
        return None
    held = message.child("convolution_dimension_numbers")
    single = {own: held.number(theirs) for own, theirs in LABELS.items()}
    lists = {own: tuple(held.numbers(theirs)) for own, theirs in SPATIAL.items()}
    every = [*single.values(), *(n for numbers in lists.values() for n in numbers)]
    if not all(0 <= n < 64 for n in every):
        return "dimensions-out-of-range"  # which the parser shows in its place
    return dim_labels_text(DimLabels(**single, **lists))  # type: ignore[arg-type]  # by its fields


def _write_labels(message: Message, value: object) -> None:
    if value is None:
        return
    held = message.put("convolution_dimension_numbers")
    for own, theirs in LABELS.items():
        held[theirs] = getattr(value, own)
    for own, theirs in SPATIAL.items():
        held[theirs] = list(getattr(value, own))


def _read_precision(message: Message) -> str | None:
    held = message.child("precision_config")
    kinds = held.numbers("operand_precision")
    if not any(kinds):
        return None
    words = [_precision(kind) for kind in kinds]
    return "{" + ",".join(words) + "}"


def _precision(kind: int) -> str:
    return PRECISIONS[kind] if 0 <= kind < len(PRECISIONS) else str(kind)


def _write_precision(message: Message, value: object) -> None:
    held = message.put("precision_config")
    words = value if isinstance(value, tuple) and value else ("default",) * _operands(message)
    if words:
        held["operand_precision"] = [PRECISIONS.index(w) for w in words]


def _operands(message: Message) -> int:
    """Of how many operands the precision is said: of a dot's scales it is not."""
    count = len(message.numbers("operand_ids"))
    return count if message.text("opcode") == "custom-call" else min(count, 2)


def _read_shapes(message: Message) -> str | None:
    if not message.flag("constrain_layout"):
        return None
    shapes = [shape_text(s) for s in message.children("operand_shapes_with_layout")]
    return "{" + ", ".join(shapes) + "}"


def _write_shapes(message: Message, value: object) -> None:
    if isinstance(value, tuple):
        message["constrain_layout"] = True
        message["operand_shapes_with_layout"] = [shape_message(s) for s in value]


# XLA's messages call the side that text calls exit the entry.
ENTRY, EXIT = "domain_exit_sharding", "domain_entry_sharding"


def _read_domain(message: Message) -> str | None:
    entry, exit_ = (sharding_text(message.child(side)) for side in (ENTRY, EXIT))
    return f'{{kind="sharding", entry={entry}, exit={exit_}}}'


def _write_domain(message: Message, value: object) -> None:
    assert isinstance(value, Domain), "a domain"
    message[ENTRY], message[EXIT] = sharding_message(value.entry), sharding_message(value.exit)


def _read_pairs(message: Message) -> str | None:
    rows = message.children("source_target_pairs")
    return "{" + ",".join(f"{{{r.number('source')},{r.number('target')}}}" for r in rows) + "}"


def _write_pairs(message: Message, value: object) -> None:
    for source, target in value:  # type: ignore[attr-defined]  # pairs of numbers
        message.add("source_target_pairs", source=source, target=target)


def _read_aliases(message: Message) -> str | None:
    rows = [
        f"{_index(r, 'output')}: ({r.number('operand_index')}, {_index(r, 'operand')})"
        for r in message.children("output_operand_aliasing")
    ]
    return "{" + ", ".join(rows) + "}" if rows else None


def _index(row: Message, side: str) -> str:
    return ints_text(tuple(row.numbers(f"{side}_shape_index")))


def _write_aliases(message: Message, value: object) -> None:
    for alias in value:  # type: ignore[attr-defined]  # a tuple of aliases
        assert isinstance(alias, OperandAlias), "an alias"
        row = message.add("output_operand_aliasing", operand_index=alias.operand)
        row["output_shape_index"] = list(alias.output)
        row["operand_shape_index"] = list(alias.index)


def _read_sparsity(message: Message) -> str | None:
    held = message.child("sparsity_config")
    if not held.values:
        return None
    sides = {
        side: Sparsity(**{own: held.child(side).number(f) for own, f in SPARSE.items()})
        for side in ("lhs", "rhs")
        if side in held
    }
    return sparsity_config_text(SparsityConfig(**sides))


def _write_sparsity(message: Message, value: object) -> None:
    held = message.put("sparsity_config")
    if isinstance(value, SparsityConfig):
        for name in ("lhs", "rhs"):
            side = getattr(value, name)
            for own, theirs in SPARSE.items() if side is not None else ():
                held.put(name)[theirs] = getattr(side, own)


def _read_epsilon(message: Message) -> str | None:
    value = message.real("epsilon")
    return repr(value) if math.isfinite(value) else str(value)


def _write_literal(message: Message, value: object) -> None:
    if isinstance(value, Literal):
        message["literal"] = literal_message(value)


def _write_shape(message: Message, value: object) -> None:
    if isinstance(value, Shape):
        message["outfeed_shape"] = shape_message(value)


def _read_shape(message: Message) -> str | None:
    return shape_text(message.child("outfeed_shape")) if "outfeed_shape" in message else None


def _read_groups(message: Message) -> str | None:
    return groups_text(message)


def _write_prefetch(message: Message, value: object) -> None:
    if value is not None:
        message["cross_program_prefetch_index"] = value


def _read_prefetch(message: Message) -> str | None:
    name = "cross_program_prefetch_index"
    return str(message.number(name)) if name in message else None


def _write_groups(message: Message, value: object) -> None:
    put_groups(message, value)  # type: ignore[arg-type]  # the kind of its attribute


def _write_associative(message: Message, value: object) -> None:
    message.set_word("is_associative", "TRI_STATE_TRUE" if value else "TRI_STATE_FALSE")


def _read_associative(message: Message) -> str | None:
    return "true" if message.word("is_associative") == "TRI_STATE_TRUE" else "false"


def _unsaid(message: Message) -> str | None:
    """An attribute of newer XLA, which messages of this one do not have."""


def _unwritten(message: Message, value: object) -> None:
    """Nothing: no field has it."""


def _read_literal(message: Message) -> str | None:
    return (
        typed_literal_text(literal_of(message.child("literal"))) if "literal" in message else None
    )


PADDING = {"low": "edge_padding_low", "high": "edge_padding_high", "interior": "interior_padding"}
SLICES = {"start": "start", "limit": "limit", "stride": "stride"}
GATHER, SCATTER = "gather_dimension_numbers", "scatter_dimension_numbers"
DOT, RAGGED = "dot_dimension_numbers", "ragged_dot_dimension_numbers"
SOLVE = "triangular_solve_options"
DOTS: dict[str | tuple[str, str], Row] = {
    f"{side}_{what}_dims": some_ints(f"{DOT}.{side}_{what}_dimensions")
    for side in ("lhs", "rhs")
    for what in ("batch", "contracting")
}

# By the attribute's name; where opcodes differ, by opcode and name.
ROWS: dict[str | tuple[str, str], Row] = {
    **DOTS,
    **{
        ("ragged-dot", f"{side}_{what}_dims"): some_ints(f"{RAGGED}.{DOT}.{side}_{what}_dimensions")
        for side in ("lhs", "rhs")
        for what in ("batch", "contracting")
    },
    "algorithm": word("precision_config.algorithm", "ALG_", str.lower, "ALG_UNSET"),
    ("rng-bit-generator", "algorithm"): word("rng_algorithm", "", str.lower),
    "api_version": word("custom_call_api_version", zero="API_VERSION_UNSPECIFIED"),
    "async_execution_thread": quoted_string("async_execution_thread", "main"),
    ("collective-permute", "slice_sizes"): Row(_unsaid, _unwritten),
    ("collective-permute-start", "slice_sizes"): Row(_unsaid, _unwritten),
    "batch_group_count": positive("batch_group_count"),
    "channel_id": positive("channel_id"),
    "collapsed_slice_dims": ints(f"{GATHER}.collapsed_slice_dims"),
    "constrain_layout": flag("constrain_layout"),
    "convolution_kind": word("conv_kind", "CONVOLUTION_KIND_", str.lower, "CONVOLUTION_KIND_UNSET"),
    "cross_program_prefetch_index": Row(_read_prefetch, _write_prefetch),
    "custom_call_has_side_effect": flag("custom_call_has_side_effect"),
    "custom_call_target": quoted_string("custom_call_target"),
    "delta": number("delta"),
    "dim_labels": Row(_read_labels, _write_labels),
    "dimensions": ints("dimensions"),
    ("all-to-all", "dimensions"): some_ints("dimensions"),
    ("ragged-all-to-all", "dimensions"): some_ints("dimensions"),
    "direction": string("comparison_direction"),
    "distribution": word("distribution", "", str.lower),
    "domain": Row(_read_domain, _write_domain),
    "dynamic_slice_sizes": ints("dynamic_slice_sizes"),
    "epsilon": Row(_read_epsilon, plain("epsilon", lambda h, n: None).write),
    "exponent_bits": number("exponent_bits"),
    "feature_group_count": positive("feature_group_count"),
    "feature_index": number("feature_index"),
    "fft_length": ints("fft_length"),
    "fft_type": word("fft_type"),
    "has_dynamic_root": Row(_unsaid, _unwritten),
    "index": number("tuple_index"),
    "index_vector_dim": number(f"{GATHER}.index_vector_dim"),
    ("scatter", "index_vector_dim"): number(f"{SCATTER}.index_vector_dim"),
    "indices_are_sorted": flag("indices_are_sorted"),
    "inferred_dimension": first("dimensions"),
    "infeed_config": quoted_string("infeed_config", ""),
    "input_batching_dims": some_ints(f"{SCATTER}.input_batching_dims"),
    "inserted_window_dims": ints(f"{SCATTER}.inserted_window_dims"),
    "iota_dimension": first("dimensions"),
    "is_associative": Row(_read_associative, _write_associative),
    "is_composite": flag("is_composite"),
    "is_host_transfer": flag("is_host_transfer"),
    "is_reverse": flag("is_reverse"),
    "is_stable": flag("is_stable"),
    ("topk", "is_stable"): Row(_unsaid, _unwritten),
    "k": number("k"),
    "kind": string("fusion_kind"),
    "largest": truth("largest"),
    "left_side": flag(f"{SOLVE}.left_side"),
    "lhs_ragged_dims": some_ints(f"{RAGGED}.lhs_ragged_dimensions"),
    "literal": Row(_read_literal, _write_literal),
    "lower": flag(f"{SOLVE}.lower"),
    ("cholesky", "lower"): flag("cholesky_options.lower"),
    "mantissa_bits": number("mantissa_bits"),
    "mode": Row(_unsaid, _unwritten),
    "num_carries": number("num_carries"),
    "offset_dims": ints(f"{GATHER}.offset_dims"),
    "operand_batching_dims": some_ints(f"{GATHER}.operand_batching_dims"),
    "operand_layout_constraints": Row(_read_shapes, _write_shapes),
    "operand_precision": Row(_read_precision, _write_precision),
    "outfeed_config": quoted_string("outfeed_config", ""),
    "outfeed_shape": Row(_read_shape, _write_shape),
    "output_to_operand_aliasing": Row(_read_aliases, _write_aliases),
    "padding": parts("padding_config.dimensions", PaddingDim, PADDING, padding_text, always=True),
    "padding_type": word("padding_type", zero="PADDING_INVALID"),
    "replica_groups": Row(_read_groups, _write_groups),
    "rhs_group_dims": some_ints(f"{RAGGED}.rhs_group_dimensions"),
    "scatter_dims_to_operand_dims": ints(f"{SCATTER}.scatter_dims_to_operand_dims"),
    "scatter_indices_batching_dims": some_ints(f"{SCATTER}.scatter_indices_batching_dims"),
    "schedule": word("custom_call_schedule", zero="SCHEDULE_NONE"),
    "slice": parts("slice_dimensions", SliceDim, SLICES, slice_text, always=True),
    "slice_sizes": ints("gather_slice_sizes"),
    "source_target_pairs": Row(_read_pairs, _write_pairs),
    "sparsity_config": Row(_read_sparsity, _write_sparsity),
    "start_index_map": ints(f"{GATHER}.start_index_map"),
    "start_indices_batching_dims": some_ints(f"{GATHER}.start_indices_batching_dims"),
    "transpose_a": word(f"{SOLVE}.transpose_a", zero="TRANSPOSE_INVALID"),
    "type": string("comparison_type"),
    "unique_indices": flag("unique_indices"),
    "unit_diagonal": flag(f"{SOLVE}.unit_diagonal"),
    "update_window_dims": ints(f"{SCATTER}.update_window_dims"),
    "use_global_device_ids": flag("use_global_device_ids"),
    "window": _window_parts(),
}


def row(opcode: str, key: str) -> Row | None:
    """The row of an opcode's attribute; None for those that say which computations are called."""
    return ROWS.get((opcode, key)) or ROWS.get(key)
