"""Custom calls of XLA's stable FFI interface: C functions called with a call frame.

    operands, attributes --XLA_FFI_CallFrame--> handler --> results, or its error

A handler is asked for its version of the interface first. It is called once to instantiate and then
to prepare, initialise and execute, as far as it has these stages. A task that it gives to the
thread pool gets a thread of its own, so one that waits for others waits for no place. A future that
it leaves is waited for. Compiled code calls it natively (hlo/backend/entry/handler_ir.py); the
reference, and layouts that are not by rows, go through here.
Source: xla/ffi/api/c_api.h of jaxlib, major version 0, minor versions 1 to 3.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hlo.errors import HloError, checked_count
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.ops.custom_targets import HANDLERS, REGISTERED, TARGETS, CustomCall
from hlo.process.once import lock, once
from hlo.runtime.ffi_attributes import ffi_attributes
from hlo.runtime.ffi_calls import Template, frame_template
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
from hlo.runtime.futures import Futures
from hlo.runtime.native_calls import flattened, nested
from hlo.runtime.stops import fail

MAJOR = 0
Handler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(CallFrame))


Wait = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
Failed = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


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
        self.futures = Futures()
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

    def message(self, handle: int) -> str:
        """What an error says, which then is forgotten."""
        return self.errors.pop(handle, "an error that it did not make")

    def awaited(self, handle: int) -> int:
        """The error of a future once it is there, or 0."""
        error = self.futures.awaited(handle)
        return self.error("a future that it did not make") if error is None else error

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


@once
def waiting() -> Any:
    """The function of C that waits for a future: its error, or null."""
    return Wait(lambda handle: _interface().awaited(handle or 0))


def failing(handlers: Handlers) -> Any:
    """The function of C that takes the error of one of these handlers, for the end of the run."""
    return Failed(lambda handle: fail(handlers.failure(handle or 0)))


def register_ffi(name: str, handler: object) -> None:
    """Let `custom_call_target="name"` call a handler of XLA's FFI.

    handler: the address of a C function, a capsule of it (jax.ffi.pycapsule), a ctypes function, or
    a dict of these by stage: instantiate, prepare, initialize, execute. Raises HloError where the
    handler is of another major version of the interface, or its stages lack `execute`.

    hlo.register_ffi("norm", ctypes.CDLL("./libnorm.so").Norm)
    """
    stages = handler if isinstance(handler, Mapping) else {"execute": handler}
    if "execute" not in stages or not set(stages) <= {*STAGES, "state"}:
        expected = "execute, and instantiate, prepare, initialize where it has them"
        raise HloError("arguments", f"register_ffi: stages {list(stages)}, expected {expected}")
    known = {s: Handler(_address(h)) for s, h in stages.items() if s in STAGES}
    TARGETS[name] = Handlers(name, known)
    HANDLERS.add(name)
    REGISTERED.discard(name)


def _address(handler: Any) -> int:
    if isinstance(handler, int):
        return checked_count("register_ffi: the address", handler)
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


class Handlers:
    """The handlers of a target, by stage: what its custom calls evaluate to."""

    def __init__(self, name: str, stages: dict[str, Any]) -> None:
        self._name, self._stages = name, stages
        self._lock = lock()
        self._contexts: dict[str, int] = {}  # by attributes, instantiated
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

    def addresses(self) -> list[int]:
        """The functions of the stages of a call, 0 where there is none."""
        found = [self._stages.get(stage) for stage in STAGES[1:]]
        return [0 if f is None else ctypes.cast(f, ctypes.c_void_p).value or 0 for f in found]

    def template(self, instruction: Instruction) -> Template | None:
        """The frame of an instruction's calls; None where it is too large. It is instantiated."""
        config = str(instruction.get("backend_config", ""))
        context = self._instantiated(config)
        operands = [leaf for o in instruction.operands for leaf in o.shape.leaves()]
        results = list(instruction.shape.leaves())
        shared = shared_leaves(instruction)
        api = _interface().api
        return frame_template(api, operands, results, ffi_attributes(config), context, shared)

    def __call__(self, *operands: object, call: CustomCall) -> object:
        """The results, of arrays laid out as the instruction says."""
        instruction = call.context.instruction
        context = self._instantiated(call.backend_config)
        parts = list(flattened(operands))
        kept = [_laid_out(a, m) for a, m in zip(parts, operand_orders(instruction), strict=True)]
        shapes = list(instruction.shape.leaves())
        made = [_room(s) for s in shapes]
        for result, operand in shared_leaves(instruction).items():
            made[result] = kept[operand] = kept[operand].copy(order="K")
        attributes = ffi_attributes(call.backend_config)
        for stage in STAGES[1:]:
            if stage in self._stages:
                self._enter(stage, kept, made, attributes, context)
        arrays = iter([None if a is None else np.asarray(a, order="C") for a in made])
        return nested(arrays, instruction.shape.without_layout())

    def _instantiated(self, config: str) -> int:
        """The context of calls with these attributes, in which the handler's state lives."""
        with self._lock:
            found = self._contexts.get(config)
            if found is None:
                owner = _interface()
                found = owner.number()
                owner.contexts[found] = Context()
                if "instantiate" in self._stages:
                    self._enter("instantiate", [], [], ffi_attributes(config), found)
                self._contexts[config] = found
        return found

    def _enter(
        self,
        stage: str,
        values: list[Any],
        results: list[Any],
        attributes: dict[str, Any],
        context: int,
    ) -> None:
        is_run = stage == EXECUTE
        frame, kept = call_frame(
            _interface().api,
            STAGES.index(stage),
            values if is_run else [],
            results if is_run else [],
            attributes,
            context,
        )
        self._checked(self._stages[stage](ctypes.byref(frame)))
        if frame.future:
            self._checked(_interface().awaited(frame.future))
        del kept  # what the frame points at

    def _checked(self, handle: int | None) -> None:
        if handle:
            raise self.failure(handle)

    def failure(self, handle: int) -> HloError:
        """The error of a handler."""
        return HloError("arguments", f"{self._name}: {_interface().message(handle)}")


def handlers_of(instruction: Instruction) -> Handlers:
    """The handlers of a custom call that has some."""
    found = TARGETS[str(instruction["custom_call_target"])]
    assert isinstance(found, Handlers), "the target of a handler"
    return found


def operand_orders(instruction: Instruction) -> list[tuple[int, ...]]:
    """Of every operand leaf: which dimensions its memory has from the slowest, () for 0, 1, ..."""
    given: Any = instruction.get("operand_layout_constraints")
    shapes: Sequence[Shape] = given or [o.shape for o in instruction.operands]
    return [_order(leaf) if given else () for shape in shapes for leaf in shape.leaves()]


def _order(leaf: Shape) -> tuple[int, ...]:
    if not leaf.is_array or leaf.layout is None or leaf.layout.is_default_order:
        return ()
    return tuple(leaf.layout.minor_to_major[::-1])


def shared_leaves(instruction: Instruction) -> dict[int, int]:
    """Result leaf -> operand leaf of the pairs that the instruction wants in one memory."""
    aliases: Any = instruction.get("output_to_operand_aliasing") or ()
    firsts = [0]
    for operand in instruction.operands:
        firsts.append(firsts[-1] + len(list(operand.shape.leaves())))
    return {(alias.output[0] if alias.output else 0): firsts[alias.operand] for alias in aliases}


def _laid_out(array: np.ndarray | None, order: tuple[int, ...]) -> Any:
    """The array in memory of that order, under its own dimensions."""
    if array is None or not order:
        return None if array is None else np.asarray(array, order="C")
    inverse = [order.index(d) for d in range(len(order))]
    return np.ascontiguousarray(array.transpose(order)).transpose(inverse)


def _room(leaf: Shape) -> Any:
    """Memory for a result, in its layout's order."""
    if not leaf.is_array:
        return None
    return _laid_out(np.empty(leaf.dims, leaf.dtype.numpy), _order(leaf))
