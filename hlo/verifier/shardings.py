"""Shardings fit the shapes that they cut and the devices that there are."""

from __future__ import annotations

from hlo.attributes.mesh_sharding import MeshSharding
from hlo.attributes.sharding import TupleSharding
from hlo.attributes.subgroups import Tile
from hlo.attributes.tile_sharding import TileSharding
from hlo.errors import Violation
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Shape, shape_text
from hlo.ops.table import Trait, opcodes
from hlo.verifier.report import Report

# Their shardings speak of more than the result: tokens, or the arrays before and after.
UNCHECKED = opcodes(Trait.TRANSFERS) | {"after-all"}


def check(module: Module, report: Report) -> None:
    """V65."""
    partitions = module.attributes.get("num_partitions", 1)
    count = partitions if isinstance(partitions, int) else 1
    for computation in module.computations:
        for instruction in computation.instructions:
            if "sharding" in instruction.attributes and instruction.opcode not in UNCHECKED:
                try:
                    _check_sharding(instruction, count)
                except Violation as violation:
                    report.add(instruction, violation)


def _check_sharding(instruction: Instruction, partitions: int) -> None:
    sharding, shape = instruction.attributes["sharding"], instruction.shape
    if isinstance(sharding, TupleSharding):
        if not shape.is_tuple:
            found, expected = "one of a tuple", f"one of an array, {shape_text(shape)}"
            raise Violation("sharding", "sharding", found, expected, "V65")
        leaves = list(shape.leaves())
        if len(sharding.elements) != max(len(leaves), 1):
            found = f"one of {len(sharding.elements)} parts"
            expected = f"{len(leaves)}, the leaves of {shape_text(shape)}"
            raise Violation("sharding", "sharding", found, expected, "V65")
        for leaf, part in zip(leaves, sharding.elements, strict=False):
            _check_leaf(leaf, part, partitions)
    elif not shape.is_tuple:
        assert isinstance(sharding, TileSharding | MeshSharding), "a sharding"
        _check_leaf(shape, sharding, partitions)


def _check_leaf(leaf: Shape, sharding: TileSharding | MeshSharding, partitions: int) -> None:
    if isinstance(sharding, MeshSharding):
        if sharding.kind == "tiled" and leaf.is_array and len(sharding.dims) != leaf.rank:
            found = f"one of {len(sharding.dims)} dimensions"
            expected = f"{leaf.rank}, the rank of {shape_text(leaf)}"
            raise Violation("sharding", "sharding", found, expected, "V65")
        return
    if sharding.kind == "maximal" and sharding.device < 0:
        raise Violation("sharding", "sharding", f"on device {sharding.device}", "0 or more", "V65")
    if sharding.tile is not None:
        _check_tile(leaf, sharding.tile, partitions)


def _check_tile(leaf: Shape, tile: Tile, partitions: int) -> None:
    rank = len(tile.dims) - len(tile.subgroups)
    if leaf.is_array and rank != leaf.rank:
        found = f"one of {rank} dimensions"
        expected = f"{leaf.rank}, the rank of {shape_text(leaf, layout=False)}"
        raise Violation("sharding", "sharding", found, expected, "V65")
    if isinstance(tile.devices, tuple):
        listed = tile.devices
        if len(set(listed)) != len(listed) or min(listed, default=0) < 0:
            found, expected = f"devices {listed}", "distinct ones of at least 0"
            raise Violation("sharding", "sharding", found, expected, "V65")
        if len(listed) != tile.size:
            found, expected = f"{len(listed)} devices", f"{tile.size}, the product of its sizes"
            raise Violation("sharding", "sharding", found, expected, "V65")
    if partitions > 1 and tile.size != partitions:
        found, expected = f"over {tile.size} devices", f"num_partitions={partitions}"
        raise Violation("sharding", "sharding", found, expected, "V65")
