"""One elementwise op as compiled code, to be called with arrays of HLO's NumPy types."""

from __future__ import annotations

import numpy as np

from hlo.backend.emitters.elementwise import emit
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.target import Target
from hlo.backend.lanes.types import decoded, encoded, joined, parts, rounded, storage_scalar
from hlo.backend.linking.toolchain import host_target
from hlo.ir.dtype import DType
from hlo.ops.table import OPS
from tests.support.lanes_jit import lanes_function


def run_emitted(
    opcode: str,
    operands: list[np.ndarray],
    types: list[DType],
    result: DType,
    attributes: dict[str, object] | None = None,
    *,
    lanes: int = 16,
    target: Target | None = None,
) -> np.ndarray:
    """The op applied to flat arrays of one length."""
    how = {"lanes": lanes, "target": target}
    return run_emitted_for(opcode, operands, types, [result], attributes, **how)[0]


def run_emitted_for(
    opcode: str,
    operands: list[np.ndarray],
    types: list[DType],
    targets: list[DType],
    attributes: dict[str, object] | None = None,
    *,
    lanes: int = 16,
    target: Target | None = None,
) -> list[np.ndarray]:
    """The op's results of several types, in one loop: LLVM takes longer to start than for some."""

    def body(w: Writer, t: Target, loaded: list[Value]) -> list[Value]:
        values, taken = [], iter(loaded)
        for dtype in types:
            raw = [next(taken) for _ in range(1 + dtype.is_complex)]
            values.append(joined([decoded(w, t, r, dtype) for r in raw]))
        attrs = OPS[opcode].record.of(attributes or {})
        made = []
        for result in targets:
            out = rounded(w, t, emit(opcode, w, t, values, types, result, attrs), result)
            made += [encoded(w, t, part, result) for part in parts(out)]
        return made

    flat = [part for a, t in zip(operands, types, strict=True) for part in _split(a, t)]
    scalars = [storage_scalar(t) for t in types for _ in range(1 + t.is_complex)]
    results = [storage_scalar(t) for t in targets for _ in range(1 + t.is_complex)]
    function = lanes_function(body, scalars, results, lanes=lanes, target=target or host_target())
    got = iter(function(*flat))
    return [_joined([next(got) for _ in range(1 + t.is_complex)], t) for t in targets]


def _joined(got: list[np.ndarray], dtype: DType) -> np.ndarray:
    assert dtype.numpy is not None, "an array's type"
    if not dtype.is_complex:
        return got[0].view(dtype.numpy)
    both = np.empty(len(got[0]), dtype.numpy)
    both.real, both.imag = got
    return both


def _split(array: np.ndarray, dtype: DType) -> list[np.ndarray]:
    """Parts as unsigned integers of the storage width (floats stay)."""
    if dtype.is_complex:
        return [array.real.copy(), array.imag.copy()]
    return [array.view(f"u{array.dtype.itemsize}") if not dtype.bits >= 32 else array]
