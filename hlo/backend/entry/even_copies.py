"""Even copies: what kernels of a loop copy, in pieces of the size that its other kernels work with.

    load <32 x i16>, store   =>   two of <16 x i16>, where f16 arithmetic takes 16 at a time

LLVM keeps an array in registers where all accesses are alike. A wide load of what was stored in
parts does worse than go through memory: it waits until all parts are there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from hlo.backend.ir.functions import Function
from hlo.backend.ir.records import GetElementPtr, Instruction, Line, Load, names_of
from hlo.backend.ir.values import Value, vector_of

MOST_PIECES = 4
_ELEMENTWISE = ", align 1"  # How the records end by which kernels read and write arrays.
_SCALARS = ("float", "double", "half")


def even(functions: Sequence[Function]) -> list[Function]:
    """The functions with their copies cut. O(their records)."""
    copied = [_copied(f) for f in functions]
    others: dict[str, set[int]] = defaultdict(set)  # sizes of what is no copy
    for function, values in zip(functions, copied, strict=True):
        for record in function.records:
            moved = _moved(record)
            is_counted = moved is not None and values.isdisjoint(names_of((record,)))
            if moved is not None and is_counted and _is_number(moved):
                others[moved.scalar_type].add(moved.lanes)
    return [
        replace(f, records=list(_cut(f.records, values, others))) if values else f
        for f, values in zip(functions, copied, strict=True)
    ]


def _moved(record: Line) -> Value | None:
    """What a record loads or stores."""
    if isinstance(record, Load):
        return record.value
    if isinstance(record, Instruction) and record.opcode == "store":
        return record.operands[0]
    return None


def _is_number(value: Value) -> bool:
    return value.lanes > 1 or value.type in _SCALARS or value.type.startswith("i")


def _copied(function: Function) -> set[str]:
    """Vectors that are loaded and stored, and nothing else."""
    loaded, stored = set[str](), set[str]()
    for record in function.records:
        moved = _moved(record)
        if moved is not None and moved.lanes > 1 and record.rest == _ELEMENTWISE:  # type: ignore[union-attr]
            (loaded if isinstance(record, Load) else stored).add(moved.text)
    both = loaded & stored
    if not both:
        return both
    uses = Counter(names_of(function.records))
    return {value for value in both if uses[value] == 2}


def _cut(records: Sequence[Line], copied: set[str], others: dict[str, set[int]]) -> Iterator[Line]:
    """The records, those that copy as loads and stores of pieces."""
    for record in records:
        moved = _moved(record)
        count = _pieces(moved, others) if moved is not None and moved.text in copied else 1
        if moved is None or count == 1:
            yield record
            continue
        size, element = moved.lanes // count, moved.scalar_type
        address, type = record.operands[-1], vector_of(element, size)
        is_load = isinstance(record, Load)
        for n in range(count):
            place = Value(f"{moved}.{'l' if is_load else 's'}{n}", "ptr")
            operands = (address, Value(str(n * size), "i64"))
            opcode = "getelementptr inbounds"
            yield GetElementPtr(place.text, "ptr", opcode, operands, element=element)
            part = Value(f"{moved}.l{n}v", type)
            if is_load:
                yield Load(part.text, type, "load", (place,), _ELEMENTWISE)
            else:
                yield Instruction("", "void", "store", (part, place), _ELEMENTWISE)


def _pieces(moved: Value, others: dict[str, set[int]]) -> int:
    """In how many pieces a copied vector goes."""
    sizes = [n for n in others.get(moved.scalar_type, ()) if moved.lanes % n == 0]
    return moved.lanes // max(sizes) if sizes and moved.lanes <= MOST_PIECES * max(sizes) else 1
