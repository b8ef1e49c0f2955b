"""Tables of complex numbers as constants beside a kernel."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hlo.backend.ir.writer import Value
from hlo.backend.kernels.linear_algebra.matrices import Numbers

_BYTES = tuple(f"\\{byte:02X}" for byte in range(256))  # Each byte as LLVM writes it in a constant.


def constant_table(
    numbers: Numbers, name: str, values: Callable[[], np.ndarray], *, planes: bool = False
) -> Value:
    """Where the numbers of a name are; planes: all real parts first."""
    scalar = np.float64 if numbers.ring.scalar == "double" else np.float32
    symbol = f".{name}.{np.dtype(scalar).name}"
    if symbol not in numbers.w.globals:
        found = values()
        parts = np.stack([found.real, found.imag], 0 if planes else -1)
        data = parts.astype(scalar).tobytes()
        text = "".join(map(_BYTES.__getitem__, data))
        definition = f'private unnamed_addr constant [{len(data)} x i8] c"{text}", align 64'
        numbers.w.enter_data(symbol, f"@{symbol} = {definition}")
    return Value(f"@{symbol}", "ptr")
