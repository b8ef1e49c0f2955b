"""Toolchain: llvmlite, initialised, and a target machine for this CPU; text in, object code out.

Chosen by CPU features, never by name (BACKEND_FACTS.md 1). llvmlite puts one lock around every
call into LLVM; where its private lock can be lifted for the three heavy functions, modules are
compiled on several threads, each with a context and a target machine of its own.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import llvmlite.binding as llvm  # type: ignore[import-untyped]  # it has no types

from hlo.backend.llvm_ir import IrModule
from hlo.backend.target import Target

HEAVY = (
    "LLVMPY_ParseAssembly",
    "LLVMPY_RunNewModulePassManager",
    "LLVMPY_TargetMachineEmitToMemory",
    "LLVMPY_VerifyModule",
)
CODEGEN_LEVEL = 2  # level 1 gives the same code, 0 is 1.4x slower code (BACKEND_FACTS.md 3)
# Loop strength reduction takes up to 40 % of the time and gains nothing: our loops step pointers
# themselves or by indices that the addressing modes hold.
OPTIONS = ("--disable-lsr",)

_local = threading.local()


@lru_cache(maxsize=1)
def initialise() -> bool:
    """Set LLVM up once; whether its calls may run on several threads."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()  # for kernels that hold assembly
    for option in OPTIONS:
        llvm.set_option("hlo", option)
    return _lift_lock()


def _lift_lock() -> bool:
    """Take llvmlite's global lock off the heavy functions; False where it looks different."""
    library = getattr(llvm.ffi, "lib", None)
    try:
        wrappers = [getattr(library, name) for name in HEAVY]
        for wrapper in wrappers:
            if not hasattr(wrapper, "_lock"):
                return False
        for wrapper in wrappers:
            wrapper._lock = contextlib.nullcontext()
    except AttributeError:
        return False
    return True


@lru_cache(maxsize=1)
def host_features() -> dict[str, bool]:
    """LLVM's names of the CPU's features, and whether each is there."""
    try:
        return dict(llvm.get_host_cpu_features())
    except RuntimeError:  # a processor that LLVM cannot ask
        return {}


@lru_cache(maxsize=2)
def host_target(mode: str = "strict") -> Target:
    """What kernels may use on this machine."""
    initialise()
    features = frozenset(name for name, there in host_features().items() if there)
    vector_bytes = 16
    if "avx512f" in features and {"avx512bw", "avx512vl", "avx512dq"} <= features:
        vector_bytes = 64
    elif "avx2" in features:
        vector_bytes = 32
    return Target(llvm.get_process_triple(), features, vector_bytes, mode)


@lru_cache(maxsize=1)
def feature_text() -> str:
    """The features as LLVM's target machine wants them."""
    return ",".join(f"{'+' if on else '-'}{name}" for name, on in sorted(host_features().items()))


@lru_cache(maxsize=1)
def identity() -> str:
    """What object code depends on besides its IR: LLVM, the triple, features, options."""
    version = ".".join(map(str, llvm.llvm_version_info))
    options = (str(CODEGEN_LEVEL), *OPTIONS)
    return "\n".join((version, llvm.get_process_triple(), feature_text(), *options))


def machine() -> llvm.TargetMachine:
    """This thread's target machine."""
    found = getattr(_local, "machine", None)
    if found is None:
        initialise()
        target = llvm.Target.from_triple(llvm.get_process_triple())
        found = _local.machine = target.create_target_machine(
            features=feature_text(), opt=CODEGEN_LEVEL, jit=True
        )
    return found


def parsed(module: IrModule) -> llvm.ModuleRef:
    """The module in LLVM's memory, verified, after the middle-end where it wants it."""
    ref = llvm.parse_assembly(module.text, context=llvm.create_context())
    ref.triple = llvm.get_process_triple()
    ref.verify()
    if module.optimised:
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        builder = llvm.create_pass_builder(machine(), options)
        builder.getModulePassManager().run(ref, builder)
    return ref


def object_code(module: IrModule) -> bytes:
    """The object file of one module."""
    return bytes(machine().emit_object(parsed(module)))


def assembly(module: IrModule) -> str:
    """The module as the target's assembly text."""
    return str(machine().emit_assembly(parsed(module)))


def object_codes(modules: Sequence[IrModule]) -> list[bytes]:
    """The object files of all modules, on as many threads as there are processors."""
    workers = min(len(modules), len(os.sched_getaffinity(0)))
    if workers < 2 or not initialise():
        return [object_code(m) for m in modules]
    with ThreadPoolExecutor(workers) as pool:
        largest_first = sorted(range(len(modules)), key=lambda n: -len(modules[n].text))
        futures = {n: pool.submit(object_code, modules[n]) for n in largest_first}
        return [futures[n].result() for n in range(len(modules))]
