"""Interface: what C has to know of a program: its arrays, its memory, its names.

module's entry, LinkTable, name --interface--> Interface --call_layout--> CallLayout
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

import hlo
from hlo.backend.ahead.options import SEPARATE, Options
from hlo.backend.entry.c_call_ir import CallLayout, Given
from hlo.backend.linking.compilation_cache import module_digest
from hlo.backend.linking.installing import result_shape
from hlo.backend.linking.link_table import LinkTable
from hlo.backend.planning.donation import donated_leaves
from hlo.errors import HloError
from hlo.hashing import hasher
from hlo.ir.dtype import DType
from hlo.ir.module import Module
from hlo.ir.shape import Shape, stored
from hlo.machine import ALIGNMENT, Machine, aligned
from hlo.passes.padding.boundary import Padded
from hlo.passes.padding.scope import SIZE

MOST_EMBEDDED = 1 << 30  # bytes of constants in an object
_SEPARATELY = "--weights=FILE, or weights='separate', keeps them apart"
# Words of C and C++ that no parameter may be called, and the wrapper's own names.
_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
asm alignas alignof and auto bool break case catch char class const constexpr continue
default delete do double else enum explicit export extern false float for friend goto if
inline int long mutable namespace new not nullptr operator or private protected public
register restrict return short signed sizeof static struct switch template this throw true
try typedef typeid typename union unsigned using virtual void volatile while xor arena
inputs outputs main
""",
    )
)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBERS = {"f32": "float", "f64": "double", "c64": "float", "c128": "double"}


class Leaf(Struct, frozen=True):
    """An array of the call. name: in C; shape: as it lies in memory; text: as HLO says it."""

    name: str
    shape: Shape
    text: str

    @property
    def is_array(self) -> bool:
        """Whether there are bytes; of a token there are none."""
        return self.shape.is_array

    @property
    def bytes(self) -> int:
        return self.shape.size_bytes if self.is_array else 0

    @property
    def type(self) -> str:
        """C's type of its numbers: parts of complex ones, codes of floats that C has not."""
        return c_type(self.shape.dtype) if self.is_array else "void"

    @property
    def count(self) -> int:
        """Of these numbers."""
        return self.shape.size * (2 if self.shape.dtype.is_complex else 1) if self.is_array else 0


class Interface(Struct, frozen=True):
    """The call of a program, as C knows it.

    arena_bytes: with the table, a multiple of ALIGNMENT.
    given: results that may lie in arguments' memory.
    is_sized: whether sizes change at run time.
    threads, threading: how many run parallel loops, and whose.
    functions: custom calls that whoever links defines.
    weights: the number of the input that all constants are, -1 where they are embedded.
    is_cancellable: a word of the caller's ends calls.
    machines: that there is code for.
    digest: of the module and all that its code depends on.
    """

    name: str
    module: str
    arguments: tuple[Leaf, ...]
    results: tuple[Leaf, ...]
    given: tuple[Given, ...]
    is_sized: bool
    arena_bytes: int
    constant_bytes: int
    threads: int
    threading: str
    functions: tuple[str, ...]
    weights: int
    is_cancellable: bool
    machines: tuple[str, ...]
    digest: str


def c_type(dtype: DType) -> str:
    """C's type of an element's numbers."""
    if dtype.name in _NUMBERS:
        return _NUMBERS[dtype.name]
    return f"{'' if dtype.is_signed else 'u'}int{8 * dtype.item_bytes}_t"


def identifier(name: str) -> str:
    """The C identifier nearest to a name of HLO."""
    clean = re.sub(r"[^A-Za-z0-9_]", "_", name).strip("_")
    if not clean or clean[0].isdigit():
        clean = f"x{clean}"
    return f"{clean}_" if clean in _WORDS else clean


def is_identifier(name: str) -> bool:
    """Whether a function of C can have the name."""
    return bool(_IDENTIFIER.fullmatch(name)) and name not in _WORDS and name[:2] != "__"


def check_name(name: str) -> str:
    """A function's name as it was asked for; HloError where C cannot have it."""
    if not is_identifier(name):
        near = identifier(name)
        message = f"compile_ahead: name is {name!r}, expected an identifier of C"
        raise HloError("arguments", message, help=f"{near} is one")
    return name


def interface(
    module: Module,
    padded: Padded | None,
    tables: Sequence[LinkTable],
    constant_bytes: int,
    name: str,
    machines: Sequence[Machine],
    functions: Iterable[str],
    options: Options,
) -> Interface:
    """The call's. padded: of a dynamic program; tables: of the machines' programs; functions: that
    it calls and others define."""
    arguments, results = leaves(module, padded)
    weights = -1
    if options.weights == SEPARATE:
        weights = len(arguments)
        taken = {leaf.name for leaf in (*arguments, *results)}
        shape = Shape.array("u8", (constant_bytes,))
        text = f"{shape}, all constants in the order of their file, aligned to {ALIGNMENT}"
        arguments += (Leaf(_unique("weights", taken), shape, text),)
    elif constant_bytes > MOST_EMBEDDED:
        message = f"compile_ahead: {constant_bytes} bytes of constants, expected at most "
        raise HloError("limit", f"{message}{MOST_EMBEDDED} in an object", help=_SEPARATELY)
    for leaf in (*arguments, *results):
        if not leaf.is_array and not leaf.shape.is_token:
            message = f"compile_ahead: {leaf.text}, expected arrays: C has no such value"
            raise HloError("unsupported", message)
    donated = {} if padded else donated_leaves(module)
    given = tuple(Given(r, a, arguments[a].bytes) for r, a in sorted(donated.items()))
    whole = max(
        _table_bytes(table, machine) + aligned(table.arena_bytes)
        for table, machine in zip(tables, machines, strict=True)
    )
    machine_facts = [machine.identity for machine in machines]
    facts = (hlo.__version__, module_digest(module), *machine_facts, name, *options.facts)
    return Interface(
        name,
        module.name,
        arguments,
        results,
        given,
        padded is not None,
        whole + (ALIGNMENT if padded else 0),
        constant_bytes,
        tables[0].threads,
        options.threads,
        tuple(dict.fromkeys(functions)),
        weights,
        options.is_cancellable,
        tuple(machine.name for machine in machines),
        hasher("\n".join(facts).encode()).hexdigest()[:32],
    )


def call_layout(
    made: Interface, table: LinkTable, machine: Machine, starts: Sequence[int], label: str
) -> CallLayout:
    """Where the call puts addresses. Arrays without bytes have none. starts: of the constants;
    label: of one machine among several."""
    first = _table_bytes(table, machine)
    arena = [(slot, first + offset) for slot, offset, _ in table.arena.tolist()]
    flag = made.arena_bytes - ALIGNMENT if made.is_sized else -1
    arena += [(slot, flag) for slot, n in table.results if n == len(made.results)]
    return CallLayout(
        made.name,
        arena,
        [(slot, starts[number]) for slot, number in table.fixed],
        [(slot, n) for slot, n in table.arguments if made.arguments[n].bytes],
        [(slot, n) for slot, n in table.results if n < len(made.results) and made.results[n].bytes],
        [pair for pair in made.given if pair.bytes],
        made.threads,
        flag,
        made.threading,
        made.weights if made.constant_bytes else -1,
        label,
        made.is_cancellable,
    )


def _table_bytes(table: LinkTable, machine: Machine) -> int:
    """Of the table of addresses, at the beginning of the arena."""
    return aligned(machine.address_bytes * table.slots)


def leaves(module: Module, padded: Padded | None) -> tuple[tuple[Leaf, ...], tuple[Leaf, ...]]:
    """The arrays that go in and those that come out, each list with its sizes behind it."""
    taken: set[str] = set()
    arguments: list[Leaf] = []
    firsts: list[int] = []
    for parameter in module.entry.parameters:
        shapes = list(parameter.shape.leaves())
        firsts.append(len(arguments))
        for k, shape in enumerate(shapes):
            own = identifier(parameter.name) + (f"_{k}" if len(shapes) > 1 else "")
            plain = shape.without_layout()
            arguments.append(Leaf(_unique(own, taken), plain, str(plain)))
    results = []
    shapes = list(result_shape(module).leaves())
    for k, shape in enumerate(shapes):
        own = f"result_{k}" if len(shapes) > 1 else "result"
        results.append(Leaf(_unique(own, taken), stored(shape), str(shape)))
    if padded is not None:
        sized = [(firsts[number] + k, d) for number, k, d in padded.given]
        arguments += [_size_of(arguments[n], d, taken) for n, d in sized]
        results += [_size_of(results[n], d, taken) for n, d in padded.found]
    return tuple(arguments), tuple(results)


def _size_of(leaf: Leaf, dimension: int, taken: set[str]) -> Leaf:
    """A size that changes at run time."""
    text = f"{SIZE}, the size of dimension {dimension} of {leaf.name}"
    return Leaf(_unique(f"{leaf.name}_size_{dimension}", taken), SIZE, text)


def _unique(name: str, taken: set[str]) -> str:
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    taken.add(found)
    return found
