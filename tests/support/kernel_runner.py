"""Runs one kernel on NumPy arrays: text to machine code, the buffer table, a split of the units."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from functools import lru_cache

import llvmlite.binding as llvm  # noqa: TID251  # runs one kernel alone
import numpy as np

from hlo.backend.entry.kernel_modules import kernel_module
from hlo.backend.ir.definitions import symbol
from hlo.backend.ir.kernel import Kernel
from hlo.backend.isa.target import Target
from hlo.backend.kernels.fused_loops import fused_kernel
from hlo.backend.linking.toolchain import host_target
from hlo.backend.planning.implementations import KernelMaker, as_sequence
from hlo.ir.instruction import Instruction
from hlo.parser.parse import parse

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
_FEATURES = llvm.get_host_cpu_features()
TARGET = host_target()
_ENGINES = []  # code stays mapped while the tests run


def module_text(kernel: Kernel) -> str:
    """The kernel and the functions that it calls."""
    return kernel_module({"KERNEL": kernel, **{symbol(f): f for f in kernel.functions}}).text


def machine() -> llvm.TargetMachine:
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=_FEATURES.flatten(), opt=2
    )


def compiled(kernel: Kernel) -> ctypes._CFuncPtr:
    return _function(module_text(kernel))


@lru_cache(maxsize=256)
def _function(text: str) -> ctypes._CFuncPtr:
    """A kernel's code. It is asked for again where results lie over operands."""
    module = llvm.parse_assembly(text)
    module.verify()
    engine = llvm.create_mcjit_compiler(module, machine())
    engine.finalize_object()
    _ENGINES.append(engine)
    address = engine.get_function_address("KERNEL")
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)


def assembly(kernel: Kernel) -> str:
    return machine().emit_assembly(llvm.parse_assembly(module_text(kernel)))


def leaves(value: object) -> list[np.ndarray]:
    if isinstance(value, tuple):
        return [leaf for v in value for leaf in leaves(v)]
    return [value]  # type: ignore[list-item]  # an array


def run(
    instruction: Instruction,
    arguments: Sequence[object],
    *,
    splits: int = 3,
    target: Target = TARGET,
    kernel: KernelMaker = fused_kernel,
    over: tuple[int, int] | None = None,
) -> list[np.ndarray]:
    """Result leaves of a lone instruction, its units run in several ranges.

    over: (operand leaf, result leaf) that share memory.
    """
    made = kernel(instruction, target)
    assert made is not None, "the family takes the instruction"
    sequence = as_sequence(instruction, made)
    inputs = [np.ascontiguousarray(a) for argument in arguments for a in leaves(argument)]
    results = [_poisoned(leaf) for leaf in instruction.shape.leaves() if leaf.is_array]
    for operand, result in sequence.must_alias:
        results[result][...] = inputs[operand]
    if over is not None:
        result, operand = results[over[1]].reshape(-1), inputs[over[0]].reshape(-1)
        result.view(np.uint8)[:] = operand.view(np.uint8)
        inputs[over[0]] = results[over[1]]
    temporaries = [np.full(n, 0xA5, np.uint8) for n in sequence.temporaries]
    arrays = [*inputs, *results, *temporaries]
    for call in sequence.calls:
        part = call.kernel
        scratch = [np.full(part.scratch_bytes + 64, 0xA5, np.uint8)] if part.scratch_bytes else []
        table = [arrays[k] for k in call.buffers] + scratch
        addresses = (ctypes.c_void_p * max(len(table), 1))(*(a.ctypes.data for a in table))
        function = compiled(part)
        bounds = [part.units * k // splits for k in range(splits + 1)]
        for begin, end in itertools.pairwise(bounds):
            if begin == end:
                continue  # no caller asks for no units
            function(ctypes.addressof(addresses), begin, end)
    return results


def _poisoned(leaf) -> np.ndarray:  # type: ignore[no-untyped-def]  # a Shape
    raw = np.full(leaf.size * leaf.dtype.item_bytes, 0x55, np.uint8)
    return raw.view(leaf.dtype.numpy).reshape(leaf.dims)


def run_text(text: str, *arguments: object, splits: int = 3) -> list[np.ndarray]:
    """The root of the entry, a lone op or fusion over the entry's parameters, run as a kernel."""
    module = parse(text)
    root = module.entry.root
    values = [arguments[o["parameter_number"]] for o in root.operands]
    return run(root, values, splits=splits)
