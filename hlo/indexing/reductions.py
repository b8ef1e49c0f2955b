"""Reductions: which elements of the operands an element of a result is made of.

    instruction, index of the result, index of a term --term_cases--> [(operand, its index,
    conditions)]

The index of a term runs over `term_extents`: the dimensions that a reduce runs over, a window's
positions, what a dot contracts, a convolution's input features of one group and then its window.
Initial values are read at no index. Where a condition fails, there is no element.
Formulas: docs/semantics.md 9 and 10.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from hlo.indexing import affine
from hlo.indexing.affine import Expr, Index, Variable
from hlo.indexing.maps import Case, Condition
from hlo.ir.instruction import Instruction
from hlo.ops.table import attribute

if TYPE_CHECKING:
    from hlo.attributes.dim_labels import DimLabels
    from hlo.attributes.window import Window, WindowDim

Extents = tuple[int, ...]


class ReductionMap(Struct, frozen=True):
    """How an opcode's results are made of terms.

    extents: of a term's index. cases: the operands' elements at indices of a result, a term.
    """

    extents: Callable[[Instruction], Extents]
    cases: Callable[[Instruction, Index, Index], list[Case]]


def term_extents(instruction: Instruction) -> Extents:
    """How many terms an element is made of, along each dimension that they are counted in."""
    return REDUCTIONS[instruction.opcode].extents(instruction)


def term_cases(instruction: Instruction, index: Index, term: Index) -> list[Case]:
    """What each operand gives to an element: one case for each of them."""
    return REDUCTIONS[instruction.opcode].cases(instruction, index, term)


# -- reduce ----------------------------------------------------------------------------------


class ReductionDims(Struct, frozen=True):
    """What a reduce runs over: its operands' dimensions, and which of these it removes."""

    dims: tuple[int, ...]
    reduced: tuple[int, ...]

    @property
    def extents(self) -> Extents:
        """Of the reduced dimensions."""
        return tuple(self.dims[d] for d in self.reduced)

    def index(self, kept: Index, term: Index) -> Index:
        """The operands' index: of a result's element, and of a term of it."""
        left, terms = iter(kept), dict(zip(self.reduced, term, strict=True))
        return tuple(terms[d] if d in terms else next(left) for d in range(len(self.dims)))


def reduction_dims(reduce: Instruction) -> ReductionDims:
    """What a reduce runs over."""
    dims, listed = reduce.operands[0].shape.dims, _ints(reduce, "dimensions")
    return ReductionDims(dims, tuple(d for d in range(len(dims)) if d in listed))


def _reduced_extents(reduce: Instruction) -> Extents:
    return reduction_dims(reduce).extents


def _reduced_cases(reduce: Instruction, index: Index, term: Index) -> list[Case]:
    """x[k]: the term's index in the reduced dimensions, the result's in the others"""
    return _with_initial_values(reduce, reduction_dims(reduce).index(index, term))


def _with_initial_values(
    reduction: Instruction, own: Index, conditions: tuple[Condition, ...] = ()
) -> list[Case]:
    half = len(reduction.operands) // 2
    arrays = [Case(k, own, conditions) for k in range(half)]
    return arrays + [Case(k, ()) for k in range(half, 2 * half)]


# -- windows ---------------------------------------------------------------------------------


def window_of(reduction: Instruction) -> Window:
    """What of a reduce-window's window meets elements. A scalar has one without dimensions, which a
    text may leave out.
    """
    from hlo.attributes.window import Window  # for programs with windows, as those below
    from hlo.ops.windows import trimmed

    window = reduction.attributes.get("window", Window(()))
    assert isinstance(window, Window), "WINDOW"
    return trimmed(reduction.operands[0].shape.dims, window)


def _window_extents(reduction: Instruction) -> Extents:
    return tuple(d.size for d in window_of(reduction).dims)


def _windowed(reduction: Instruction, index: Index, term: Index) -> list[Case]:
    """x[o*stride + w*window_dilation - pad], over base_dilation where that is whole"""
    own, conditions = _slid(window_of(reduction), index, term, reduction.operands[0].shape.dims)
    return _with_initial_values(reduction, own, conditions)


def is_inside(window: WindowDim, outputs: int, size: int) -> bool:
    """Whether all positions of so many windows are elements of an array, along a dimension."""
    if not outputs or not window.size:
        return True
    from hlo.attributes.window import Window

    at, place = (affine.of(Variable("", 0, n - 1)) for n in (outputs, window.size))
    _, conditions = _slid(Window((window,)), (at,), (place,), (size,))
    return all(c.always for c in conditions)


def _slid(
    window: Window, index: Index, term: Index, dims: Sequence[int]
) -> tuple[Index, tuple[Condition, ...]]:
    """Where a window's position lies in an array, and the conditions under which that is one of
    it."""
    own: list[Expr] = []
    conditions: list[Condition] = []
    for e, w, d, size in zip(index, term, window.dims, dims, strict=True):
        moved = e * d.stride + w * d.window_dilation - d.pad_low
        conditions.append(Condition(moved, 0, (size - 1) * d.base_dilation))
        if d.base_dilation > 1:
            conditions.append(Condition(moved % d.base_dilation, 0, 0))
        own.append(moved // d.base_dilation)
    return tuple(own), tuple(conditions)


# -- contractions ----------------------------------------------------------------------------


def _contracted_extents(dot: Instruction) -> Extents:
    dims = dot.operands[0].shape.dims
    return tuple(dims[d] for d in _ints(dot, "lhs_contracting_dims"))


def _contracted(dot: Instruction, index: Index, term: Index) -> list[Case]:
    """lhs[b, m, k] and rhs[b, k, n] of out[b, m, n]"""
    count = len(_ints(dot, "lhs_batch_dims"))
    batch, rest = index[:count], iter(index[count:])
    found: list[Case] = []
    for number, side in enumerate(("lhs", "rhs")):
        own = dict(zip(_ints(dot, f"{side}_batch_dims"), batch, strict=True))
        own |= zip(_ints(dot, f"{side}_contracting_dims"), term, strict=True)
        rank = dot.operands[number].shape.rank
        found.append(Case(number, tuple(own[d] if d in own else next(rest) for d in range(rank))))
    return found


def _labels(convolution: Instruction) -> DimLabels:
    from hlo.attributes.dim_labels import DimLabels

    labels = attribute(convolution, "dim_labels")
    assert isinstance(labels, DimLabels), "DIM_LABELS"
    return labels


def _window(convolution: Instruction) -> Window:
    from hlo.attributes.window import Window

    window = attribute(convolution, "window") or Window()
    assert isinstance(window, Window), "WINDOW"
    return window


def _convolved_extents(convolution: Instruction) -> Extents:
    features = convolution.operands[1].shape.dims[_labels(convolution).rhs_input_feature]
    return (features, *(d.size for d in _window(convolution).dims))


def _convolved(convolution: Instruction, index: Index, term: Index) -> list[Case]:
    """lhs[b, i, o*stride + w*dilation - pad] and rhs[i, f, w] of out[b, f, o]; b and i are counted
    in the group that f is in.
    """
    labels, dims = _labels(convolution), [o.shape.dims for o in convolution.operands]
    (feature, *place), window = term, _window(convolution)
    at = tuple(index[d] for d in labels.out_spatial)
    slid, conditions = _slid(window, at, tuple(place), [dims[0][d] for d in labels.lhs_spatial])
    image, channel, output = index[labels.out_batch], feature, index[labels.out_feature]
    outputs = dims[1][labels.rhs_output_feature]
    if (groups := _count(convolution, "batch_group_count")) > 1:
        images = dims[0][labels.lhs_batch] // groups
        image = output // max(outputs // groups, 1) * images + image
    if (groups := _count(convolution, "feature_group_count")) > 1:
        channels = dims[1][labels.rhs_input_feature]
        channel = output // max(outputs // groups, 1) * channels + channel
    own = {labels.lhs_batch: image, labels.lhs_feature: channel}
    own |= zip(labels.lhs_spatial, slid, strict=True)
    kernel = {labels.rhs_input_feature: feature, labels.rhs_output_feature: output}
    for d, w, e in zip(labels.rhs_spatial, window.dims, place, strict=True):
        kernel[d] = e * -1 + (w.size - 1) if w.reversed else e
    return [
        Case(0, tuple(own[d] for d in range(len(dims[0]))), conditions),
        Case(1, tuple(kernel[d] for d in range(len(dims[1])))),
    ]


def _count(convolution: Instruction, name: str) -> int:
    found = attribute(convolution, name)
    assert isinstance(found, int), "INT64"
    return found


def _ints(instruction: Instruction, name: str) -> tuple[int, ...]:
    return tuple(attribute(instruction, name))  # type: ignore[arg-type]  # an INTS attribute


REDUCTIONS: dict[str, ReductionMap] = {
    "reduce": ReductionMap(_reduced_extents, _reduced_cases),
    "reduce-window": ReductionMap(_window_extents, _windowed),
    "dot": ReductionMap(_contracted_extents, _contracted),
    "convolution": ReductionMap(_convolved_extents, _convolved),
}
