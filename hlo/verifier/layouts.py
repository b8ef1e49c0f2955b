"""Layouts: each fits its shape; layout-sensitive verification also compares them."""

from __future__ import annotations

from collections.abc import Iterator

from hlo.errors import Violation
from hlo.ir.instruction import Instruction
from hlo.ir.layout import Layout
from hlo.ir.shape import Shape, shape_text
from hlo.ops.table import Trait, has_trait
from hlo.verifier.report import Report

HOST = 5  # memory space S(5)


def check(instruction: Instruction, report: Report) -> None:
    """V27: an order of the dimensions, positive tiles, E(n) only where elements may be packed."""
    for leaf in instruction.shape.leaves():
        layout = leaf.layout
        if layout is None or (layout.is_default_order and not _has_properties(layout)):
            continue
        expected = fault(leaf, layout)
        if expected:
            report.broken(instruction, "layout", "result", shape_text(leaf), expected, "V27")


def _has_properties(layout: Layout) -> bool:
    return bool(layout.tiles or layout.element_size)


def fault(leaf: Shape, layout: Layout) -> str:
    """What is expected of a layout instead; empty where it fits."""
    if sorted(layout.minor_to_major) != list(range(leaf.rank)):
        return f"each of its {leaf.rank} dimensions once in the layout"
    if any(n < 1 and n != -1 for tile in layout.tiles for n in tile):
        return "tile sizes of at least 1"
    if layout.element_size and leaf.dtype.bits >= 8:
        return "E(n) only with element types narrower than a byte"
    return ""


def check_sensitive(instruction: Instruction, report: Report) -> None:
    """V20, V29, V80, V84: layouts change only in ops that may change them."""
    try:
        _check_sensitive(instruction)
    except Violation as violation:
        report.add(instruction, violation)


def _check_sensitive(instruction: Instruction) -> None:
    opcode = instruction.opcode
    if opcode == "bitcast":
        _check_bitcast(instruction)
        return
    if not has_trait(instruction, Trait.MOVES_MEMORY):
        _check_memory(instruction)
    for forwarded in _forwarded(instruction):
        _check_equal(instruction, forwarded)
    if has_trait(instruction, Trait.ELEMENTWISE) and instruction.shape.is_array:
        _check_orders(instruction)


def _forwarded(instruction: Instruction) -> Iterator[Shape]:
    """The shapes, layouts included, that the result takes over."""
    opcode, operands = instruction.opcode, instruction.operands
    if has_trait(instruction, Trait.SAME_LAYOUT):
        yield operands[0].shape
    if has_trait(instruction, Trait.CALLS):
        for callee in instruction.called_computations():
            if callee is not instruction.attributes.get("condition"):
                yield callee.root.shape
    elif opcode == "tuple":
        yield Shape.tuple(o.shape for o in operands)
    elif opcode == "copy-done" or opcode in ("get-tuple-element", "async-done"):
        elements = operands[0].shape.elements
        index = instruction.attributes.get("index", int(opcode == "async-done"))
        if isinstance(index, int) and 0 <= index < len(elements):
            yield elements[index]


def _check_orders(instruction: Instruction) -> None:
    """V80: elementwise ops keep the order of the dimensions in memory."""
    shape = instruction.shape
    for i, operand in enumerate(instruction.operands):
        source = operand.shape
        if source.rank == shape.rank and _order(source) != _order(shape):
            found, expected = shape_text(source), f"the layout of {shape_text(shape)}"
            raise Violation("layout", f"operand {i}", found, expected, "V80")


def _check_memory(instruction: Instruction) -> None:
    """V84: an op on arrays works in one memory, the host's or the device's."""
    if not instruction.shape.is_array:
        return
    for i, operand in enumerate(instruction.operands):
        if operand.shape.is_array and _on_host(operand.shape) != _on_host(instruction.shape):
            found, expected = shape_text(operand.shape), f"the memory of {instruction.shape}"
            raise Violation("layout", f"operand {i}", found, expected, "V84")


def _on_host(shape: Shape) -> bool:
    return shape.layout is not None and shape.layout.memory_space == HOST


def _order(shape: Shape) -> object:
    return shape.layout.minor_to_major if shape.layout else None


def _check_equal(instruction: Instruction, expected: Shape) -> None:
    if instruction.shape != expected:
        found = shape_text(instruction.shape)
        raise Violation("layout", "result", found, shape_text(expected), "V20")


def _check_bitcast(instruction: Instruction) -> None:
    source, target = instruction.operands[0].shape, instruction.shape
    if not (source.is_array and target.is_array):
        return
    bits = [s.size * s.dtype.bits for s in (source, target)]
    if bits[0] != bits[1]:
        found, expected = shape_text(target), f"{bits[0] // 8} bytes, as {shape_text(source)}"
        raise Violation("shape-mismatch", "result", found, expected, "V29")
    if _on_host(source) != _on_host(target):
        found, expected = shape_text(target), "the memory of its operand (host or device)"
        raise Violation("layout", "result", found, expected, "V29")
