"""The least time that a program needs on a machine: from its bytes and operations alone.

    least = max(bytes / rate of the nearest cache that holds them, operations / their rates)

Bytes: the arguments' and results', each once; of an argument that is only sliced or gathered from,
what is taken. Operations: `hlo.cost`'s, loops as often as they run, before fusion. Products by the
rate of their own instruction (a dot product of words multiplies as many as it takes; f64 half as
many as f32), other arithmetic without multiply-adds (half the rate), a transcendental as
TRANSCENDENTAL multiply-adds, a sliding window as WINDOW operations a result; a complex product as
four of real numbers, other arithmetic on complex numbers as one operation on each part. Chains of
operations that wait for each other, and what is read again because no cache holds it, are not in
it: loops of few elements stay far below.
"""

from __future__ import annotations

from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.convolutions.convolution import convolution_contraction
from hlo.backend.kernels.contraction.problem.axes import dot_contraction
from hlo.backend.kernels.contraction.problem.ring import ring_of
from hlo.backend.kernels.contraction.words.words import dot_product
from hlo.backend.profiling.limits import Limits
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.machine import Machine
from hlo.tools.inspection.cost import CostRow, cost

TRANSCENDENTAL = 10  # A polynomial of degree 6 to 8, its reduction and its scaling.
WINDOW = 3  # Sums and maxima of sliding windows by sums from both ends (van Herk 1992).
TILES = 8  # Products of a word's elements on matrix units, for each that vectors make.
PRODUCTS = ("dot", "convolution")
TAKING = ("slice", "dynamic-slice", "gather")


def least_seconds(module: Module, limits: Limits, machine: Machine) -> float:
    """By the limits that were measured there, of a machine with these instructions."""
    moved = moved_bytes(module)
    return max(moved / limits.level(moved).copied, _computing(module, limits, Target(machine)))


def moved_bytes(module: Module) -> int:
    """Of the arguments, as far as they are read, and of the results, each once."""
    return _bytes(module.entry.program_shape.result) + sum(map(_read, module.entry.parameters))


def _read(parameter: Instruction) -> int:
    """Bytes of an argument that are read."""
    whole = _bytes(parameter.shape)
    if any(u.opcode not in TAKING or u.operands[0] is not parameter for u in parameter.users):
        return whole
    return min(whole, sum(_bytes(user.shape) for user in parameter.users))


def _bytes(shape: Shape) -> int:
    return sum(leaf.size * leaf.dtype.item_bytes for leaf in shape.leaves() if leaf.is_array)


def _computing(module: Module, limits: Limits, target: Target) -> float:
    found = {f"%{i.name}": i for c in module.computations for i in c.instructions}
    rows = cost(module, limits).rows
    return sum(_operations(row, found[row.name], target) for row in rows) / limits.operations


def _operations(row: CostRow, instruction: Instruction, target: Target) -> float:
    """As many f32 operations in multiply-adds take as long."""
    is_complex = any(o.shape.is_array and o.shape.dtype.is_complex for o in instruction.operands)
    if instruction.opcode in PRODUCTS:
        return (4 if is_complex else 1) * row.flops / _speed(instruction, target)
    flops = (2 if is_complex else 1) * row.flops
    if instruction.opcode == "reduce-window":
        flops = min(flops, WINDOW * row.runs * sum(s.size for s in instruction.shape.leaves()))
    return 2 * flops + 2 * TRANSCENDENTAL * row.transcendentals


def _speed(product: Instruction, target: Target) -> float:
    """Operations in the time of one of f32 in multiply-adds."""
    is_dot = product.opcode == "dot"
    c = dot_contraction(product) if is_dot else convolution_contraction(product)[0]
    if target.isa.tile_product(c.lhs.dtype, c.rhs.dtype) is not None:
        return TILES * 32 // c.lhs.dtype.bits
    ring = ring_of(c.out, target)
    dot, _ = dot_product(c, ring)
    if dot is not None:
        return dot.group if dot.adds else dot.group / 2
    lanes = 4 / ring.scalar_bytes
    return lanes if ring.rounds else lanes / 2
