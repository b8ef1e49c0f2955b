"""Contraction kernels: dot and convolution, packed where that pays, as one sequence of kernels.

contraction_kernels(instruction, target) -> KernelSequence
"""

from __future__ import annotations

import math

from hlo.backend.kernels.contraction_axes import Axes, Contraction, dot_contraction, normal
from hlo.backend.kernels.contraction_padding import padding_kernel
from hlo.backend.kernels.contraction_plan import Plan, Reading, planned
from hlo.backend.kernels.contraction_product import packing_kernel, product_kernel
from hlo.backend.kernels.contraction_ring import SUPPORTED, ring_of
from hlo.backend.kernels.convolution import convolution_contraction
from hlo.backend.kernels.gemv import vector_kernel
from hlo.backend.kernels.kernel import KernelCall, KernelSequence
from hlo.backend.target import Target
from hlo.errors import HloError
from hlo.ir.instruction import Instruction

FIRST_TEMPORARY = 3  # after lhs, rhs and the result


def contraction_kernels(instruction: Instruction, target: Target) -> KernelSequence:
    """The kernels of a dot or convolution; HloError "unsupported" for element types it has not."""
    types = {s.dtype for s in (instruction.shape, *(o.shape for o in instruction.operands))}
    if not types <= SUPPORTED:
        names = ", ".join(sorted(t.name for t in types - SUPPORTED))
        raise HloError(
            "unsupported",
            f"{instruction.opcode}: no kernel for element type {names}",
            instruction.span,
        )
    if instruction.opcode == "dot":
        return sequence_of(dot_contraction(instruction), target)
    contraction, base = convolution_contraction(instruction, FIRST_TEMPORARY)
    if not base.padded:
        return sequence_of(contraction, target)
    source = instruction.operands[0].shape.dtype
    kernel = padding_kernel(base.padded, source, base.dtype, target)
    size = math.prod(base.dims) * base.dtype.item_bytes
    return sequence_of(contraction, target, (KernelCall(kernel, (0, FIRST_TEMPORARY)),), (size,))


def sequence_of(
    contraction: Contraction,
    target: Target,
    before: tuple[KernelCall, ...] = (),
    before_temporaries: tuple[int, ...] = (),
) -> KernelSequence:
    """What comes before, packing kernels, then the product. Nothing at all for an empty result."""
    ring = ring_of(contraction.out, target)
    c = normal(contraction, ring.lanes)
    if c.batches * c.m * c.n == 0:
        return KernelSequence(())
    calls, temporaries = list(before if c.k else ()), list(before_temporaries)
    buffers = [c.lhs.buffer, c.rhs.buffer, c.out_buffer]
    streaming = vector_kernel(c, ring)
    if streaming is not None:
        call = KernelCall(streaming, tuple(buffers))
        return KernelSequence((*calls, call), tuple(temporaries))
    plan = planned(c, ring)
    for place, side in enumerate(("lhs", "rhs")):
        if getattr(plan, side) is Reading.PACKED:
            kernel_call, size = _packed(plan, side, FIRST_TEMPORARY + len(temporaries))
            buffers[place] = kernel_call.buffers[1]
            calls.append(kernel_call)
            temporaries.append(size)
    calls.append(KernelCall(product_kernel(plan), tuple(buffers)))
    return KernelSequence(tuple(calls), tuple(temporaries))


def _packed(plan: Plan, side: str, temporary: int) -> tuple[KernelCall, int]:
    """The kernel that packs one factor, and the bytes of its panels."""
    packing = plan.lhs_packing if side == "lhs" else plan.rhs_packing
    operand = getattr(plan.contraction, side)
    batch: Axes = tuple(a for a in plan.contraction.batch if getattr(a, side))
    kernel = packing_kernel(packing, batch, operand.offset, side)
    count = 1
    for axis in batch:
        count *= axis.size
    return KernelCall(kernel, (operand.buffer, temporary)), count * packing.size_bytes
