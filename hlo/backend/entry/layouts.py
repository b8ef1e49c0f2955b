"""Layouts: memory that native code and Python both know, and Python's and NumPy's objects.

What writes native code loads and stores these fields; call_record.py fills the words of the call's,
and native.py looks whether objects are laid out so. Sources: CPython's and NumPy's headers.
"""

from __future__ import annotations

from hlo.backend.ir.interface import Field
from hlo.backend.planning.slots import (
    SLOT_CALLS,
    SLOT_DEADLINE,
    SLOT_FUEL,
    SLOT_MAIN,
    SLOT_NEXT,
    SLOT_STOP,
)


class Record:
    """The call record. frames: a stack of idle frames' addresses, their number first. slow: the
    Python callable for what is not as expected. waker: 0, or what to call early, before arguments
    are checked: threads take their time to wake. stopped: the Python callable that raises what a
    run ends with that stopped for another reason than an exception. foreign: 0, or of which other
    library arrays are taken. tries: whether runs show who runs the program's loops (trials_ir);
    what they have shown: whether the next one's caller is alone; how long runs take; of a trial,
    the shortest, runs left (0: there is no trial) and how long all took; nanoseconds until the next
    trial; runs so far, of the first ones.
    """

    nargs = Field(0)
    nresults = Field(8)
    frames = Field(16, "ptr")
    entry = Field(24, "ptr")
    slow = Field(32, "ptr")
    flags = Field(40)
    argument_slots = Field(48, "ptr")
    argument_count = Field(56)
    result_slots = Field(64, "ptr")
    result_count = Field(72)
    arguments = Field(80, "ptr")
    results = Field(88, "ptr")
    waker = Field(96, "ptr")
    stopped = Field(104, "ptr")
    foreign = Field(112, "ptr")
    tries = Field(120)
    alone = Field(128)
    cost = Field(136)
    best = Field(144)
    left = Field(152)
    spent = Field(160)
    rest = Field(168)
    runs = Field(176)
    words = 23


class Foreign:
    """Arrays of another library (foreign_ir): their type; names of attributes: the description,
    and in it the element type, NumPy's, and whether it is weak; the object False.
    """

    type = Field(0, "ptr")
    description = Field(8, "ptr")
    dtype = Field(16, "ptr")
    weak = Field(24, "ptr")
    false = Field(32, "ptr")
    words = 5


class Row:
    """An argument or a result in the call record. Of an argument: the kind of number and the type
    of NumPy's scalars that are taken (scalar_ir); of a result, in their places: the number of the
    argument in whose memory it is, plus one, and from how many bytes on it gets a block of the free
    list (block_ir). given: whether that memory is given away.
    """

    dtype = Field(0, "ptr")
    rank = Field(8)
    sizes = Field(16, "ptr")
    bytes = Field(24)
    kind = Field(32)
    partner = Field(32)
    scalar = Field(40, "ptr")
    blocks_from = Field(40)
    given = Field(48)
    words = 7


class Relocation:
    """An address that goes into a frame's table: the slot, the number of the argument or result."""

    slot = Field(0)
    number = Field(8)
    words = 2


class Object:
    """A Python object; numbers begin behind it."""

    type = Field(8, "ptr")
    content = Field(16, "ptr")


class Array:
    """NumPy's array."""

    data = Field(16, "ptr")
    rank = Field(24, "i32")
    sizes = Field(32, "ptr")
    dtype = Field(56, "ptr")
    flags = Field(64, "i32")


class Description:
    """NumPy's description of a type (`dtype`): the class of its scalars; kind, letter, byte order,
    flags and number of the type in one word.
    """

    scalar = Field(16, "ptr")
    identity = Field(24)


class Buffer:
    """A view of Python's buffer protocol."""

    data = Field(0, "ptr")
    rank = Field(36, "i32")
    sizes = Field(48, "ptr")
    words = 10


class Handler:
    """A call of a handler of XLA's FFI (handler_ir). entry: the native function that makes it;
    template: the call frame with all that it points at and that changes; pointers: pairs of places
    in it, where a pointer is and what it points at; copies: what results begin with, triples of the
    rows of result and operand and their bytes; buffers: pairs of a place in the template and the
    row of an address. stages: functions or null. wait: a future's error, when it is there. failed:
    takes an error.
    """

    entry = Field(0, "ptr")
    template = Field(8, "ptr")
    bytes = Field(16)
    pointers = Field(24, "ptr")
    pointer_count = Field(32)
    copies = Field(40, "ptr")
    copy_count = Field(48)
    buffers = Field(56, "ptr")
    buffer_count = Field(64)
    stages = (Field(72, "ptr"), Field(80, "ptr"), Field(88, "ptr"))
    wait = Field(96, "ptr")
    failed = Field(104, "ptr")
    words = 14


class CallFrame:
    """XLA's call frame (c_api.h): the stage, how many arguments and results, the future."""

    stage = Field(32, "i32")
    arguments = Field(56)
    results = Field(96)
    future = Field(168, "ptr")


class Frame:
    """The header of a frame's table (slots.py)."""

    stop = Field(8 * SLOT_STOP)
    fuel = Field(8 * SLOT_FUEL)
    next = Field(8 * SLOT_NEXT)
    deadline = Field(8 * SLOT_DEADLINE)
    main = Field(8 * SLOT_MAIN, "ptr")
    calls = Field(8 * SLOT_CALLS, "ptr")


class ListedCall:
    """A row of a listed program's calls, behind the word that counts them: the kernel, the slot
    where its addresses begin, how many units it has.
    """

    kernel = Field(0, "ptr")
    slot = Field(8)
    units = Field(16)
    words = 3
