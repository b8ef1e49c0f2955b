"""LLVM, by those functions of llvmlite's library that compiling calls.

    text --Module--> module in LLVM's memory --TargetMachine.emit_object--> bytes

llvmlite's Python package takes four times as long to import as the library to load, most of it for
a builder of IR and passes one by one; and it has one lock around all calls, where LLVM needs none
between threads that have a context and a target machine each. Whoever looks into modules takes that
package, on the same memory.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import c_bool, c_char_p, c_int, c_size_t, c_void_p
from typing import Any

import llvmlite  # type: ignore[import-untyped]  # it has no types
from llvmlite.utils import get_library_name  # type: ignore[import-untyped]

from hlo.process.once import once

_SAID = ctypes.POINTER(c_char_p)  # where a text of LLVM's is put, which is given back
# The kind of the result, then of the arguments, as llvmlite's own package declares them.
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "InitializeNativeTarget": (None,),
    "InitializeNativeAsmPrinter": (None,),
    "InitializeNativeAsmParser": (None,),
    "InitializeAllTargetInfos": (None,),
    "InitializeAllTargets": (None,),
    "InitializeAllTargetMCs": (None,),
    "InitializeAllAsmPrinters": (None,),
    "SetCommandLine": (None, c_char_p, c_char_p),
    "DisposeString": (None, c_char_p),
    "GetProcessTriple": (None, _SAID),
    "GetHostCPUName": (None, _SAID),
    "GetHostCPUFeatures": (c_int, _SAID),
    "GetTargetFromTriple": (c_void_p, c_char_p, _SAID),
    "CreateTargetMachine": (
        c_void_p, c_void_p, c_char_p, c_char_p, c_char_p, c_int, c_char_p, c_char_p, c_int, c_int,
        c_char_p,
    ),
    "SetTargetMachineAsmVerbosity": (None, c_void_p, c_int),
    "CreateTargetMachineData": (c_void_p, c_void_p),
    "CopyStringRepOfTargetData": (None, c_void_p, _SAID),
    "DisposeTargetData": (None, c_void_p),
    "TargetMachineEmitToMemory": (c_void_p, c_void_p, c_void_p, c_int, _SAID),
    "GetBufferStart": (c_void_p, c_void_p),
    "GetBufferSize": (c_size_t, c_void_p),
    "DisposeMemoryBuffer": (None, c_void_p),
    "ContextCreate": (c_void_p,),
    "ContextDispose": (None, c_void_p),
    "ParseAssembly": (c_void_p, c_void_p, c_char_p, _SAID),
    "SetTarget": (None, c_void_p, c_char_p),
    "VerifyModule": (c_bool, c_void_p, _SAID),
    "PrintModuleToString": (None, c_void_p, _SAID),
    "LinkModules": (c_int, c_void_p, c_void_p, _SAID),
    "DisposeModule": (None, c_void_p),
    "CreatePipelineTuningOptions": (c_void_p,),
    "PTOSetLoopInterleaving": (None, c_void_p, c_bool),
    "PTOSetLoopUnrolling": (None, c_void_p, c_bool),
    "DisposePipelineTuningOptions": (None, c_void_p),
    "CreatePassBuilder": (c_void_p, c_void_p, c_void_p),
    "DisposePassBuilder": (None, c_void_p),
    "buildPerModuleDefaultPipeline": (c_void_p, c_void_p, c_int),
    "RunNewModulePassManager": (None, c_void_p, c_void_p, c_void_p),
    "DisposeNewModulePassManger": (None, c_void_p),  # its spelling
}  # fmt: skip
# Functions that take microseconds, or less than a thread waits for Python's lock beside one that
# works: they keep it. Of a module's ten calls those that read it and make its code give it up.
_SHORT = frozenset({
    "DisposeString", "GetBufferStart", "GetBufferSize", "DisposeMemoryBuffer", "ContextCreate",
    "ContextDispose", "SetTarget", "DisposeModule",
})  # fmt: skip
_SPEED_LEVEL = 2  # of the middle-end


@once
def _library() -> ctypes.CDLL:
    """llvmlite's library, with the functions' kinds."""
    folder = os.path.join(os.path.dirname(llvmlite.__file__), "binding")
    path = os.path.join(folder, get_library_name())
    found, kept = ctypes.CDLL(path), ctypes.PyDLL(path)
    for name, (result, *arguments) in _FUNCTIONS.items():
        function = getattr(kept if name in _SHORT else found, f"LLVMPY_{name}")
        function.restype, function.argtypes = result, arguments
        setattr(found, f"LLVMPY_{name}", function)
    return found


class _Said:
    """A text that LLVM gives, or none."""

    def __init__(self) -> None:
        self._text = c_char_p()
        self.out = ctypes.byref(self._text)

    def take(self) -> str:
        """The text, whose memory LLVM has back; empty where it gave none."""
        text = self._text.value
        if text is None:
            return ""
        _library().LLVMPY_DisposeString(self._text)
        self._text.value = None
        return text.decode()


def initialise_native() -> None:
    """For this process's instructions, their text and assembly in it."""
    library = _library()
    library.LLVMPY_InitializeNativeTarget()
    library.LLVMPY_InitializeNativeAsmPrinter()
    library.LLVMPY_InitializeNativeAsmParser()


def initialise_all() -> None:
    """For all instructions that LLVM knows, and their text."""
    library = _library()
    library.LLVMPY_InitializeAllTargetInfos()
    library.LLVMPY_InitializeAllTargets()
    library.LLVMPY_InitializeAllTargetMCs()
    library.LLVMPY_InitializeAllAsmPrinters()


def set_option(option: str) -> None:
    """An option of LLVM's command line, for the whole process. Given twice, it ends it."""
    _library().LLVMPY_SetCommandLine(b"hlo", option.encode())


def process_triple() -> str:
    """The target that this process runs on."""
    said = _Said()
    _library().LLVMPY_GetProcessTriple(said.out)
    return said.take()


def processor_name() -> str:
    """LLVM's name of this machine's processor."""
    said = _Said()
    _library().LLVMPY_GetHostCPUName(said.out)
    return said.take()


def processor_features() -> dict[str, bool]:
    """LLVM's names of features, and whether this machine's processor has them; empty where LLVM
    cannot ask it.
    """
    said = _Said()
    if not _library().LLVMPY_GetHostCPUFeatures(said.out):
        return {}
    return {name[1:]: name[0] == "+" for name in said.take().split(",") if name}


class TargetMachine:
    """What makes code, for one thread at a time; it stays as long as the process."""

    def __init__(
        self,
        triple: str,
        features: str,
        *,
        level: int,
        is_jit: bool,
        reloc: str = "default",
        codemodel: str = "jitdefault",
        abiname: str = "",
    ) -> None:
        """RuntimeError for a triple that LLVM has no code for."""
        made = triple
        if os.name == "nt" and codemodel == "jitdefault":
            made += "-elf"  # the only form of objects that MCJIT takes there
        self.pointer: int = _library().LLVMPY_CreateTargetMachine(
            _target(triple), made.encode(), b"", features.encode(), level, reloc.encode(),
            codemodel.encode(), False, is_jit, abiname.encode(),
        )  # fmt: skip
        if not self.pointer:
            raise RuntimeError(f"LLVM has no target machine for {triple}")

    def set_asm_verbosity(self, *, is_verbose: bool) -> None:
        """Whether `emit_assembly` writes LLVM's comments."""
        _library().LLVMPY_SetTargetMachineAsmVerbosity(self.pointer, is_verbose)

    def data_layout(self) -> str:
        """Sizes and alignments, as modules name them."""
        library, said = _library(), _Said()
        data = library.LLVMPY_CreateTargetMachineData(self.pointer)
        library.LLVMPY_CopyStringRepOfTargetData(data, said.out)
        library.LLVMPY_DisposeTargetData(data)
        return said.take()

    def emit_object(self, module: Module) -> bytes:
        """The module's object file."""
        return self._emitted(module, is_object=True)

    def emit_assembly(self, module: Module) -> str:
        """The module's assembly text."""
        return self._emitted(module, is_object=False).decode()

    def _emitted(self, module: Module, *, is_object: bool) -> bytes:
        library, said = _library(), _Said()
        buffer = library.LLVMPY_TargetMachineEmitToMemory(
            self.pointer, module.pointer, is_object, said.out
        )
        if not buffer:
            raise RuntimeError(said.take())
        try:
            start, size = (
                library.LLVMPY_GetBufferStart(buffer),
                library.LLVMPY_GetBufferSize(buffer),
            )
            return ctypes.string_at(start, size)
        finally:
            library.LLVMPY_DisposeMemoryBuffer(buffer)


def check_triple(triple: str) -> None:
    """RuntimeError for a triple that LLVM has no code for."""
    _target(triple)


def _target(triple: str) -> int:
    said = _Said()
    found: int | None = _library().LLVMPY_GetTargetFromTriple(triple.encode(), said.out)
    if not found:
        raise RuntimeError(said.take())
    return found


class Context:
    """The types and constants of modules, for one thread at a time."""

    def __init__(self) -> None:
        self.pointer = 0  # until there is one: an interrupt may come before
        self._dispose = _library().LLVMPY_ContextDispose
        self.pointer = _library().LLVMPY_ContextCreate()

    def __del__(self) -> None:
        if self.pointer:
            self._dispose(self.pointer)


class Module:
    """A module in LLVM's memory, read from its text."""

    def __init__(self, text: str, context: Context) -> None:
        """RuntimeError for what is no IR."""
        self.pointer = 0  # until there is one: an interrupt may come before
        said = _Said()
        self._context = context  # which goes after the module
        self._dispose = _library().LLVMPY_DisposeModule
        self.pointer = (
            _library().LLVMPY_ParseAssembly(context.pointer, text.encode(), said.out) or 0
        )
        if not self.pointer:
            raise RuntimeError(f"LLVM IR parsing error\n{said.take()}")

    def __del__(self) -> None:
        if self.pointer:
            self._dispose(self.pointer)

    def __str__(self) -> str:
        said = _Said()
        _library().LLVMPY_PrintModuleToString(self.pointer, said.out)
        return said.take()

    def set_triple(self, triple: str) -> None:
        """What the module is for."""
        _library().LLVMPY_SetTarget(self.pointer, triple.encode())

    def verify(self) -> None:
        """RuntimeError for a module that breaks a rule of IR."""
        said = _Said()
        if _library().LLVMPY_VerifyModule(self.pointer, said.out):
            raise RuntimeError(said.take())
        said.take()

    def link_in(self, other: Module) -> None:
        """Take over all of another module of the same context, which is none any more."""
        said = _Said()
        failed = _library().LLVMPY_LinkModules(self.pointer, other.pointer, said.out)
        other.pointer = 0
        if failed:
            raise RuntimeError(said.take())

    def optimise(self, machine: TargetMachine, *, unrolls: bool) -> None:
        """Run LLVM's middle-end. unrolls: whether it may write out the trips of loops."""
        library = _library()
        tuning = library.LLVMPY_CreatePipelineTuningOptions()
        # Loops that only LLVM turns into vectors gather their elements, four of them no faster.
        library.LLVMPY_PTOSetLoopInterleaving(tuning, False)
        library.LLVMPY_PTOSetLoopUnrolling(tuning, unrolls)
        builder = library.LLVMPY_CreatePassBuilder(machine.pointer, tuning)
        passes = library.LLVMPY_buildPerModuleDefaultPipeline(builder, _SPEED_LEVEL)
        library.LLVMPY_RunNewModulePassManager(passes, self.pointer, builder)
        library.LLVMPY_DisposeNewModulePassManger(passes)
        library.LLVMPY_DisposePassBuilder(builder)
        library.LLVMPY_DisposePipelineTuningOptions(tuning)
