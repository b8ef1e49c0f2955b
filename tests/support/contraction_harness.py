"""Runs a kernel sequence on NumPy arrays: text to machine code, buffers by ctypes."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from functools import lru_cache

import llvmlite.binding as llvm  # noqa: TID251  # it stands for the linker
import numpy as np
from msgspec.structs import replace

from hlo.backend.entry.kernel_modules import kernel_module
from hlo.backend.ir.definitions import symbol
from hlo.backend.ir.kernel import Kernel, KernelSequence
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.contraction import contraction_kernels
from hlo.backend.linking.toolchain import host_machine
from hlo.ir.instruction import Instruction
from hlo.machine import NAMED
from tests.support.machines_here import runs_here

_AVX2 = NAMED["x86-64-v3"]
LEVELS = {
    "sse": NAMED["x86-64"],
    "avx2": _AVX2,
    "avxvnni": replace(_AVX2, name="avxvnni", features=_AVX2.features | {"avxvnni"}),
    "avx512": NAMED["x86-64-v4"],
}


def target_of(level: str = "host") -> Target:
    """What kernels of a level are written for: "host", or one that this machine has too."""
    return Target(host_machine() if level == "host" else LEVELS[level])


def machine_of(level: str) -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    cpu = llvm.get_host_cpu_name() if level == "host" else "x86-64"
    features = ",".join(f"+{f}" for f in sorted(target_of(level).machine.features))
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=cpu, features=features, opt=2, jit=True)


def engine_of(text: str, level: str) -> llvm.ExecutionEngine:
    """The machine code of a module. A test compiles the same kernels for several purposes; what
    calls emulated instructions is made anew, for these are another's in another test.
    """
    return _made(text, level) if "@emulated_" in text else _known(text, level)


def _made(text: str, level: str) -> llvm.ExecutionEngine:
    module = llvm.parse_assembly(text)
    module.verify()
    engine = llvm.create_mcjit_compiler(module, machine_of(level))  # which owns its machine
    engine.finalize_object()
    return engine


_known = lru_cache(maxsize=256)(_made)
WRITTEN = "i32 1, i32 3, i32 1)"  # The end of a hint for a line that is going to be written.


def fetches(sequence: KernelSequence) -> int:
    """Hints for factors in the code of kernels."""
    texts = [call.kernel.text for call in sequence.calls]
    return sum(text.count("prefetch") - text.count(WRITTEN) for text in texts)


def normal_factors(root: Instruction) -> list[np.ndarray]:
    """Numbers of a normal distribution for the operands of a product."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal(o.shape.dims).astype(o.shape.dtype.numpy) for o in root.operands]


def computed(root: Instruction, factors: list[np.ndarray], level: str) -> np.ndarray:
    """A product by the kernels that a level has for it, three units at a time."""
    result = np.empty(root.shape.dims, root.shape.dtype.numpy)
    return Compiled(contraction_kernels(root, target_of(level)), level)(factors, result, 3)


class Compiled:
    """The kernels of a sequence as machine code; call with the operands."""

    def __init__(self, sequence: KernelSequence, level: str = "host") -> None:
        self.sequence = sequence
        texts: dict[str, Kernel] = {}
        for call in sequence.calls:
            texts.setdefault(call.kernel.text, call.kernel)
        self.engines = []
        self.functions: dict[str, ctypes._CFuncPtr] = {}
        for text, kernel in texts.items():
            beside = {symbol(f): f for f in kernel.functions}
            engine = engine_of(kernel_module({"kernel": kernel, **beside}).text, level)
            prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
            self.functions[text] = prototype(engine.get_function_address("kernel"))
            self.engines.append(engine)

    def __call__(
        self,
        operands: Sequence[np.ndarray],
        result: np.ndarray,
        pieces: int = 1,
        bounds: tuple[int, int] = (0, 0),
    ) -> np.ndarray:
        """Runs into `result`, the units of each kernel in `pieces` ranges, the last one first;
        bounded kernels between the bounds."""
        run, keep = self.prepared(operands, result, pieces, bounds)
        run()
        del keep
        return result

    def prepared(  # type: ignore[no-untyped-def]  # ctypes pointers and their owners
        self,
        operands: Sequence[np.ndarray],
        result: np.ndarray,
        pieces: int = 1,
        bounds: tuple[int, int] = (0, 0),
    ):
        temporaries = [aligned(size) for size in self.sequence.temporaries]
        arrays = [*operands, result, *temporaries]
        for made in self.sequence.prepared:
            content = np.ascontiguousarray(operands[made.leaf]).reshape(-1).view(np.uint8)
            for step in made.steps:
                content = step(content)
            temporaries[made.temporary][:] = content
        steps = []
        keep: list[object] = [arrays]
        for call in self.sequence.calls:
            kernel = call.kernel
            scratch = aligned(kernel.scratch_bytes)
            addresses = [arrays[i].ctypes.data for i in call.buffers] + [scratch.ctypes.data]
            table = (ctypes.c_void_p * len(addresses))(*addresses)
            keep += [scratch, table]
            cuts = [kernel.units * i // pieces for i in range(pieces + 1)]
            pairs = [bounds] if kernel.is_bounded else list(itertools.pairwise(cuts))[::-1]
            function = self.functions[kernel.text]
            told = None if call.when is None else arrays[call.when]
            at = ctypes.addressof(table)
            steps += [(told, function, at, begin, end) for begin, end in pairs]

        def run() -> None:
            for told, function, table, begin, end in steps:
                if told is None or told[0]:
                    function(table, begin, end)

        return run, keep


def aligned(size: int) -> np.ndarray:
    """Bytes at a multiple of 64, filled with a pattern that is NaN in every float type."""
    raw = np.full(size + 64, 0xFF, np.uint8)
    at = -raw.ctypes.data % 64
    return raw[at : at + size]


def levels() -> list[str]:
    """The levels that this machine runs."""
    return [name for name, level in LEVELS.items() if runs_here(level)]
