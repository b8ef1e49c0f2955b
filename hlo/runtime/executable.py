"""Executable: a compiled program that is called like a function.

    arrays --check, addresses into the frame's table, native entry--> arrays

The fast path is native (native_calls.py). `_slow_call` does what is left: host calls, tokens, and
donations between arrays of different sizes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hlo.errors import HloError
from hlo.ir.shape import Shape, stored
from hlo.process.memory import LARGE, available_bytes
from hlo.runtime.frames import Frame, FrameLayout, FramePool
from hlo.runtime.memory import MemoryReport
from hlo.runtime.native_calls import (
    FastCall,
    Foreign,
    NativeCalls,
    Signature,
    checking,
    flattened,
    nested,
    plain,
)
from hlo.runtime.stops import Enter, checked_timeout, limited, raise_stopped

_NONE: tuple[int, ...] = ()  # nothing given away, told by identity
EntryFunction = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


Weights = Mapping[Any, object]  # arrays by the names or numbers of their parameters


class Program(Protocol):
    """What is compiled, however it is run."""

    @property
    def temporary_bytes(self) -> int: ...

    def __call__(
        self, *arguments: object, donate: Collection[int] = ..., timeout: float | None = None
    ) -> object: ...

    def run_guarded(self, *arguments: object) -> object: ...

    def bind(self, weights: Weights) -> Program: ...

    def run_devices(
        self, arguments: Sequence[Sequence[object]], *, timeout: float | None = None
    ) -> list[object]: ...

    def memory_report(self) -> str: ...


Binder = Callable[[Weights], Program]


def no_binder(weights: Weights) -> Program:
    """Of what is compiled by other ways than `hlo.compile`, which knows how it was asked for."""
    message = "bind: nothing says how this program was compiled, expected one of hlo.compile"
    help = "hlo.bind(module, weights) makes constants of weights before a module is compiled"
    raise HloError("unsupported", message, help=help)


class Host(Protocol):
    """What native code calls back for steps that run in Python."""

    def begin(self) -> None:
        """A run starts on this thread."""

    def __call__(self, step: int, table: np.ndarray) -> None:
        """Do a step on the addresses in the frame's table; raises on failure."""


class Executable:
    """Machine code with its constants and memory. Safe to call from several threads at once."""

    def __init__(
        self,
        signature: Signature,
        layout: FrameLayout,
        entry_address: int,
        *,
        memory: MemoryReport,
        host: Host | None = None,
        fast_call: FastCall | None = None,
        stops: Enter | None = None,
        keeps: object = None,
    ) -> None:
        self.signature = signature
        self.memory = memory
        self.binder: Binder = no_binder
        self._address = entry_address
        self._entry = EntryFunction(entry_address)
        self._stops = stops  # of a program whose runs can be stopped
        self._host = host
        self._keeps = keeps  # code and constants
        self._frames = FramePool(layout if host is None else self._calling_back(layout))
        self._results = tuple(stored(leaf) for leaf in signature.result.leaves())
        self._call: Callable[..., object] = self._slow_call
        self._native: NativeCalls | None = None
        if fast_call is not None and signature.has_only_arrays and host is None:
            try:
                self._native = NativeCalls(fast_call, self._frames, signature, self._slow_call)
            except MemoryError:
                raise memory.too_large() from None
            self._call = self._native.call
        if memory.run_bytes > LARGE:
            self._native_call, self._call = self._call, self._first_call

    def __call__(
        self, *arguments: object, donate: Collection[int] = _NONE, timeout: float | None = None
    ) -> object:
        """The program's result, fresh arrays or nested tuples of them.

        donate: numbers of arguments whose memory the program may take for results where its header
        says so (`input_output_alias`); they must not be used afterwards. timeout: seconds after
        which the run is stopped (`timeout`). Of a run that is stopped, arguments are as they were,
        but for those in `donate`, whose values are undefined.
        """
        if timeout is not None:
            return self._within(checked_timeout(timeout), arguments, donate)
        try:
            if donate is _NONE:
                return self._call(*arguments)
            return self._donated_call(arguments, self._numbers(donate))
        except MemoryError:
            raise self.memory.too_large() from None

    def __copy__(self) -> Executable:
        """Itself: nothing of it changes."""
        return self

    def __deepcopy__(self, memo: object) -> Executable:
        return self

    def __reduce__(self) -> str:
        raise HloError(
            "unsupported",
            "an executable is code of this process, which no other one can have",
            help="pass its module or its text on, and compile that there",
        )

    def bind(self, weights: Weights) -> Program:
        """The same program with some parameters bound to arrays; its calls take the others.

        weights: arrays by the parameters' names (str) or numbers (int), of their shapes and types;
        they are copied, so that later changes of them change nothing. The program is compiled as
        this one was, for these constants: factors of products are packed now, what depends on
        constants alone is computed now. Takes as long as compiling; this one stays as it is.
        Raises HloError `arguments` for a name that is none, a value that does not fit, a parameter
        that is no array or whose memory the program may write over, and where the module that was
        compiled has been edited since.
        """
        return self.binder(weights)

    def __repr__(self) -> str:
        given = ", ".join(f"{p.name}: {p.shape}" for p in self.signature.parameters)
        return f"<hlo.Executable ({given}) -> {self.signature.result}>"

    def _repr_html_(self) -> str:
        """For notebooks: what it takes and gives, and its memory."""
        import html  # for notebooks alone

        return f"<pre>{html.escape(repr(self))}\n{html.escape(str(self.memory))}</pre>"

    def _numbers(self, donate: object) -> tuple[int, ...]:
        return checked_numbers(donate, len(self.signature.parameters))

    def _donated_call(self, arguments: tuple[object, ...], donate: tuple[int, ...]) -> object:
        if not donate:
            return self._call(*arguments)
        made = None if self._native is None else self._native.giving(arguments, donate)
        return self._slow_call(*arguments, donate=donate) if made is None else made

    def _first_call(self, *arguments: object) -> object:
        """The first call of a program that takes much: the system promises memory that it has not,
        and ends who uses it. Later ones find the memory of the first.
        """
        if self.memory.run_bytes > available_bytes():
            raise self.memory.too_large()
        self._call = self._native_call
        return self._call(*arguments)

    def _within(
        self, seconds: float, arguments: tuple[object, ...], donate: Collection[int]
    ) -> object:
        """A call with a limit of time, which programs that end in no time do not need."""
        if self._stops is None:
            return self(*arguments, donate=donate)
        with limited(seconds, self._stops.limit):
            return self(*arguments, donate=donate)

    def native(
        self,
        declining: Callable[..., object],
        foreign: Foreign | None = None,
        given: Collection[int] = _NONE,
    ) -> Callable[..., object] | None:
        """The native function alone, which takes plain leaves and gives a flat result's leaves.

        foreign: other arrays that it takes, then of strong types only. given: numbers of arguments
        that it gives away. It calls `declining` for arguments that it does not take. None where a
        call is more than it.
        """
        if self._native is None or self.memory.run_bytes > LARGE:
            return None
        return self._native.alone(declining, foreign, given)

    def run_devices(
        self, arguments: Sequence[Sequence[object]], *, timeout: float | None = None
    ) -> list[object]:
        """One list of arguments per device; compiled code runs on one."""
        if len(arguments) != 1:
            message = f"run_devices: {len(arguments)} lists of arguments, expected 1"
            raise HloError("unsupported", f"{message}: compiled code runs on one device")
        return [self(*arguments[0], timeout=timeout)]

    @property
    def temporary_bytes(self) -> int:
        """Bytes of the arena and of all threads' scratch memory: what a run needs beside arguments,
        results and constants.
        """
        return self.memory.temporary_bytes

    def memory_report(self) -> str:
        return str(self.memory)

    # -- the slow path -------------------------------------------------------------------------

    def _slow_call(self, *arguments: object, donate: Collection[int] = ()) -> object:
        """The same in Python, for arguments of every form."""
        values = checking().checked_arguments(self.signature.parameters, arguments)
        given = self._flat(values, donate)
        frame = self._frames.take()
        try:
            results = self._run(frame, given)
        finally:
            self._frames.give_back(frame)
        return self._nested(results)

    def _flat(self, values: tuple[object, ...], donate: Collection[int]) -> list[_Given]:
        """Every argument leaf as a C-contiguous array, with whether its memory was given away."""
        given: list[_Given] = []
        for number, value in enumerate(values):
            for leaf in flattened(value):
                array = plain(leaf, None)
                is_kept = number not in donate or array is None or not array.flags.writeable
                given.append(_Given(array, is_kept))
        check_donations([g.array for g in given], [g.is_kept for g in given])
        return given

    def _run(self, frame: Frame, given: list[_Given]) -> list[np.ndarray | None]:
        """Run on a frame; gives the result leaves."""
        layout = self._frames.layout
        results: list[np.ndarray | None] = []
        for number, shape in enumerate(self._results):
            argument = self.signature.donated.get(number)
            if not shape.is_array:
                results.append(None)
            elif argument is not None:
                donated = given[argument]
                assert donated.array is not None, "a donated leaf is an array"
                memory = donated.array.copy() if donated.is_kept else donated.array
                results.append(_seen_as(memory, shape))
            else:
                results.append(np.empty(shape.dims, shape.dtype.numpy))
        frame.set_addresses(layout.arguments, addresses([g.array for g in given]))
        frame.set_addresses(layout.results, addresses(results))
        self._enter(frame)
        return results

    def _enter(self, frame: Frame) -> None:
        """The native entry; an exception of a host call goes on here."""
        frame.error = None
        if self._host is not None:
            self._host.begin()
        if self._stops is None:
            status = self._entry(frame.address)
        else:
            status = self._stops.enter(self._address, frame.address)
        if status != 0:
            error, frame.error = frame.error, None
            if error is None:
                raise_stopped(status)
            raise error

    def _called_back(self, number: int | None, step: int) -> int:
        """A host call from native code. What it raises is kept: nothing passes native frames."""
        frame = self._frames.numbered(number or 0)
        try:
            assert self._host is not None, "a program with host steps has a host"
            self._host(step, frame.table)
        except BaseException as error:
            frame.error = error
            return 1
        return 0

    def _calling_back(self, layout: FrameLayout) -> FrameLayout:
        """The layout with the address that native code calls for host steps."""
        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64)
        self._callback = kind(self._called_back)  # lives as long as the code
        address = ctypes.cast(self._callback, ctypes.c_void_p).value or 0
        return replace(layout, head=(address, *layout.head[1:]))

    def _nested(self, results: list[np.ndarray | None]) -> object:
        """The result's structure and layouts around its leaves."""
        return nested(iter(results), self.signature.result)

    # -- test modes ----------------------------------------------------------------------------

    def run_guarded(self, *arguments: object) -> object:
        """A run in which every buffer ends at a forbidden page and temporaries begin as NaN.

        A stray access ends the process with a signal: for tests.
        """
        values = checking().checked_arguments(self.signature.parameters, arguments)
        given = self._flat(values, ())
        frame = self._frames.take()  # its number, under which host calls find the table
        guarded = Frame(self._frames.layout, frame.number, guarded=True)
        guarded.poison()
        kept = frame.table
        frame.table = guarded.table
        try:
            results = self._run_between_guards(frame, given)
        finally:
            frame.table = kept
            self._frames.give_back(frame)
        return self._nested(results)

    def _run_between_guards(self, frame: Frame, given: list[_Given]) -> list[np.ndarray | None]:
        from hlo.runtime.guard import GuardedMemory  # for tests alone

        layout = self._frames.layout
        inputs = [GuardedMemory(0 if g.array is None else g.array.nbytes) for g in given]
        for memory, leaf in zip(inputs, given, strict=True):
            if leaf.array is not None:
                memory.put(leaf.array.tobytes())
        outputs: list[GuardedMemory] = []
        for number, shape in enumerate(self._results):
            memory = GuardedMemory(shape.size_bytes if shape.is_array else 0)
            memory.fill(0xFF)
            argument = self.signature.donated.get(number)
            if argument is not None:
                memory.put(inputs[argument].get())
            outputs.append(memory)
        frame.set_addresses(layout.arguments, np.array([m.address for m in inputs], np.uint64))
        frame.set_addresses(layout.results, np.array([m.address for m in outputs], np.uint64))
        self._enter(frame)
        return [
            np.frombuffer(m.get(), s.dtype.numpy).reshape(s.dims).copy() if s.is_array else None
            for m, s in zip(outputs, self._results, strict=True)
        ]


def _seen_as(memory: np.ndarray, shape: Shape) -> np.ndarray:
    """A donated array as the result that takes its memory: of equal size, maybe another shape."""
    if memory.shape == shape.dims and memory.dtype == shape.dtype.numpy:
        return memory
    element = shape.dtype.numpy
    assert element is not None, "results are arrays of a type that NumPy holds"
    return memory.reshape(-1).view(element).reshape(shape.dims)


def checked_numbers(donate: object, count: int) -> tuple[int, ...]:
    """The numbers of the arguments that are given away, each once; HloError for anything else."""
    expected = f"a collection of numbers from 0 to {count - 1}" if count else "none: no arguments"
    if isinstance(donate, str | bytes) or not isinstance(donate, Collection):
        raise HloError("arguments", f"donate is {donate!r}, expected {expected}")
    numbers: list[int] = []
    for number in donate:
        if isinstance(number, bool | np.bool_) or not isinstance(number, int | np.integer):
            raise HloError("arguments", f"donate names {number!r}, expected {expected}")
        if not 0 <= number < count:
            raise HloError("arguments", f"donate names argument {number}, expected {expected}")
        numbers.append(int(number))
    return tuple(dict.fromkeys(numbers))


class _Given(Struct, frozen=True):
    """An argument leaf. is_kept: the caller goes on using its memory."""

    array: np.ndarray | None
    is_kept: bool


def check_donations(arrays: Sequence[np.ndarray | None], kept: Sequence[bool]) -> None:
    """Refuse memory that is given away and passed for another argument as well."""
    for n, (array, is_kept) in enumerate(zip(arrays, kept, strict=True)):
        if is_kept or array is None:
            continue
        for m, other in enumerate(arrays):
            if m != n and other is not None and np.may_share_memory(array, other):
                message = "an argument that is given away (donate) shares memory with another one"
                raise HloError("arguments", f"{message}, expected memory of its own")


def addresses(arrays: Sequence[np.ndarray | None]) -> np.ndarray:
    """Where the arrays' bytes begin; 0 for what has none."""
    found = [0 if a is None else a.__array_interface__["data"][0] for a in arrays]
    return np.array(found, np.uint64)
