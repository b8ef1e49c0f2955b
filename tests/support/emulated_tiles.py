"""The tile registers of AMX in NumPy, as symbols that compiled kernels call instead.

Arithmetic follows the operations of TDPBF16PS, TDPFP16PS and TDPBSSD in Intel's manual: products of
even and of odd depths are chained apart from zero, and their sum is added to the tile. Of bf16,
subnormal numbers are zeros.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial

import llvmlite.binding as llvm  # noqa: TID251  # it stands for the linker
import ml_dtypes
import numpy as np
from msgspec.structs import replace

from hlo.backend.ir.kernel import Kernel, KernelSequence

ROWS, ROW_BYTES = 16, 64
_NUMBER, _ADDRESS, _STRIDE = ctypes.c_int8, ctypes.c_void_p, ctypes.c_int64


class Tiles:
    """Eight tiles; `events` counts what was done to them."""

    def __init__(self) -> None:
        self.tiles = np.zeros((8, ROWS, ROW_BYTES), np.uint8)
        self.events: dict[str, int] = {}
        self._kept = [
            self._offer("tilezero", self._zero, _NUMBER),
            self._offer("tileloadd64", self._load, _NUMBER, _ADDRESS, _STRIDE),
            self._offer("tilestored64", self._store, _NUMBER, _ADDRESS, _STRIDE),
            *(
                self._offer(name, partial(self._halves, dtype), _NUMBER, _NUMBER, _NUMBER)
                for name, dtype in (("tdpbf16ps", ml_dtypes.bfloat16), ("tdpfp16ps", np.float16))
            ),
            *(
                self._offer(f"tdpb{a}{b}d", partial(self._bytes, a, b), _NUMBER, _NUMBER, _NUMBER)
                for a in "su"
                for b in "su"
            ),
            self._offer("ldtilecfg", lambda _: None, _ADDRESS),
            self._offer("tilerelease", lambda: None),
        ]

    def _offer(self, name: str, action: Callable[..., None], *types: type) -> object:
        def counted(*operands: int) -> None:
            self.events[name] = self.events.get(name, 0) + 1
            with np.errstate(all="ignore"):
                action(*operands)

        function = ctypes.CFUNCTYPE(None, *types)(counted)
        address = ctypes.cast(function, ctypes.c_void_p).value
        assert address is not None
        llvm.add_symbol(f"emulated_{name}", address)
        return function

    @staticmethod
    def _rows(address: int, stride: int) -> np.ndarray:
        size = stride * (ROWS - 1) + ROW_BYTES
        memory = np.frombuffer((ctypes.c_uint8 * size).from_address(address), np.uint8)
        return np.lib.stride_tricks.as_strided(memory, (ROWS, ROW_BYTES), (stride, 1))

    def _zero(self, tile: int) -> None:
        self.tiles[tile] = 0

    def _load(self, tile: int, address: int, stride: int) -> None:
        self.tiles[tile] = self._rows(address, stride)

    def _store(self, tile: int, address: int, stride: int) -> None:
        self._rows(address, stride)[:] = self.tiles[tile]

    def _halves(self, dtype: type, sums: int, lhs: int, rhs: int) -> None:
        a, b = (self.tiles[t].view(dtype).astype(np.float32) for t in (lhs, rhs))
        if dtype is not np.float16:
            a, b = (np.where(np.abs(x) < 2.0**-126, 0, x) for x in (a, b))
        a, b = a.reshape(ROWS, 16, 2), b.reshape(16, 16, 2)  # row, pair; pair, column
        products = np.moveaxis(a, 1, 0)[:, :, None] * b[:, None]
        chains = np.add.reduce(products, axis=0)  # one after the other, as axis 0 is outermost
        self.tiles[sums].view(np.float32)[:] += chains[..., 0] + chains[..., 1]

    def _bytes(self, left: str, right: str, sums: int, lhs: int, rhs: int) -> None:
        kinds = {"s": np.int8, "u": np.uint8}
        pairs = ((lhs, left), (rhs, right))
        a, b = (self.tiles[t].view(kinds[kind]).astype(np.int32) for t, kind in pairs)
        a, b = a.reshape(ROWS, 16, 4), b.reshape(16, 16, 4)
        self.tiles[sums].view(np.int32)[:] += np.einsum("rgk,gck->rc", a, b)


def emulated(sequence: KernelSequence) -> KernelSequence:
    """The sequence with calls of the emulation for those of tile instructions."""
    return replace(
        sequence,
        calls=tuple(replace(call, kernel=_emulated(call.kernel)) for call in sequence.calls),
    )


def _emulated(kernel: Kernel) -> Kernel:
    def renamed(text: str) -> str:
        for name in ("tile", "tdp", "ldtilecfg"):
            text = text.replace(f"llvm.x86.{name}", f"emulated_{name}")
        return text

    function = kernel.function
    names = {symbol: renamed(symbol) for symbol in function.symbols}
    declared = (renamed(line).replace(" immarg", "") for line in kernel.declarations)
    function = function.renamed(names)
    return replace(kernel, function=function, declarations=tuple(declared))
