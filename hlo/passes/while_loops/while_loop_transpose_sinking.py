"""while-loop-transpose-sinking: rows of a turned array are taken of the array as it lies.

    while(.., transpose(w[in, layer, out]), ..) { dynamic-slice(w', i) }
      =>  while(.., w, ..) { dynamic-slice(transpose(w), i) }  =>  { dynamic-slice(w, i) }

Flax keeps the weights of all layers of a scan in one array, whose layers are no outer dimension,
and turns it before the scan, which takes a layer in each trip: the weights of the whole model are
read and written once more than the products need. Sunk are transposes that the body cuts up
alone, into parts that lie in the array in the same order (analysis/turned_rows.py): algsimp takes
them of the array, and products read them where they lie. In which layout the loop was handed the
transpose nobody sees any more. Each trip computes the same bits.
"""

from __future__ import annotations

from hlo.analysis.turned_rows import lies_in_order
from hlo.analysis.while_loops.loop_state import element_index, extend, unchanged_elements
from hlo.analysis.while_loops.row_updates import reads_of
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.machine import COMMON
from hlo.ops.making import transposed
from hlo.passes.loop_making import extensible_loops, home
from hlo.passes.patterns.matching import ints, is_plain
from hlo.passes.while_loops.loop_shrinking import shrink

LEAST_BYTES = COMMON.first_cache.bytes  # What is smaller is turned in no time.


def while_loop_transpose_sinking(module: Module) -> bool:
    """Hand loops that cut a transpose into rows its operand instead. O(edges of bodies)."""
    changed = False
    for loop in extensible_loops(module):
        (state,) = loop.operands
        if state.opcode == "tuple" and all(u.opcode == "get-tuple-element" for u in loop.users):
            turned = _cut_transposes(loop)
            if turned:
                _sink(loop, turned)
                changed = True
    return changed


def _cut_transposes(loop: Instruction) -> list[Instruction]:
    """The elements of the body's state that begin as transposes, and that trips cut alone."""
    body, condition = loop.called_computations()
    (state,) = loop.operands
    found = list[Instruction]()
    for element in unchanged_elements(body):
        number = element_index(element)
        start = state.operands[number]
        if start.opcode != "transpose" or start.shape.size_bytes <= LEAST_BYTES:
            continue
        if start.shape.is_dynamic or not is_plain(start.operands[0].shape):
            continue
        readers = [u for u in element.users if u is not body.root]
        is_single = reads_of(body, number) == [element] and not reads_of(condition, number)
        if is_single and readers and all(_cuts(u, element, start) for u in readers):
            found.append(element)
    return found


def _cuts(reader: Instruction, element: Instruction, turned: Instruction) -> bool:
    """Whether a reader takes a part of a transpose that lies in its operand in the same order."""
    is_slice = reader.opcode in ("slice", "dynamic-slice") and element not in reader.operands[1:]
    is_part = is_slice and 2 * reader.shape.size <= turned.shape.size
    return is_part and is_plain(reader.shape) and lies_in_order(turned, reader.shape.dims)


def _sink(loop: Instruction, elements: list[Instruction]) -> None:
    """Turn elements of the state in the body, for the slices to be taken first."""
    (state,) = loop.operands
    numbers = [element_index(e) for e in elements]
    starts = [state.operands[n] for n in numbers]
    loop, arrays = extend(loop, [s.operands[0] for s in starts])
    body, _ = loop.called_computations()
    for number, start, element, array in zip(numbers, starts, elements, arrays, strict=True):
        body.replace_uses(element, transposed(array, ints(start, "dimensions")))
        body.set_operand(body.root, number, element)
        for end in [u for u in loop.users if element_index(u) == number]:
            home(end).replace_uses(end, start)
    shrink(loop, set(numbers))
