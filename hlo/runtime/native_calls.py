"""Native calls: an executable's ways into its native function (backend/entry/call_ir.py).

    arrays, numbers --native function--> results
    other objects --checked, made plain in Python--> the same native function

The native function takes leaves: plain arrays, NumPy scalars and Python numbers. Tuples are taken
apart for it and put together behind it. One further function is made for each set of arguments that
is given away. They share a stack of idle frames, which grows when calls meet. What they decline
nevertheless (None) is left to the slow call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from types import ModuleType

import numpy as np
from msgspec import Struct

from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape, stored
from hlo.process.once import lock
from hlo.runtime.frames import FramePool

MOST_TRIES = 8  # Tries of a call, as another thread may take its frame first.
MOST_FRAMES = 64  # idle ones that the native functions keep; further calls at once use others
Native = Callable[..., object]


class Foreign(Struct, frozen=True):
    """Arrays of another library, which a native function takes beside NumPy's.

    type: theirs; description: the name of the attribute that describes one, in which `dtype` and
    `weak` name NumPy's element type and whether that is weak. Only strong types are taken, and no
    numbers of Python's, which are weak. is_aligned: every result begins a line of 64 bytes, as
    that library wants it that is to share the memory.
    """

    type: type
    description: str
    dtype: str
    weak: str
    is_aligned: bool = False


class FastCall(Struct, frozen=True):
    """The functions of the process that make a native call.

    make: a native function from (what it calls for what it declines, the address of its stack of
    frames, the numbers of the argument leaves that are given away, other arrays). push: puts a
    frame's address on a stack of frames, in one step beside the calls of other threads.
    """

    make: Callable[[Native, int, frozenset[int], Foreign | None], Native]
    push: Callable[[int, int], object]


class Signature(Struct, frozen=True):
    """The entry's parameters and result; donated: result leaf -> argument leaf it may be in."""

    parameters: tuple[Instruction, ...]
    result: Shape
    donated: dict[int, int]

    @property
    def has_only_arrays(self) -> bool:
        """Whether all leaves are arrays."""
        shapes = (*(p.shape for p in self.parameters), self.result)
        return all(leaf.is_array for s in shapes for leaf in s.leaves())

    @property
    def is_plain(self) -> bool:
        """Whether parameters are arrays, and the result one or a flat tuple of them, row-major."""
        parts = self.result.elements if self.result.is_tuple else (self.result,)
        if not all(s.is_array for s in (*(p.shape for p in self.parameters), *parts)):
            return False
        return all(s.layout is None or s.layout.is_default_order for s in parts)

    def given_leaves(self, numbers: Collection[int]) -> frozenset[int]:
        """The argument leaves of the arguments of these numbers."""
        found: list[int] = []
        position = 0
        for number, parameter in enumerate(self.parameters):
            count = len(list(parameter.shape.leaves()))
            if number in numbers:
                found += range(position, position + count)
            position += count
        return frozenset(found)

    def takes_memory_as_it_is(self) -> bool:
        """Whether each result in an argument's memory has that argument's type and sizes."""
        arguments = [leaf for p in self.parameters for leaf in p.shape.leaves()]
        results = list(self.result.leaves())
        return all(
            (results[r].dtype, results[r].dims) == (arguments[a].dtype, arguments[a].dims)
            for r, a in self.donated.items()
        )


class NativeCalls:
    """The native functions of one executable. call: for arguments of which none is given away."""

    def __init__(
        self, fast: FastCall, frames: FramePool, signature: Signature, slow: Native
    ) -> None:
        self._fast, self._frames, self._signature, self._slow = fast, frames, signature, slow
        self._stack = np.zeros(1 + MOST_FRAMES, np.int64)  # their number, then idle frames
        self._address: int = self._stack.__array_interface__["data"][0]
        self._pushed = 0
        self._pushing = lock()
        self._push()
        self._parts = tuple(p.shape for p in signature.parameters)
        self._types = [leaf.dtype.numpy for part in self._parts for leaf in part.leaves()]
        self._sizes = [part.dims for part in self._parts]
        self._has_tuples = any(part.is_tuple for part in self._parts)
        self._forms = tuple(form_of(part) for part in self._parts)
        self._form = None if signature.is_plain else form_of(signature.result)
        self._own = self._made(_declined)
        self._giving: dict[tuple[int, ...], Native | None] = {}
        self.call = self._structured if self._form else self._made(self._converted)

    def alone(
        self, declining: Native, foreign: Foreign | None, given: Collection[int] = ()
    ) -> Native | None:
        """A native function with its own way out; None where tuples stand around the leaves, or
        the arguments of the numbers `given` cannot be given away.
        """
        if self._form or self._has_tuples:
            return None
        if given and not self._signature.takes_memory_as_it_is():
            return None
        return self._made(declining, frozenset(given), foreign)

    def giving(self, arguments: Sequence[object], donate: Collection[int]) -> object:
        """A call that gives the arguments of these numbers away; None if it is declined."""
        key = tuple(donate)
        native = self._giving.get(key)
        if native is None:
            native = self._giver(key)
            if native is None:
                return None
        made = self._tried(native, arguments)
        if made is None:
            made = self._again(native, arguments)
        return None if made is None else self._nested(made)

    def _tried(self, native: Native, arguments: Sequence[object]) -> object:
        """The native function's answer to the leaves of the arguments."""
        if not self._has_tuples:
            return native(*arguments)
        leaves: list[object] = []
        return native(*leaves) if _spread(arguments, self._forms, leaves) else None

    def _giver(self, key: tuple[int, ...]) -> Native | None:
        """The function for one set of numbers, if there can be one."""
        signature = self._signature
        known = all(0 <= number < len(signature.parameters) for number in key)
        if not known or not signature.takes_memory_as_it_is():
            return None
        native = self._giving[key] = self._made(_declined, signature.given_leaves(key))
        return native

    def _made(
        self,
        declining: Native,
        given: frozenset[int] = frozenset(),
        foreign: Foreign | None = None,
    ) -> Native:
        return self._fast.make(declining, self._address, given, foreign)

    def _push(self) -> None:
        """One more idle frame, where there is none and not too many are in use."""
        with self._pushing:
            if not self._stack[0] and self._pushed < MOST_FRAMES:
                self._pushed += 1
                self._fast.push(self._address, self._frames.take().address)

    def _structured(self, *arguments: object) -> object:
        """The call of a program with tuples or layouts."""
        made = self._tried(self._own, arguments)
        return self._converted(*arguments) if made is None else self._nested(made)

    def _converted(self, *arguments: object) -> object:
        """The call with objects that the native function does not know, or while it is busy."""
        made = self._again(self._own, arguments)
        return self._slow(*arguments) if made is None else self._nested(made)

    def _again(self, native: Native, arguments: Sequence[object]) -> object:
        """Further tries, with arrays of the plainest form and a frame that is idle."""
        leaves = self._leaves(arguments)
        for _ in range(MOST_TRIES):
            if not self._stack[0]:
                self._push()
            made = native(*leaves)
            if made is not None or self._stack[0]:
                return made
        return None  # other threads were first each time

    def _leaves(self, arguments: Sequence[object]) -> list[np.ndarray | None]:
        """Every leaf in its plainest form; HloError where an argument is not as it has to be."""
        if self._has_tuples or len(arguments) != len(self._parts):
            values = checking().checked_arguments(self._signature.parameters, arguments)
            return [plain(a, kind) for a, kind in zip(flattened(values), self._types, strict=True)]
        found: list[np.ndarray | None] = []
        rows = zip(arguments, self._types, self._sizes, strict=True)
        for number, (value, kind, sizes) in enumerate(rows):
            if type(value) is np.ndarray and value.dtype is kind and value.shape == sizes:
                array = value
            else:
                checked = checking().checked_parameter(self._signature.parameters, number, value)
                assert isinstance(checked, np.ndarray), "an array parameter takes arrays"
                array = checked
            found.append(plain(array, kind))
        return found

    def _nested(self, made: object) -> object:
        """The native function's leaves in the result's structure and layouts."""
        if self._form is None:
            return made
        return formed(iter(made if isinstance(made, tuple) else (made,)), self._form)


def checking() -> ModuleType:
    """The check of arguments in Python, which arrays that are as they should be never see."""
    from hlo.runtime import arguments

    return arguments


def _declined(*leaves: object) -> None:
    """What a native function answers to leaves that it does not take."""


def plain(leaf: np.ndarray | None, kind: np.dtype | None) -> np.ndarray | None:
    """The array or a copy of it: contiguous, aligned, of NumPy's own class and the very dtype."""
    if leaf is None:
        return None
    if not (leaf.flags.c_contiguous and leaf.flags.aligned):
        leaf = leaf.copy(order="C")
    return leaf if leaf.dtype is kind or kind is None else leaf.view(kind)


def flattened(value: object) -> Iterator[np.ndarray | None]:
    """The leaves of a value in order."""
    stack = [value]
    while stack:
        top = stack.pop()
        if isinstance(top, tuple):
            stack += reversed(top)
        elif top is None:
            yield None
        else:
            yield np.asarray(top)


def _spread(values: Sequence[object], forms: Sequence[Form], leaves: list[object]) -> bool:
    """Append the leaves of values; whether tuples are where the forms have them."""
    if len(values) != len(forms):
        return False
    for value, form in zip(values, forms, strict=False):
        if form.parts is None:
            leaves.append(value)
        elif not isinstance(value, tuple) or not _spread(value, form.parts, leaves):
            return False
    return True


def nested(leaves: Iterator[np.ndarray | None], shape: Shape) -> object:
    """Leaves, as they lie in memory, in the structure and under the dimensions of a shape."""
    return formed(leaves, form_of(shape))


def form_of(shape: Shape) -> Form:
    """What `formed` needs to know of a shape."""
    if shape.is_tuple:
        return Form(tuple(form_of(element) for element in shape.elements))
    if not shape.is_array or shape.layout is None or shape.layout.is_default_order:
        return Form()
    order = shape.layout.minor_to_major[::-1]
    return Form(axes=tuple(order.index(d) for d in range(len(order))), dims=stored(shape).dims)


class Form(Struct, frozen=True):
    """A tuple of parts, or a leaf.

    axes: which of the dimensions `dims` of memory each of the leaf's is, None for 0, 1, ...
    """

    parts: tuple[Form, ...] | None = None
    axes: tuple[int, ...] | None = None
    dims: tuple[int, ...] = ()


def formed(leaves: Iterator[np.ndarray | None], result: Form) -> object:
    """Leaves in the structure of a form."""
    if result.parts is not None:
        return tuple([formed(leaves, part) for part in result.parts])
    array = next(leaves)
    if array is None or result.axes is None:
        return array
    return array.reshape(result.dims).transpose(result.axes)  # an argument given away has its own
