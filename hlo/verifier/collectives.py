"""Collectives: groups of devices that exist, each once, and sizes that fit their numbers.

A header count of 1 may mean "not said": what needs the real count is left out then.
"""

from __future__ import annotations

from hlo.attributes.replica_groups import IotaGroups, ListGroups, MeshGroups, ReplicaGroups
from hlo.errors import Violation
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Shape, shape_text
from hlo.ops.device_groups import BOTH, CROSS_PARTITION, FLATTENED, group_mode, id_count
from hlo.ops.table import OPS
from hlo.verifier.report import Report

ALL_REDUCES = frozenset({"all-reduce", "all-reduce-start"})
PERMUTES = frozenset({"collective-permute", "collective-permute-start"})
PARTIAL = frozenset({"collective-broadcast"})  # devices may be in no group


def check(module: Module, report: Report) -> None:
    """V30 to V38."""
    replicas = _count(module, "replica_count")
    partitions = _count(module, "num_partitions")
    constrained: Instruction | None = None
    first: Instruction | None = None
    for computation in module.computations:
        for instruction in computation.instructions:
            opcode = instruction.opcode
            if opcode in ALL_REDUCES:
                first = first or instruction
                if _constrains(instruction) != _constrains(first):
                    constrained = constrained or instruction
            if opcode in PERMUTES or "replica_groups" in OPS[opcode].attrs:
                try:
                    _check_one(instruction, replicas, partitions)
                except Violation as violation:
                    report.add(instruction, violation)
    if constrained is not None and first is not None:
        found, expected = "unlike other all-reduces", f"the same everywhere, as in {first.name}"
        at = "constrain_layout" if "constrain_layout" in constrained.attributes else ""
        report.broken(constrained, "attribute-value", at, found, expected, "V38")


def _count(module: Module, name: str) -> int:
    found = module.attributes.get(name, 1)
    return found if isinstance(found, int) else 1


def _constrains(instruction: Instruction) -> bool:
    return bool(instruction.attributes.get("constrain_layout", False))


def _check_one(instruction: Instruction, replicas: int, partitions: int) -> None:
    given = instruction.attributes
    channel = given.get("channel_id")
    has_ids = "use_global_device_ids" in OPS[instruction.opcode].attrs
    ids = bool(given.get("use_global_device_ids", False)) if has_ids else None
    if ids and channel is None:
        at, found = "use_global_device_ids", "true without channel_id"
        raise Violation("attribute-value", at, found, "false, or a channel_id", "V31")
    if instruction.opcode in ALL_REDUCES and channel is not None and channel <= 0:  # type: ignore[operator]  # an int
        raise Violation("attribute-value", "channel_id", f"{channel}", "at least 1", "V32")
    mode = group_mode(channel, ids)  # type: ignore[arg-type]  # an int or None
    if instruction.opcode in PERMUTES:
        count = partitions if mode == CROSS_PARTITION else replicas
        _check_pairs(instruction, count)
        return
    groups = given.get("replica_groups", ListGroups())
    assert isinstance(groups, ListGroups | IotaGroups | MeshGroups), "replica groups"
    _check_groups(instruction, groups, mode, id_count(mode, replicas, partitions))
    size = _group_size(groups, mode, replicas, partitions)
    if size > 1:
        _check_sizes(instruction, size)


def _check_pairs(instruction: Instruction, count: int) -> None:
    at = "source_target_pairs"
    for pair in instruction.attributes.get(at, ()):  # type: ignore[attr-defined]  # pairs
        beyond = next((i for i in pair if count != 1 and i >= count), None)
        if beyond is not None:
            found, expected = f"such that there is an id {beyond}", f"ids below {count}"
            raise Violation("attribute-value", at, found, expected, "V36")


def _check_groups(instruction: Instruction, groups: ReplicaGroups, mode: str, count: int) -> None:
    """V30: the ids 0..n-1, each in one group, groups of one size."""
    at = "replica_groups"
    if isinstance(groups, IotaGroups):
        total = groups.count * groups.size
        if groups.count < 1 or groups.size < 1 or total != groups.iota.size:
            found, expected = f"{groups}", f"{groups.iota.size} places for as many ids"
            raise Violation("attribute-value", at, found, expected, "V30")
        if not groups.iota.is_permutation:
            raise Violation("attribute-value", at, f"{groups}", "a transposition", "V30")
    elif isinstance(groups, MeshGroups):
        total = groups.mesh.size
        if total < 1:
            raise Violation("attribute-value", at, f"{groups}", "a mesh that has devices", "V30")
    else:
        if not groups.lists:
            if mode == FLATTENED:
                expected = "groups beside use_global_device_ids=true"
                where = at if at in instruction.attributes else ""
                raise Violation("attribute-value", where, "empty", expected, "V30")
            return
        total = _check_lists(instruction, groups)
    if count not in (1, total) and instruction.opcode not in PARTIAL:
        found = f"{groups}, {total} ids"
        raise Violation("attribute-value", at, found, f"{count}, as the header says", "V30")


def _check_lists(instruction: Instruction, groups: ListGroups) -> int:
    at = "replica_groups"
    ids = [i for group in groups.lists for i in group]
    if not all(groups.lists):
        raise Violation("attribute-value", at, f"{groups}", "no empty group", "V30")
    seen: set[int] = set()
    for i in ids:
        if i < 0 or (i >= len(ids) and instruction.opcode not in PARTIAL):
            found, expected = f"{groups}, with {i}", f"ids from 0 to {len(ids) - 1}"
            raise Violation("attribute-value", at, found, expected, "V30")
        if i in seen:
            raise Violation("attribute-value", at, f"{groups}, {i} twice", "each id once", "V30")
        seen.add(i)
    sizes = {len(group) for group in groups.lists}
    if len(sizes) > 1 and instruction.opcode not in (*ALL_REDUCES, *PARTIAL):
        raise Violation("attribute-value", at, f"{groups}", "groups of one size", "V30")
    return len(ids)


def _group_size(groups: ReplicaGroups, mode: str, replicas: int, partitions: int) -> int:
    """Devices in a group; 1 where that is not known."""
    if isinstance(groups, IotaGroups):
        members = groups.size
    elif isinstance(groups, MeshGroups):
        members = groups.members
    elif groups.lists:
        members = len(groups.lists[0])
    else:
        members = id_count(mode, replicas, partitions)
    return members * partitions if mode == BOTH else members


def _check_sizes(instruction: Instruction, size: int) -> None:
    """V33, V34, V35: shards and blocks, as many as a group has members."""
    opcode, operands = instruction.opcode, instruction.operands
    dimensions = instruction.attributes.get("dimensions")
    if opcode == "all-to-all" and dimensions is None:
        if len(operands) != size:
            found = f"{len(operands)} operands"
            raise Violation("arity", "", found, f"{size}, one per group member", "V35")
        return
    if not dimensions or not operands:
        return
    assert isinstance(dimensions, tuple), "a tuple of ints"
    d: int = dimensions[0]
    source, result = operands[0].shape, _result(instruction)
    if not 0 <= d < min(source.rank, result.rank):
        return  # infer has reported it
    if opcode == "all-to-all" and source.dims[d] % size:
        found = shape_text(source, layout=False)
        expected = f"a multiple of {size} in dimension {d}"
        raise Violation("shape-mismatch", "operand 0", found, expected, "V35")
    if opcode in ("all-gather", "all-gather-start"):
        _check_ratio(source.dims[d], result, d, size, "V33")
    elif opcode == "reduce-scatter" and source.dims[d] != result.dims[d] * size:
        found = shape_text(result, layout=False)
        expected = f"1/{size} of {source.dims[d]} in dimension {d}"
        raise Violation("shape-mismatch", "result", found, expected, "V34")


def _check_ratio(small: int, result: Shape, d: int, size: int, label: str) -> None:
    if result.dims[d] != small * size:
        found = shape_text(result, layout=False)
        expected = f"{small} x {size} in dimension {d}"
        raise Violation("shape-mismatch", "result", found, expected, label)


def _result(instruction: Instruction) -> Shape:
    shape = instruction.shape
    if instruction.opcode == "all-gather-start" and len(shape.elements) == 2:
        shape = shape.elements[1]
    return shape.elements[0] if shape.is_tuple and shape.elements else shape
