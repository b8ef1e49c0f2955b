"""The structures of XLA's FFI interface, call frames made of arrays, and the functions behind it.

Every structure says its size up to the last field that its version knows. Source: c_api.h.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from hlo.runtime.futures import Futures

STAGES = ("instantiate", "prepare", "initialize", "execute")  # by their numbers
EXECUTE = "execute"
BUFFER = 1
ARRAY, DICTIONARY, SCALAR, STRING = 1, 2, 3, 4
UNIMPLEMENTED = "this package has no such function of the FFI interface"
# Numbers of element types, which are those of XLA's protocol buffers, by NumPy's names.
TYPES = {
    "bool": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint8": 6, "uint16": 7, "uint32": 8,
    "uint64": 9, "float16": 10, "float32": 11, "float64": 12, "complex64": 15, "bfloat16": 16,
    "complex128": 18, "float8_e5m2": 19, "float8_e4m3fn": 20, "int4": 21, "uint4": 22,
    "float8_e4m3b11fnuz": 23, "float8_e5m2fnuz": 24, "float8_e4m3fnuz": 25, "int2": 26, "uint2": 27,
    "float8_e4m3": 28, "float8_e3m4": 29, "int1": 30, "uint1": 31, "float4_e2m1fn": 32,
    "float8_e8m0fnu": 33,
}  # fmt: skip
TOKEN = 17
P, SIZE, I64, INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64, ctypes.c_int

Fields = tuple[tuple[str, Any], ...]


class _Struct(ctypes.Structure):
    """Begins with its size and the first of a chain of extensions."""

    _fields_: ClassVar[Fields] = (("struct_size", SIZE), ("extension_start", P))


class Version(_Struct):
    """The version of the interface that a structure follows."""

    _fields_ = (("major_version", INT), ("minor_version", INT))


class Span(ctypes.Structure):
    """Characters: where they begin, how many."""

    _fields_ = (("ptr", ctypes.c_char_p), ("len", SIZE))


class Buffer(_Struct):
    """An array: element type, address, dimensions."""

    _fields_ = (("dtype", INT), ("data", P), ("rank", I64), ("dims", ctypes.POINTER(I64)))


class Scalar(ctypes.Structure):
    """A number among the attributes."""

    _fields_ = (("dtype", INT), ("value", P))


class Array(ctypes.Structure):
    """Numbers among the attributes."""

    _fields_ = (("dtype", INT), ("size", SIZE), ("data", P))


class Values(_Struct):
    """Arguments, or results."""

    _fields_ = (("size", I64), ("types", ctypes.POINTER(INT)), ("values", ctypes.POINTER(P)))


class Attributes(_Struct):
    """Attributes by name, sorted."""

    _fields_ = (
        ("size", I64), ("types", ctypes.POINTER(INT)),
        ("names", ctypes.POINTER(ctypes.POINTER(Span))), ("values", ctypes.POINTER(P)),
    )  # fmt: skip


FUNCTIONS = (
    "error_create", "error_message", "error_destroy", "handler_register", "stream_get",
    "type_register", "context_get", "state_set", "state_get", "memory_allocate", "memory_free",
    "pool_schedule", "pool_threads", "future_create", "future_available", "future_error",
    "run_id", "device_ordinal",
)  # fmt: skip


class Api(_Struct):
    """The interface: its version, and a function for each of FUNCTIONS."""

    _fields_ = (("version", Version), ("internal", P), *((name, P) for name in FUNCTIONS))


class CallFrame(_Struct):
    """One call of a handler."""

    _fields_ = (
        ("api", ctypes.POINTER(Api)), ("context", P), ("stage", INT), ("arguments", Values),
        ("results", Values), ("attributes", Attributes), ("future", P),
    )  # fmt: skip

    @classmethod
    def size(cls) -> int:
        """Up to the attributes: what comes behind them handlers of all versions leave out."""
        return int(cls.attributes.offset) + ctypes.sizeof(Attributes)


class Metadata(ctypes.Structure):
    """What a handler tells of itself."""

    _fields_ = (
        ("struct_size", SIZE), ("api_version", Version), ("traits", ctypes.c_uint32),
        ("state_type", I64),
    )  # fmt: skip


class MetadataExtension(ctypes.Structure):
    """Asks a handler for its metadata instead of calling it."""

    _fields_ = (
        ("struct_size", SIZE), ("type", INT), ("next", P), ("metadata", ctypes.POINTER(Metadata)),
    )  # fmt: skip


def call_frame(
    api: Api,
    stage: int,
    values: Sequence[np.ndarray | None],
    results: Sequence[np.ndarray | None],
    attributes: Mapping[str, Any],
    context: int,
) -> tuple[CallFrame, list[Any]]:
    """A frame, and what has to live as long as it is used."""
    kept: list[Any] = []
    frame = CallFrame(struct_size=CallFrame.size(), api=ctypes.pointer(api), context=context)
    frame.stage = stage
    frame.arguments, frame.results = _values(values, kept), _values(results, kept)
    frame.attributes = _attributes(attributes, kept)
    return frame, kept


def _values(arrays: Sequence[np.ndarray | None], kept: list[Any]) -> Values:
    buffers = [_buffer(array, kept) for array in arrays]
    pointers = (P * max(1, len(arrays)))(*(ctypes.addressof(b) for b in buffers))
    types = (INT * max(1, len(arrays)))(*([BUFFER] * len(arrays)))
    kept += [buffers, pointers, types]
    return Values(ctypes.sizeof(Values), None, len(arrays), types, pointers)


def _buffer(array: np.ndarray | None, kept: list[Any]) -> Buffer:
    if array is None:
        return Buffer(ctypes.sizeof(Buffer), None, TOKEN, None, 0, None)
    dims = (I64 * max(1, array.ndim))(*array.shape)
    kept += [array, dims]
    address = array.__array_interface__["data"][0]
    kind = TYPES[array.dtype.name]
    return Buffer(ctypes.sizeof(Buffer), None, kind, address, array.ndim, dims)


def _attributes(found: Mapping[str, Any], kept: list[Any]) -> Attributes:
    """Sorted by name, as handlers look them up. Calls itself for each level of dictionaries."""
    names, types, values = [], [], []
    for name, value in sorted(found.items()):
        names.append(ctypes.pointer(Span(name.encode(), len(name.encode()))))
        kind, held = _attribute(value, kept)
        types.append(kind)
        values.append(ctypes.addressof(held))
        kept.append(held)
    count = max(1, len(names))
    listed = (ctypes.POINTER(Span) * count)(*names)
    made = (INT * count)(*types), listed, (P * count)(*values)
    kept += [names, made]
    return Attributes(ctypes.sizeof(Attributes), None, len(names), *made)


def _attribute(value: Any, kept: list[Any]) -> tuple[int, Any]:
    if isinstance(value, dict):
        return DICTIONARY, _attributes(value, kept)
    if isinstance(value, str):
        data = value.encode("utf-8", "surrogateescape")
        return STRING, Span(data, len(data))
    kept.append(value)
    address, kind = value.__array_interface__["data"][0], TYPES[value.dtype.name]
    return (
        (ARRAY, Array(kind, value.size, address)) if value.ndim else (SCALAR, Scalar(kind, address))
    )


# -- what handlers call ------------------------------------------------------------------------


class Owner(Protocol):
    """Who answers a handler's questions."""

    errors: dict[int, str]
    contexts: dict[int, Any]
    futures: Futures

    def number(self) -> int: ...
    def error(self, message: str) -> int: ...
    def type_number(self, name: bytes) -> int: ...
    def run(self, task: Callable[[], object]) -> None: ...
    def threads(self) -> int: ...


def _struct(*fields: tuple[str, Any]) -> type[ctypes.Structure]:
    return type("Given", (_Struct,), {"_fields_": fields})


_CREATE = _struct(("message", ctypes.c_char_p), ("code", INT))
_MESSAGE = _struct(("error", P), ("message", ctypes.c_char_p))
_TYPE = _struct(("name", Span), ("type", ctypes.POINTER(I64)), ("info", P))
_STATE = _struct(("context", P), ("stage", INT), ("type", ctypes.POINTER(I64)), ("state", P))
_STATE_1 = _struct(("context", P), ("type", ctypes.POINTER(I64)), ("state", P))
_MEMORY = _struct(("context", P), ("size", SIZE), ("alignment", SIZE), ("data", P))
_FREED = _struct(("context", P), ("size", SIZE), ("data", P))
_TASK = _struct(("context", P), ("task", ctypes.CFUNCTYPE(None, P)), ("data", P))
_THREADS = _struct(("context", P), ("count", ctypes.POINTER(I64)))
_NUMBER = _struct(("context", P), ("number", I64))
_FUTURE = _struct(("future", P))
_SETTLED = _struct(("future", P), ("error", P))
_ORDINAL = _struct(("context", P), ("number", ctypes.c_int32))


def interface(owner: Owner) -> tuple[Api, list[Any]]:
    """The interface, and the functions that it points at."""
    answers = _Answers(owner)
    api = Api(struct_size=ctypes.sizeof(Api))
    api.version = Version(ctypes.sizeof(Version), None, 0, 3)
    kept: list[Any] = []
    for name in FUNCTIONS:
        given = _GIVEN.get(name)
        function = _calling(answers, name, given) if given else _refusing(owner)
        setattr(api, name, ctypes.cast(function, P))
        kept.append(function)
    return api, kept


def _calling(answers: _Answers, name: str, given: type[ctypes.Structure]) -> Any:
    answer = getattr(answers, name)

    def call(pointer: Any) -> int:
        return int(answer(pointer[0]) or 0)

    return ctypes.CFUNCTYPE(P, ctypes.POINTER(given))(call)


def _refusing(owner: Owner) -> Any:
    return ctypes.CFUNCTYPE(P, P)(lambda pointer: owner.error(UNIMPLEMENTED))


_GIVEN: dict[str, type[ctypes.Structure]] = {
    "error_create": _CREATE, "error_message": _MESSAGE, "error_destroy": _MESSAGE,
    "type_register": _TYPE, "state_set": _STATE, "state_get": _STATE, "memory_allocate": _MEMORY,
    "memory_free": _FREED, "pool_schedule": _TASK, "pool_threads": _THREADS, "run_id": _NUMBER,
    "device_ordinal": _ORDINAL, "future_create": _FUTURE, "future_available": _FUTURE,
    "future_error": _SETTLED,
}  # fmt: skip


class _Answers:
    """One method for each function of the interface; what it returns is an error's handle, or 0."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._texts: dict[int, bytes] = {}

    def error_create(self, given: Any) -> int:
        return self._owner.error((given.message or b"").decode(errors="replace"))

    def error_message(self, given: Any) -> None:
        text = self._owner.errors.get(given.error, "").encode()
        self._texts[given.error] = text
        given.message = text

    def error_destroy(self, given: Any) -> None:
        self._owner.errors.pop(given.error, None)
        self._texts.pop(given.error, None)

    def type_register(self, given: Any) -> None:
        name = ctypes.string_at(given.name.ptr, given.name.len)
        if not given.type[0]:
            given.type[0] = self._owner.type_number(name)

    def _state(self, given: Any) -> tuple[Any, int, Any]:
        """The states of a context, the type's number, and the structure of the caller's version."""
        if given.struct_size < _STATE.state.offset + ctypes.sizeof(P):  # without a stage
            given = ctypes.cast(ctypes.addressof(given), ctypes.POINTER(_STATE_1))[0]
        return self._owner.contexts[given.context].states, given.type[0], given

    def state_set(self, given: Any) -> int:
        states, kind, told = self._state(given)
        states[(0, kind)] = told.state
        return 0

    def state_get(self, given: Any) -> int:
        states, kind, told = self._state(given)
        if (0, kind) not in states:
            return self._owner.error("no state of this type was set")
        told.state = states[(0, kind)]
        return 0

    def memory_allocate(self, given: Any) -> int:
        room = given.size + given.alignment
        block = ctypes.create_string_buffer(max(1, room))
        start = ctypes.addressof(block)
        given.data = start + (-start) % max(1, given.alignment)
        self._owner.contexts[given.context].memory[given.data] = block
        return 0

    def memory_free(self, given: Any) -> int:
        self._owner.contexts[given.context].memory.pop(given.data, None)
        return 0

    def pool_schedule(self, given: Any) -> int:
        task, data = given.task, given.data
        address = ctypes.cast(task, P).value or 0
        self._owner.run(lambda: ctypes.CFUNCTYPE(None, P)(address)(data))
        return 0

    def pool_threads(self, given: Any) -> int:
        given.count[0] = self._owner.threads()
        return 0

    def future_create(self, given: Any) -> int:
        handle = self._owner.number()
        self._owner.futures.create(handle)
        given.future = handle
        return 0

    def future_available(self, given: Any) -> int:
        is_known = self._owner.futures.settle(given.future)
        return 0 if is_known else self._owner.error("no such future")

    def future_error(self, given: Any) -> int:
        is_known = self._owner.futures.settle(given.future, given.error or 0)
        return 0 if is_known else self._owner.error("no such future")

    def run_id(self, given: Any) -> int:
        given.number = self._owner.number()
        return 0

    def device_ordinal(self, given: Any) -> int:
        given.number = 0
        return 0
