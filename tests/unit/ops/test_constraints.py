"""Constraints whose violation no text can say, or that the parser meets first: infer alone."""

import pytest

from hlo.attributes.padding import PaddingDim
from hlo.attributes.replica_groups import ListGroups
from hlo.errors import Violation
from hlo.ir.shape import ProgramShape, Shape
from hlo.ops.table import OPS
from tests.support.readings import taken

F0, F2, F3 = (Shape.array("f32", dims) for dims in ((), (2,), (3,)))
F23 = Shape.array("f32", (2, 3))
S0, S2 = Shape.array("s32"), Shape.array("s32", (2,))
NONE = Shape.tuple(())
TOKEN = Shape.token()
ADD = ProgramShape((F0, F0), F0)
STEP = ProgramShape((F0, F0), Shape.tuple((F0, F0)))
LESS = ProgramShape((F0, F0), Shape.array("pred"))

ANY = {"channel_id": None, "replica_groups": ListGroups()}
LAYOUT = {**ANY, "constrain_layout": False}
GATHER = {**LAYOUT, "dimensions": (0,), "use_global_device_ids": False}
REDUCE = {**LAYOUT, "use_global_device_ids": False, "mode": None, "to_apply": ADD}
PERMUTE = {"channel_id": None, "source_target_pairs": (), "slice_sizes": ()}
DOT = {
    "lhs_batch_dims": (), "lhs_contracting_dims": (), "rhs_batch_dims": (),
    "rhs_contracting_dims": (), "operand_precision": (),
}  # fmt: skip
SCATTER = {
    "update_window_dims": (), "inserted_window_dims": (0,), "scatter_dims_to_operand_dims": (0,),
    "input_batching_dims": (), "scatter_indices_batching_dims": (), "index_vector_dim": 1,
    "indices_are_sorted": False, "unique_indices": False, "to_apply": ADD,
}  # fmt: skip
SCAN = {
    "dimensions": (0,), "num_carries": 1, "is_reverse": False, "is_associative": False,
    "to_apply": STEP,
}  # fmt: skip

CASES = [
    ("all-gather-start", (F3,), {**GATHER, "shape": Shape.tuple((F3, Shape.array("f32", (7,))))}, "C3"),  # noqa: E501  # a row
    ("all-gather", (), {**GATHER, "shape": F3}, "C1"),
    ("all-to-all", (), {**LAYOUT, "dimensions": None}, "C1"),
    ("bitcast", (NONE,), {"shape": F2}, "C1"),
    ("collective-broadcast", (), {**ANY, "has_dynamic_root": False}, "C1"),
    ("collective-broadcast", (F2, F2), {**ANY, "has_dynamic_root": True}, "C2"),
    ("collective-permute", (), PERMUTE, "C1"),
    ("collective-permute", (F2,), {**PERMUTE, "slice_sizes": ((1,),)}, "C3"),
    ("collective-permute-start", (F2,),
     {**PERMUTE, "slice_sizes": ((1,),), "shape": Shape.tuple((F2, F2))}, "C3"),
    ("dot", (NONE, F2), {**DOT, "algorithm": "unset", "shape": None}, "C2"),
    ("ragged-dot", (F23, F23, S2),
     {**DOT, "lhs_contracting_dims": (5,), "lhs_ragged_dims": (0,), "rhs_group_dims": (),
      "shape": None}, "C3"),
    ("dynamic-reshape", (F2, S0), {"shape": F3}, "C3"),
    ("dynamic-slice", (F23, S0), {"dynamic_slice_sizes": (1, 1)}, "C1"),
    ("dynamic-slice", (F23,), {"dynamic_slice_sizes": (1, 1)}, "C1"),
    ("dynamic-slice", (F23, Shape.array("s32", (3,))), {"dynamic_slice_sizes": (1, 1)}, "C1"),
    ("dynamic-update-slice", (F23, F23, S0), {}, "C1"),
    ("infeed", (TOKEN,), {"infeed_config": "", "shape": F2}, "C2"),
    ("iota", (), {"iota_dimension": 0, "shape": NONE}, "C1"),
    ("map", (F23, F23), {"dimensions": (1, 0), "to_apply": ADD}, "C2"),
    ("pad", (F3, F0), {"padding": (PaddingDim(0, 0, -1),)}, "C4"),
    ("ragged-all-to-all", (NONE, F3, S2, S2, S2, S2), {**ANY, "dimensions": None}, "C1"),
    ("ragged-all-to-all", (F3, F3, S2), {**ANY, "dimensions": None}, "C1"),
    ("recv", (TOKEN,), {"channel_id": 1, "is_host_transfer": False, "shape": F2}, "C2"),
    ("reduce", (F23,), {"dimensions": (0,), "to_apply": ADD}, "C1"),
    ("reduce", (), {"dimensions": (0,), "to_apply": ADD}, "C1"),
    ("reduce-scatter", (), {**REDUCE, "dimensions": (0,), "shape": F2}, "C1"),
    ("reduce-window", (), {"window": None, "to_apply": ADD}, "C1"),
    ("reshape", (F2,), {"inferred_dimension": -1, "shape": F3}, "C2"),
    ("scan", (F3,), SCAN, "C1"),
    ("scan", (F3, F0), {**SCAN, "dimensions": (0, 1)}, "C1"),
    ("scan", (F3, F0), {**SCAN, "num_carries": 3}, "C2"),
    ("scatter", (F3, S2), SCATTER, "C11"),
    ("sort", (), {"dimensions": (0,), "is_stable": False, "to_apply": LESS}, "C1"),
    ("sort", (F23,), {"dimensions": (0, 1), "is_stable": False, "to_apply": LESS}, "C2"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("opcode", "operands", "attributes", "label"),
    CASES,
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_constraint_is_enforced_under_its_label(
    opcode: str, operands: tuple[Shape, ...], attributes: dict[str, object], label: str
) -> None:
    with pytest.raises(Violation) as raised:
        OPS[opcode].infer(*operands, **taken(opcode, **attributes))
    assert raised.value.constraint == label


def test_scatter_operands_of_equal_dimensions() -> None:
    two = ProgramShape((F0, F0, F0, F0), Shape.tuple((F0, F0)))
    indices = Shape.array("s32", (4, 1))
    updates = Shape.array("f32", (4,))
    operands = (F3, F2, indices, updates, updates)
    attributes = taken("scatter", **{**SCATTER, "to_apply": two})
    with pytest.raises(Violation) as raised:
        OPS["scatter"].check(*operands, shape=Shape.tuple((F3, F2)), **attributes)
    assert raised.value.constraint == "C11"


def test_label_of_every_constraint_is_in_its_docstring() -> None:
    for opcode, _, _, label in CASES:
        assert label in (OPS[opcode].__doc__ or ""), f"{opcode} {label}"
