"""Custom calls of XLA's stable FFI interface: C functions called with a call frame.

    operands, attributes --XLA_FFI_CallFrame--> handler --> results, or its error

A handler is asked for its version of the interface first. It is called once to instantiate and then
to prepare, initialise and execute, as far as it has these stages. A task that it gives to the
thread pool gets a thread of its own, so one that waits for others waits for no place.
Source: xla/ffi/api/c_api.h of jaxlib, major version 0, minor versions 1 to 3.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hlo.errors import HloError
from hlo.once import lock, once
from hlo.ops.custom_call import TARGETS, CustomCall
from hlo.runtime.ffi_attributes import ffi_attributes
from hlo.runtime.ffi_frames import (
    EXECUTE,
    STAGES,
    CallFrame,
    Metadata,
    MetadataExtension,
    Version,
    call_frame,
    interface,
)

MAJOR = 0
Handler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(CallFrame))


class Context:
    """What a handler asks of its call: states by stage and type, memory that it was given."""

    def __init__(self) -> None:
        self.states: dict[tuple[int, int], int] = {}
        self.memory: dict[int, Any] = {}


class Interface:
    """The functions that handlers call back, and what they hold. One for the process."""

    def __init__(self) -> None:
        self.errors: dict[int, str] = {}
        self.contexts: dict[int, Context] = {}
        self._numbers = itertools.count(1)
        self._types: dict[bytes, int] = {}
        self._lock = lock()
        self.api, self._kept = interface(self)

    def number(self) -> int:
        """A handle that nothing else has."""
        with self._lock:
            return next(self._numbers)

    def error(self, message: str) -> int:
        """The handle of a new error."""
        handle = self.number()
        self.errors[handle] = message
        return handle

    def type_number(self, name: bytes) -> int:
        """The number of a type that handlers register by name."""
        with self._lock:
            return self._types.setdefault(name, len(self._types) + 1)

    def run(self, task: Callable[[], object]) -> None:
        """A task of the thread pool, on a thread of its own."""
        threading.Thread(target=task, daemon=True).start()

    def threads(self) -> int:
        return os.cpu_count() or 1


@once
def _interface() -> Interface:
    return Interface()


def register_ffi(name: str, handler: object) -> None:
    """Let `custom_call_target="name"` call a handler of XLA's FFI.

    handler: the address of a C function, a capsule of it (jax.ffi.pycapsule), a ctypes function, or
    a dict of these by stage: instantiate, prepare, initialize, execute. Raises HloError where the
    handler is of another major version of the interface.
    """
    stages = handler if isinstance(handler, Mapping) else {"execute": handler}
    if "execute" not in stages or not set(stages) <= {*STAGES, "state"}:
        expected = "execute, and instantiate, prepare, initialize where it has them"
        raise HloError("arguments", f"register_ffi: stages {list(stages)}, expected {expected}")
    TARGETS[name] = _Target(
        name, {s: Handler(_address(h)) for s, h in stages.items() if s in STAGES}
    )


def _address(handler: Any) -> int:
    if isinstance(handler, int):
        return handler
    if hasattr(handler, "restype"):  # a ctypes function
        return ctypes.cast(handler, ctypes.c_void_p).value or 0
    if type(handler).__name__ != "PyCapsule":
        found = f"register_ffi: a {type(handler).__name__}"
        raise HloError("arguments", f"{found}, expected an address, a capsule or a ctypes function")
    name = ctypes.pythonapi.PyCapsule_GetName
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return int(pointer(handler, name(handler)))


class _Target:
    """What a custom call of a handler evaluates to."""

    def __init__(self, name: str, stages: dict[str, Any]) -> None:
        self._name, self._stages = name, stages
        self._lock = lock()
        self._contexts: dict[str, tuple[int, Context]] = {}  # by attributes, instantiated
        self._check_version()

    def _check_version(self) -> None:
        api = _interface().api
        metadata = Metadata(struct_size=Metadata.traits.offset + 4)
        metadata.api_version.struct_size = ctypes.sizeof(Version)
        extension = MetadataExtension(metadata=ctypes.pointer(metadata))
        extension.struct_size, extension.type = ctypes.sizeof(MetadataExtension), 1
        frame = CallFrame(struct_size=CallFrame.size())
        frame.extension_start = ctypes.addressof(extension)
        frame.api = ctypes.pointer(api)
        self._checked(self._stages["execute"](ctypes.byref(frame)))
        major = metadata.api_version.major_version
        if major != MAJOR:
            found = f"{self._name}: a handler of FFI version {major}.x"
            raise HloError("unsupported", f"{found}, expected {MAJOR}.x")

    def __call__(self, *operands: object, call: CustomCall) -> object:
        handle, _ = self._instantiated(call.backend_config)
        is_tuple = call.shape.is_tuple
        shapes = call.shape.elements if is_tuple else (call.shape,)
        results = [np.empty(s.dims, s.dtype.numpy) if s.is_array else None for s in shapes]
        values = [None if o is None else np.ascontiguousarray(o) for o in operands]
        for stage in STAGES[1:]:
            if stage in self._stages:
                self._enter(stage, values, results, call.backend_config, handle)
        return tuple(results) if is_tuple else results[0]

    def _instantiated(self, config: str) -> tuple[int, Context]:
        """The context of calls with these attributes, in which the handler's state lives."""
        with self._lock:
            found = self._contexts.get(config)
            if found is None:
                owner = _interface()
                found = owner.number(), Context()
                owner.contexts[found[0]] = found[1]
                if "instantiate" in self._stages:
                    self._enter("instantiate", [], [], config, found[0])
                self._contexts[config] = found
        return found

    def _enter(
        self, stage: str, values: list[Any], results: list[Any], config: str, handle: int
    ) -> None:
        is_run = stage == EXECUTE
        frame, kept = call_frame(
            _interface().api,
            STAGES.index(stage),
            values if is_run else [],
            results if is_run else [],
            ffi_attributes(config),
            handle,
        )
        self._checked(self._stages[stage](ctypes.byref(frame)))
        del kept  # what the frame points at

    def _checked(self, handle: int | None) -> None:
        if handle:
            message = _interface().errors.pop(handle, "an error that it did not make")
            raise HloError("arguments", f"{self._name}: {message}")
