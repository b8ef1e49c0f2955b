"""Folding: which instructions of LLVM's IR are none of the machine's, or a part of another one.

    blocks --folded--> names of results

What nobody uses; lanes of a vector that stay where they are; a number that is loaded to all lanes;
a sign that a product turns. On machines with such instructions (isa: folds) two bitwise operations,
a rotation, and a selection between a result and something else are one each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from hlo.backend.ir.records import Call, Instruction, Load, Phi
from hlo.backend.ir.values import counted

_SHIFTS = {"shl", "lshr"}


def folded(blocks: Sequence[Sequence[Instruction]], *, folds: bool) -> frozenset[str]:
    """The names of what takes no time of its own."""
    records = [record for block in blocks for record in block if record.name]
    uses = Counter(o.text for block in blocks for record in block for o in record.operands)
    made = {record.name: record for record in records}
    free = _unused(records, uses)

    def only_for(name: str) -> Instruction | None:
        """What makes a value that has one use, seen through changes of its type."""
        found = made.get(name)
        while found is not None and uses[found.name] == 1 and found.opcode == "bitcast":
            found = made.get(found.operands[0].text)
        return found if found and uses[found.name] == 1 and found.name not in free else None

    for record in records:
        if record.name not in free and _is_loaded_so(record, made):
            free.add(record.name)
        elif record.name not in free:
            inner = [one for o in record.operands if (one := only_for(o.text)) is not None]
            free |= _parts(record, inner, folds=folds and record.value.lanes > 1)
    return frozenset(free)


def _is_loaded_so(record: Instruction, made: Mapping[str, Instruction]) -> bool:
    """Whether it is a scalar at the place of a vector's first lane, which is its register, or in
    all lanes as it was loaded.
    """
    if record.opcode == "insertelement":
        return record.operands[0].is_constant
    if record.opcode != "shufflevector" or record.operands[2].text != "zeroinitializer":
        return False
    first = made.get(record.operands[0].text)
    if first is None or first.opcode != "insertelement":
        return False
    return isinstance(made.get(first.operands[1].text), Load)


def _unused(records: Sequence[Instruction], uses: Counter[str]) -> set[str]:
    """What nobody uses, nor what only that uses."""
    free: set[str] = set()
    for record in reversed(records):
        if not uses[record.name] and not isinstance(record, Call | Load | Phi):
            free.add(record.name)
            uses.subtract(o.text for o in record.operands)
    return free


def _parts(record: Instruction, inner: list[Instruction], *, folds: bool) -> set[str]:
    """What is a part of an instruction, itself where it is one of what comes before. inner: what
    its operands are, as far as they are for it alone.
    """
    if record.opcode == "shufflevector":
        return {record.name} if _stays(record) else set()
    if isinstance(record, Call) and record.symbol.startswith("llvm.fma."):
        return {one.name for one in inner if one.opcode == "fneg"}
    if not folds:
        return set()
    if record.opcode == "or" and {one.opcode for one in inner} == _SHIFTS:
        return {one.name for one in inner}
    if _is_bitwise(record):
        return {one.name for one in [*filter(_is_bitwise, inner)][:1]}
    if record.opcode == "select":
        arms = [one for one in inner if one.value.scalar_type != "i1"]
        return {record.name} if any(not isinstance(one, Load) for one in arms) else set()
    return set()


def _is_bitwise(record: Instruction) -> bool:
    match record.opcode:
        case "and" | "or" | "xor":
            return True
    return False


def _stays(shuffle: Instruction) -> bool:
    """Whether lanes stay where they are: the first ones, or all with nothing or zeros behind."""
    first, second, order = shuffle.operands
    is_prefix = order.text == counted("i32", order.lanes).text
    return is_prefix and (order.lanes <= first.lanes or second.is_constant)
