"""Memory accesses of lanes: a load, a splat, a reversed or a gathered load, as the index says.

    position (a symbolic index) + element type --load--> compute lanes; lanes --store--> memory

The position's growth per lane decides: 1 a vector load, 0 a scalar (splat where it is used), -1 and
a few elements loads and shuffles, otherwise a gather. A masked-off lane touches no memory.
"""

from __future__ import annotations

from msgspec import Struct

from hlo.backend.ir.values import listed
from hlo.backend.ir.writer import Value, vector_of
from hlo.backend.lanes import masked, strided, types
from hlo.backend.lanes.nest import Nest, fits
from hlo.backend.lanes.types import Lanes, scalar_bits
from hlo.indexing.affine import Atom, DivMod, Expr, Variable, stride
from hlo.ir.dtype import DType

_MANY = 16  # Lanes from which a test of the whole run takes less than a branch for each of them.


class Memory(Struct, frozen=True):
    """An array in memory: base address, element type, number of elements, entry in the table."""

    base: Value
    dtype: DType
    size: int
    leaf: int = -1

    @property
    def size_bytes(self) -> int:
        return self.size * self.dtype.item_bytes


def lane_atom(e: Expr) -> Atom | None:
    """The loop variable or opaque value by which neighbouring lanes differ."""
    for atom in e.terms:
        if atom.lanes > 1:
            return lane_atom(atom.inner) if isinstance(atom, DivMod) else atom
    return None


def mask_of(e: Expr) -> Value | None:
    """The lanes that are in the loop's range, None where all are."""
    atom = lane_atom(e)
    return getattr(atom, "mask", None)


# -- loads -----------------------------------------------------------------------------------


def load(nest: Nest, memory: Memory, position: Expr, guard: Value | None) -> Lanes:
    """The elements at the position. guard: lanes (or a scalar) for which it is in bounds."""
    if memory.dtype.is_complex:
        return _load_complex(nest, memory, position, guard)
    raw = _load_raw(nest, memory, position, guard, types.storage_scalar(memory.dtype))
    return types.decoded(nest.w, nest.target, raw, memory.dtype)


def _load_raw(
    nest: Nest, memory: Memory, position: Expr, guard: Value | None, element: str
) -> Value:
    lanes = position.lanes
    if lanes == 1:
        return nest.w.load(_scalar_address(nest, memory, position, guard, element), element, 1)
    step = stride(position)
    mask = _both(nest, mask_of(position), guard, lanes)
    if step == 1:
        pointer = nest.pointer(memory.base, position, element)
        return _load_run(nest, memory, pointer, mask, element, lanes)
    if step == -1:
        return _load_reversed(nest, memory, position, mask, element)
    if step is not None:
        picked = _load_apart(nest, memory, position, step, mask, element)
        if picked is not None:
            return picked
    if step is None and memory.leaf >= 0:
        from hlo.backend.lanes import small_tables

        held = small_tables.looked_up(nest, memory.base, memory.size, position, element)
        if held is not None:
            return held
    base, offsets = lane_offsets(nest, memory, position, element)
    if element in _NARROW and nest.target.isa.gathers_words:
        return _gather_narrow(nest, base, offsets, mask, element)
    addresses = _addresses(nest, base, offsets, element)
    return masked.gather(nest.w, vector_of(element, lanes), addresses, 1, mask)


def _load_apart(
    nest: Nest, memory: Memory, place: Expr, step: int, mask: Value | None, element: str
) -> Value | None:
    """Lanes so many elements apart, read as what lies between the first and the last; None where a
    gather is better. place: in elements of the type in memory, of which complex numbers are two."""
    isa, item_bytes = nest.target.isa, scalar_bits(element) // 8
    if mask is not None and not isa.masks_loads_of(8 * item_bytes):
        return None
    vector_bytes, shuffles = nest.target.vector_bytes, isa.permutes_bytes
    found = strided.stretch(step, place.lanes, item_bytes, vector_bytes, shuffles=shuffles)
    if found is None:
        return None
    lowest = place + min(0, step * (place.lanes - 1))
    pointer = nest.pointer(memory.base, lowest, element)
    return strided.load_stretch(nest, pointer, element, found, mask)


def _scalar_address(
    nest: Nest, memory: Memory, position: Expr, guard: Value | None, element: str
) -> Value:
    """Where one element lies; anywhere in the array where a guard says it is out of bounds."""
    if guard is None:
        return nest.pointer(memory.base, position, element)
    w = nest.w
    index = nest.scalar(position)
    index = w.intrinsic("llvm.smax", "i64", index, w.int(0))
    index = w.intrinsic("llvm.smin", "i64", index, w.int(memory.size - 1))
    return w.address(memory.base, index, element)


def _load_run(
    nest: Nest, memory: Memory, pointer: Value, mask: Value | None, element: str, lanes: int
) -> Value:
    type = vector_of(element, lanes)
    if mask is not None and mask.mask is None:
        item_bytes = memory.dtype.item_bytes // (2 if memory.dtype.is_complex else 1)
        last = memory.size_bytes - lanes * item_bytes
        is_branched = lanes >= _MANY and not nest.target.isa.masks_loads_of(8 * item_bytes)
        if is_branched and last >= 0:
            from hlo.backend.lanes import guarded_runs  # for programs that pad, or have windows

            return guarded_runs.load(nest, type, memory.base, last, pointer, mask)
    return masked.load(nest.w, type, pointer, 1, mask)


def _load_reversed(
    nest: Nest, memory: Memory, position: Expr, mask: Value | None, element: str
) -> Value:
    lanes = position.lanes
    first = nest.pointer(memory.base, position - (lanes - 1), element)
    turned = None if mask is None else masked.reversed_lanes(nest.w, mask)
    return reversed_lanes(nest, _load_run(nest, memory, first, turned, element, lanes))


def reversed_lanes(nest: Nest, value: Value) -> Value:
    """The lanes in the opposite order."""
    return nest.w.shuffle(value, None, range(value.lanes - 1, -1, -1))


def lane_offsets(
    nest: Nest, memory: Memory, position: Expr, element: str, scale: int = 1
) -> tuple[Value, Value]:
    """A scalar base and the lanes' own offsets from it, in elements."""
    lanes = position.lanes
    uniform = Expr({a: k for a, k in position.terms.items() if a.lanes == 1}, position.constant)
    varying = {a: k * scale for a, k in position.terms.items() if a.lanes > 1}
    # A loop variable's lane 0 goes to the base, so that a constant stride leaves constant offsets.
    steps: dict[Atom, int] = {a: k for a, k in varying.items() if isinstance(a, Variable)}
    base = nest.pointer(memory.base, uniform * scale + Expr(dict(steps), 0), element)
    w = nest.w
    offsets: Value | None = None
    moved: tuple[int, ...] = ()  # the constant ones
    if steps:
        total = sum(steps.values())
        scalar = "i32" if abs(total) * lanes < 1 << 31 else "i64"
        moved = tuple(total * lane for lane in range(lanes))
        offsets = listed(scalar, moved)
    rest = Expr({a: k for a, k in varying.items() if a not in steps}, 0)
    if rest.terms:
        scalar = (
            "i64" if not fits(rest, 30) or (offsets and offsets.scalar_type == "i64") else "i32"
        )
        if offsets is not None and offsets.scalar_type != scalar:
            offsets = listed(scalar, moved)
        values = nest.lane_values(rest, lanes, scalar)
        offsets = values if offsets is None else w.binary("add", values, offsets)
    assert offsets is not None, "lanes differ"
    return base, offsets


def _addresses(nest: Nest, base: Value, offsets: Value, element: str) -> Value:
    """One address per lane."""
    return nest.w.offset("getelementptr", base, offsets, element)


_NARROW = {"i8": 2, "i16": 1}  # How many bits of an index say where in a word an element lies.


def _gather_narrow(
    nest: Nest, base: Value, offsets: Value, mask: Value | None, element: str
) -> Value:
    """The aligned words that hold the elements: processors gather nothing narrower, and a word
    never reaches into a page that its element does not."""
    w, lanes, bits = nest.w, offsets.lanes, _NARROW[element]
    start = w.cast("ptrtoint", base, "i64")
    words = w.cast("inttoptr", w.binary("and", start, w.int(-4)), "ptr")
    first = w.binary("lshr", w.binary("and", start, w.int(3)), w.int(2 - bits))
    if offsets.scalar_type != "i64":
        first = w.cast("trunc", first, offsets.scalar_type)
    index = w.binary("add", offsets, w.splat(first, lanes))
    word = w.binary("ashr", index, w.int(bits, index.type))
    addresses = _addresses(nest, words, word, "i32")
    loaded = masked.gather(w, vector_of("i32", lanes), addresses, 1, mask)
    place = w.binary("and", index, w.int((1 << bits) - 1, index.type))
    if offsets.scalar_type != "i32":
        place = w.cast("trunc", place, loaded.type)
    moved = w.binary("shl", place, w.int(5 - bits, loaded.type))
    return w.cast("trunc", w.binary("lshr", loaded, moved), vector_of(element, lanes))


def _load_complex(nest: Nest, memory: Memory, position: Expr, guard: Value | None) -> Lanes:
    w = nest.w
    element = types.storage_scalar(memory.dtype)
    lanes = position.lanes
    if lanes == 1:
        pair = w.address(
            _scalar_address(nest, memory, position, guard, f"[2 x {element}]"), w.int(0), element
        )
        return w.load(pair, element), w.load(w.address(pair, w.int(1), element), element)
    mask = _both(nest, mask_of(position), guard, lanes)
    step = stride(position)
    if step == 1:
        both = None if mask is None else masked.doubled(nest.w, mask)
        pointer = nest.pointer(memory.base, position * 2, element)
        wide = _load_run(nest, memory, pointer, both, element, 2 * lanes)
        return w.every_second(wide, 0), w.every_second(wide, 1)
    if step is not None:
        parts = [
            _load_apart(nest, memory, position * 2 + part, 2 * step, mask, element)
            for part in (0, 1)
        ]
        real, imaginary = parts
        if real is not None and imaginary is not None:
            return real, imaginary
    addresses = _addresses(nest, *lane_offsets(nest, memory, position, element, 2), element)
    next_addresses = w.offset("getelementptr", addresses, w.int(1), element)
    type = vector_of(element, lanes)
    return (
        masked.gather(w, type, addresses, 1, mask),
        masked.gather(w, type, next_addresses, 1, mask),
    )


def _both(nest: Nest, mask: Value | None, guard: Value | None, lanes: int) -> Value | None:
    if guard is None:
        return mask
    guard = nest.w.splat(guard, lanes)
    return guard if mask is None else nest.w.binary("and", mask, guard)


# -- stores ----------------------------------------------------------------------------------


def store(nest: Nest, memory: Memory, position: Expr, lanes: Lanes) -> None:
    """Write the elements; lanes that are masked off stay as they were."""
    w = nest.w
    nest.stores(memory.leaf)
    element = types.storage_scalar(memory.dtype)
    values = tuple(w.splat(v, position.lanes) for v in types.parts(lanes))
    raw = [types.encoded(w, nest.target, v, memory.dtype) for v in values]
    if len(raw) == 2:
        _store_complex(nest, memory, position, (raw[0], raw[1]), element)
        return
    if position.lanes == 1:
        w.store(raw[0], nest.pointer(memory.base, position, element), 1)
        return
    mask = mask_of(position)
    if stride(position) == 1:
        masked.store(w, raw[0], nest.pointer(memory.base, position, element), 1, mask)
    else:
        addresses = _addresses(nest, *lane_offsets(nest, memory, position, element), element)
        masked.scatter(w, raw[0], addresses, 1, mask)


def lane_zero(atom: Atom) -> Atom:
    """A loop variable over lanes as the position of its lane 0."""
    if atom.lanes == 1:
        return atom
    assert isinstance(atom, Variable), "lanes lie a constant stride apart"
    return Variable(atom.name, atom.low, atom.high, atom.depth, 1, atom.value)


def _store_complex(
    nest: Nest, memory: Memory, position: Expr, raw: tuple[Value, Value], element: str
) -> None:
    w = nest.w
    real, imaginary = raw
    lanes = position.lanes
    if lanes == 1:
        pointer = nest.pointer(memory.base, position * 2, element)
        w.store(real, pointer, 1)
        w.store(imaginary, w.address(pointer, w.int(1), element), 1)
        return
    mask = mask_of(position)
    if stride(position) == 1:
        pairs = w.interleaved(real, imaginary)
        both = None if mask is None else masked.doubled(nest.w, mask)
        masked.store(w, pairs, nest.pointer(memory.base, position * 2, element), 1, both)
        return
    addresses = _addresses(nest, *lane_offsets(nest, memory, position, element, 2), element)
    masked.scatter(w, real, addresses, 1, mask)
    second = w.offset("getelementptr", addresses, w.int(1), element)
    masked.scatter(w, imaginary, second, 1, mask)
