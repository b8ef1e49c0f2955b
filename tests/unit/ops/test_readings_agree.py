"""infer and evaluate of one row tell the same type and dimensions, for every type it takes."""

import numpy as np
import pytest

from hlo.errors import Violation
from hlo.ir.dtype import ARRAY_TYPES, DType
from hlo.ir.shape import Shape
from hlo.ops.table import OPS, Trait
from tests.support.readings import taken

ROWS = sorted(
    opcode
    for opcode, row in OPS.items()
    if row.traits & Trait.ELEMENTWISE and row.arity in (1, 2, 3) and not row.takes_shape
)
ATTRIBUTES: dict[str, dict[str, object]] = {
    "compare": {"direction": "EQ"},
    "reduce-precision": {"exponent_bits": 4, "mantissa_bits": 3},
}


def operands(opcode: str, dtype: DType, dims: tuple[int, ...]) -> list[np.ndarray]:
    count = int(np.prod(dims))
    values = (np.arange(1, count + 1) % 2).astype(dtype.numpy).reshape(dims)
    if opcode == "select":
        return [np.ones(dims, np.bool_), values, values]
    return [values] * (OPS[opcode].arity or 0)


@pytest.mark.parametrize("dims", [(), (3,), (2, 0), (2, 3)], ids=str)
@pytest.mark.parametrize("opcode", ROWS)
def test_infer_and_evaluate_agree(opcode: str, dims: tuple[int, ...]) -> None:
    row, attributes = OPS[opcode], taken(opcode, **ATTRIBUTES.get(opcode, {}))
    agreed = 0
    for dtype in ARRAY_TYPES:
        values = operands(opcode, dtype, dims)
        types = [Shape.array("pred" if v.dtype == np.bool_ else dtype, dims) for v in values]
        try:
            shape = row.infer(*types, **attributes)
            if hasattr(row, "check"):
                row.check(*types, shape=shape, **attributes)
        except Violation:
            continue
        result = row.evaluate(*values, **attributes)
        assert isinstance(result, np.ndarray)
        assert (result.dtype, result.shape) == (shape.dtype.numpy, shape.dims), f"{dtype}"
        agreed += 1
    assert agreed >= 2, "a row takes at least two types"
