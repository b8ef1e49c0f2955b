"""Per opcode: what XLA checks or computes itself when it reads one; docs/text.md 6.

Most opcodes need nothing here: a written shape is believed. CHECKS holds the rest but for those
of collectives and transfers (communication_checks.py); each function may refuse the draft
(Violation) or complete it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from msgspec import Struct

from hlo.errors import Violation
from hlo.ir import dtype as dt
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.shape import UNBOUNDED, Shape, compatible
from hlo.ops.making import check_required, inferred_shape, shape_of
from hlo.parser.layout_rules import layout_problem


class Draft(Struct):
    """An instruction before it is made; shape None: the text has none."""

    opcode: str
    shape: Shape | None
    operands: tuple[Instruction, ...]
    attributes: dict[str, object]

    def __getitem__(self, index: int) -> Shape:
        """The shape of an operand."""
        return self.operands[index].shape

    def ints(self, name: str) -> tuple[int, ...]:
        value = self.attributes.get(name, ())
        assert isinstance(value, tuple), "the kind builds a tuple"
        return value


Check = Callable[[Draft], None]
CONTEXT = Shape.array(dt.U32)  # the number of a device, or of what it has under way


def wrong(at: str, found: str, expected: str, code: str = "shape-mismatch") -> Violation:
    """What a check raises of a part: found, and expected."""
    return Violation(code, at, found, expected)


def counted(found: int, expected: str) -> Violation:
    """What a check raises of a number of operands."""
    return Violation("arity", "", f"given {found} operand{'' if found == 1 else 's'}", expected)


def check_layouts(draft: Draft, count: int | None = None) -> None:
    """Layouts of which XLA makes a tuple, or infers the result, only when they are valid: those of
    so many operands, or of all."""
    for k, operand in enumerate(draft.operands[:count]):
        problem = layout_problem(operand.shape)
        if problem:
            found = f"{operand.shape} with {problem}"
            raise wrong(f"operand {k}", found, "a valid layout", "layout")


def check_one_dimension(draft: Draft) -> None:
    """Dimensions are one, where they are written at all."""
    if "dimensions" in draft.attributes and len(draft.ints("dimensions")) != 1:
        found = f"{len(draft.ints('dimensions'))} dimensions"
        raise wrong("dimensions", found, "exactly one", "attribute-value")


def keep_first_dimension(draft: Draft) -> None:
    """Only the first entry is kept."""
    if "dimensions" not in draft.attributes:
        return
    dimensions = draft.ints("dimensions")
    if not dimensions:
        raise wrong("dimensions", "{}", "one dimension", "attribute-value")
    draft.attributes["dimensions"] = dimensions[:1]


def _batch_norm(draft: Draft) -> None:
    if draft.shape is None:
        check_layouts(draft)


def _even(draft: Draft) -> None:
    if len(draft.operands) % 2:
        raise counted(len(draft.operands), "an even number")


def _reduce_window(draft: Draft) -> None:
    """Without a shape XLA looks at the first two operands, an array and a first value."""
    _even(draft)
    if draft.shape is None:
        check_required(draft.opcode, draft.attributes)
        draft.shape = inferred_shape(draft.opcode, draft.operands[:2], draft.attributes)


def _odd(draft: Draft) -> None:
    if len(draft.operands) % 2 == 0:
        raise counted(len(draft.operands), "an odd number")


def _tuple(draft: Draft) -> None:
    if draft.shape is None:
        return
    if not draft.shape.is_tuple:
        raise wrong("result", str(draft.shape), "a tuple")
    if len(draft.shape.elements) != len(draft.operands):
        raise counted(
            len(draft.operands), f"{len(draft.shape.elements)}, as the shape has elements"
        )


def _get_tuple_element(draft: Draft) -> None:
    """What is taken out of a tuple that was just made has the origin of what went in."""
    source, index = draft.operands[0], draft.attributes.get("index")
    if source.opcode != "tuple" or "origin" in draft.attributes or not isinstance(index, int):
        return
    if not 0 <= index < len(source.operands):
        expected = f"0 or more and below {len(source.operands)}"
        raise wrong("index", str(index), expected, "attribute-value")
    origin = source.operands[index].attributes.get("origin")
    if origin is not None:
        draft.attributes["origin"] = origin


def _token(draft: Draft) -> None:
    draft.shape = Shape.token()


def _topk(draft: Draft) -> None:
    """Without a shape XLA reads a number's, too, where none are taken; verification refuses it."""
    taken = draft.attributes.get("k")
    if draft.shape is None and draft[0].is_scalar and isinstance(taken, int) and taken <= 0:
        draft.shape = Shape.tuple((draft[0], draft[0].with_dtype(dt.S32)))


def _device_id(draft: Draft) -> None:
    if draft.shape is None:
        draft.shape = CONTEXT
    elif not compatible(draft.shape, CONTEXT):
        raise wrong("result", str(draft.shape), "u32[]")


def _scaled_dot(draft: Draft) -> None:
    """Without a shape XLA multiplies the first and the third operand, the scale of lhs."""
    if draft.shape is None:
        a, b, c, d = draft.operands
        draft.shape = inferred_shape(draft.opcode, (a, c, b, d), draft.attributes)


def _first_operand_shape(draft: Draft) -> None:
    draft.shape = draft[0]


def _broadcast(draft: Draft) -> None:
    """A scalar's dimensions may be left out; without a shape XLA takes them as sizes in front."""
    if not draft[0].is_array:
        if draft.shape is None:
            raise wrong("operand 0", str(draft[0]), "an array")
    elif draft[0].is_scalar:
        draft.attributes.setdefault("dimensions", ())
    if "dimensions" not in draft.attributes:
        raise Violation("attribute-missing", "", "no attribute dimensions", "dimensions=")
    if draft.shape is None:
        sizes = draft.ints("dimensions")
        if UNBOUNDED in draft[0].dims:
            raise wrong("operand 0", str(draft[0]), "known sizes, or a written result")
        if any(n < 0 for n in sizes):
            raise wrong("dimensions", str(sizes), "sizes of 0 or more", "attribute-value")
        dynamic = (False,) * len(sizes) + draft[0].dynamic
        draft.shape = draft[0].with_dims(sizes + draft[0].dims, dynamic)


def _reshape(draft: Draft) -> None:
    """An operand with an unbounded dimension has any number of elements."""
    if draft.shape is not None and UNBOUNDED not in draft[0].dims:
        _same_size(draft)


def _held(shape: Shape) -> Shape:
    """The array that a buffer holds; any other shape as it is."""
    return shape.elements[0] if shape.dtype is dt.BUFFER else shape


def _same_size(draft: Draft) -> None:
    """Equal products of the sizes that are known."""
    shape = draft.shape
    if shape is None:
        return
    operand = _held(draft[0])
    for at, part in (("result", shape), ("operand 0", operand)):
        if not part.is_array:
            raise wrong(at, str(part), "an array")
    found, expected = (prod(n for n in s.dims if n != UNBOUNDED) for s in (shape, operand))
    if found != expected:
        raise wrong("result", f"{shape} of {found} elements", f"{expected}, as operand 0 has")


def _dynamic_reshape(draft: Draft) -> None:
    if not draft.operands:
        raise counted(0, "at least 1")
    _same_size(draft)
    if draft.shape is not None and len(draft.operands) - 1 != draft.shape.rank:
        raise counted(len(draft.operands), f"1 + {draft.shape.rank}, the rank of the result")


def _dynamic_slice(draft: Draft) -> None:
    _indices(draft, 1)


def _dynamic_update_slice(draft: Draft) -> None:
    _indices(draft, 2)


def _indices(draft: Draft, before: int) -> None:
    """After `before` arrays either one index vector or one index per dimension of operand 0."""
    count = len(draft.operands)
    if count < before:
        raise counted(count, f"at least {before}")
    if count == before + 1:
        index = _held(draft[before])
        if not index.is_array:
            raise wrong(f"operand {before}", str(index), "an array")
        if index.rank == 1:
            return
    array = _held(draft[0])
    if not array.is_array:
        raise wrong("operand 0", str(array), "an array")
    if count != before + array.rank:
        raise counted(count, f"{before} + {array.rank}, the rank of operand 0")


def _compare(draft: Draft) -> None:
    """Without `type` it follows from the element type."""
    if draft.shape is not None and "type" in draft.attributes:
        return
    if not draft[0].is_array and (draft.shape is None or draft[0].dtype is not dt.BUFFER):
        raise wrong("operand 0", str(draft[0]), "an array")


def _complex(draft: Draft) -> None:
    if draft.shape is None:
        types = draft[0].dtype, draft[1].dtype
        if types not in ((dt.F32, dt.F32), (dt.F64, dt.F64)):
            raise wrong(
                "operand 0", f"{draft[0]} beside {draft[1]}", "f32 twice or f64 twice", "dtype"
            )


def _map(draft: Draft) -> None:
    """The written dimensions are dropped: they are all of the result's."""
    if draft.shape is None:
        if "dimensions" not in draft.attributes or "to_apply" not in draft.attributes:
            raise Violation(
                "attribute-missing", "", "written without shape", "dimensions= and to_apply="
            )
        shapes = [operand.shape for operand in draft.operands]
        whole = next((s for s in shapes if s.rank), None)
        if whole is not None:  # numbers are spread, which verification refuses
            shapes = [whole.with_dtype(s.dtype) if s.is_scalar else s for s in shapes]
        draft.shape = shape_of(shapes, draft.opcode, draft.attributes)
    if not draft.shape.is_array:
        raise wrong("result", str(draft.shape), "an array")
    draft.attributes["dimensions"] = tuple(range(draft.shape.rank))


def _sort(draft: Draft) -> None:
    """XLA compares the operands' dimensions, and nothing else, when the shape is left out."""
    check_one_dimension(draft)
    if draft.shape is not None:
        return
    shapes = [operand.shape for operand in draft.operands]
    for k, shape in enumerate(shapes[1:], 1):
        if not shape.is_array or shape.dims != shapes[0].dims:
            raise wrong(f"operand {k}", str(shape), f"the dimensions of {shapes[0]}")
    if len(shapes) != 1:
        check_layouts(draft)
    draft.shape = shapes[0] if len(shapes) == 1 else Shape.tuple(shapes)


def _scan(draft: Draft) -> None:
    check_one_dimension(draft)
    callee, carries = draft.attributes.get("to_apply"), draft.attributes.get("num_carries", 0)
    assert isinstance(carries, int), "the kind builds it"
    if not isinstance(callee, Computation) or "dimensions" not in draft.attributes:
        return
    if len(callee.parameters) != len(draft.operands):
        raise counted(
            len(draft.operands), f"{len(callee.parameters)}, as {callee.name} has parameters"
        )
    if not 0 <= carries <= len(draft.operands):
        raise counted(len(draft.operands), f"at least {carries}, the number of carries")
    if draft.shape is None:
        if carries == len(draft.operands):
            raise wrong(
                "num_carries", str(carries), "an input beside the carries", "call-signature"
            )
        draft.shape = _scanned(draft, callee.root.shape, carries)


def _scanned(draft: Draft, root: Shape, carries: int) -> Shape:
    """The callee's results, all but the carries with the scanned dimension inserted. Where there
    are carries alone XLA does not look at it.
    """
    (along,) = draft.ints("dimensions")
    if not draft.operands or not draft[0].is_array:
        raise wrong("operand 0", str(draft[0]) if draft.operands else "absent", "an array")
    results = root.elements if root.is_tuple else (root,)
    outputs = results[: max(0, len(results) - carries)]
    if carries > len(results) or any(not r.is_array or along > r.rank for r in outputs):
        raise wrong(
            "to_apply", f"of shape {root}", f"{carries} carries, and arrays", "call-signature"
        )
    if outputs and not 0 <= along < draft[0].rank:
        found = f"{along}"
        raise wrong(
            "dimensions", found, f"below {draft[0].rank}, operand 0's rank", "attribute-value"
        )
    shapes = [
        r.with_dims((*r.dims[:along], draft[0].dims[along], *r.dims[along:])) for r in outputs
    ]
    shapes += results[len(outputs) :]
    return Shape.tuple(shapes) if root.is_tuple else shapes[0]


def _conditional(draft: Draft) -> None:
    """A scalar pred chooses between two computations, an s32 among several."""
    if not draft.operands:
        raise counted(0, "at least 1")
    on_pred = draft[0].dtype is dt.PRED
    if not draft[0].is_scalar or not (on_pred or draft[0].dtype is dt.S32):
        raise wrong("operand 0", str(draft[0]), "a scalar pred[] or s32[]")
    two = ("true_computation", "false_computation")
    needed, barred = (two, ("branch_computations",)) if on_pred else (("branch_computations",), two)
    for name in barred:
        if name in draft.attributes:
            raise Violation(
                "attribute-unknown", name, f"given with {draft[0]}", " and ".join(needed)
            )
    for name in needed:
        if draft.attributes.get(name) is None:
            raise Violation("attribute-missing", "", f"no attribute {name}", f"{name}=")
    branches = 2 if on_pred else len(draft.ints("branch_computations"))
    if not branches or branches + 1 != len(draft.operands):
        raise counted(len(draft.operands), f"1 + {branches}, the number of branches")


def _pad(draft: Draft) -> None:
    """XLA prints no text at all for the padding of a number, and reads none."""
    if not draft.attributes.get("padding") and not draft[0].is_scalar:
        found = f"nothing, of {draft[0]}"
        raise wrong("padding", found, "a padding such as 0_1x0_1", "attribute-value")


def _convolution(draft: Draft) -> None:
    if "sparsity_config" not in draft.attributes:
        return
    from hlo.attributes.sparsity import SparsityConfig

    if draft.attributes["sparsity_config"] == SparsityConfig():
        del draft.attributes["sparsity_config"]


def _custom_call(draft: Draft) -> None:
    """to_apply is an old spelling of called_computations; layout constraints displace both."""
    attributes = draft.attributes
    callee = attributes.pop("to_apply", None)
    if callee is not None:
        attributes["called_computations"] = (callee,)
    constraints = attributes.get("operand_layout_constraints")
    if constraints is None:
        return
    assert isinstance(constraints, tuple), "of shapes"
    if len(constraints) != len(draft.operands):
        expected = f"{len(draft.operands)}, as there are operands"
        raise wrong("operand_layout_constraints", f"{len(constraints)} shapes", expected)
    for k, (constraint, operand) in enumerate(zip(constraints, draft.operands, strict=True)):
        if not compatible(constraint, operand.shape):
            expected = f"one compatible with {operand.shape}, operand {k}'s shape"
            raise wrong("operand_layout_constraints", str(constraint), expected)
    attributes.pop("called_computations", None)


CHECKS: dict[str, Check] = {
    "tuple": _tuple,
    "get-tuple-element": _get_tuple_element,
    "after-all": _token,
    "replica-id": _device_id,
    "partition-id": _device_id,
    "add-dependency": _first_operand_shape,
    "broadcast": _broadcast,
    "reshape": _reshape,
    "dynamic-reshape": _dynamic_reshape,
    "concatenate": check_one_dimension,
    "scaled-dot": _scaled_dot,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "get-dimension-size": keep_first_dimension,
    "set-dimension-size": keep_first_dimension,
    "compare": _compare,
    "map": _map,
    "reduce": _even,
    "reduce-window": _reduce_window,
    "complex": _complex,
    "sort": _sort,
    "scan": _scan,
    "topk": _topk,
    "scatter": _odd,
    "conditional": _conditional,
    "custom-call": _custom_call,
    "convolution": _convolution,
    "pad": _pad,
    "batch-norm-training": _batch_norm,
    "batch-norm-inference": _batch_norm,
    "batch-norm-grad": _batch_norm,
}
