"""Steps for tuples, loops, branches and calls: sizes are carried beside the arrays.

    while (f32[<=8])  =>  while (f32[8], s32[], pred[]): the leaves, their sizes, and the flag

The flag says whether all went as the program assumes; a loop ends where it did not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct

from hlo.ir import dtype as dt
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.ops.making import make
from hlo.passes.padding.scope import (
    FLAG,
    SIZE,
    Made,
    Scope,
    Sizes,
    UnsupportedError,
    Value,
    built,
    flattened,
    static,
)

BY_PREDICATE = ("true_computation", "false_computation")


class Form(Struct, frozen=True):
    """How a value is passed on: its shape, and the dimensions of each leaf whose sizes go along."""

    shape: Shape
    sized: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(*shapes: Shape) -> Form:
        """That of shapes which are alike but for what is dynamic."""
        columns = zip(*(s.leaves() for s in shapes), strict=True)
        sized = tuple(
            tuple(d for d in range(column[0].rank) if any(s.dynamic[d] for s in column))
            for column in columns
        )
        return Form(static(shapes[0]), sized)

    def with_sizes(self, p: Scope, value: Value) -> Form:
        """The form that passes on all sizes of a value as well."""
        columns = zip(self.sized, flattened(value), strict=True)
        sized = tuple(tuple(sorted({*dims, *p.sizes.get(leaf, ())})) for dims, leaf in columns)
        return Form(self.shape, sized)

    @property
    def passed(self) -> tuple[Shape, ...]:
        """The shapes of what is passed."""
        return (*self.shape.leaves(), *(SIZE for dims in self.sized for _ in dims))


def tuple_of(p: Scope, old: Instruction) -> Made:
    """The parts."""
    return tuple(p.tree(o) for o in old.operands), {}


def element(p: Scope, old: Instruction) -> Made:
    """A part of a tuple."""
    whole, index = p.tree(old.operands[0]), old["index"]
    assert isinstance(whole, tuple), "a tuple's value"
    assert isinstance(index, int), "INT64"
    part = whole[index]
    return part, p.sizes.get(part, {}) if isinstance(part, Instruction) else {}


def call(p: Scope, old: Instruction) -> Made:
    """A call, or a fusion, as a call on leaves and sizes."""
    (callee,) = old.called_computations()
    forms = [
        Form.of(o.shape, q.shape).with_sizes(p, p.tree(o))
        for o, q in zip(old.operands, callee.parameters, strict=True)
    ]
    inner = p.inside(callee)
    _enter(inner, forms)
    inner.walk()
    result = Form.of(old.shape, callee.root.shape).with_sizes(inner, inner.tree(inner.root))
    is_checked = bool(inner.checks)
    _leave(inner, result, is_checked=is_checked)
    given = [x for o, form in zip(old.operands, forms, strict=True) for x in _packed(p, o, form)]
    packed = make(old, "tuple", *given)
    callees = {"to_apply": inner.computation}
    made = p.computation.new("call", inner.computation.root.shape, (packed,), callees, like=old)
    return _unpacked(p, made, result, is_checked=is_checked), {}


def conditional(p: Scope, old: Instruction) -> Made:
    """Branches that take and give leaves and sizes."""
    selector, *operands = old.operands
    branches = _branches(old)
    result = Form.of(old.shape, *(b.root.shape for b in branches))
    inners, packed = [], []
    for branch, operand in zip(branches, operands, strict=True):
        form = Form.of(operand.shape, branch.parameters[0].shape)
        form = form.with_sizes(p, p.tree(operand))
        inner = p.inside(branch)
        _enter(inner, [form])
        inner.walk()
        result = result.with_sizes(inner, inner.tree(inner.root))
        inners.append(inner)
        packed.append(make(old, "tuple", *_packed(p, operand, form)))
    is_checked = any(inner.checks for inner in inners)
    for inner in inners:
        _leave(inner, result, is_checked=is_checked)
    found = [inner.computation for inner in inners]
    callees: dict[str, object] = {"branch_computations": tuple(found)}
    if selector.shape.dtype.is_pred:
        callees = dict(zip(BY_PREDICATE, found, strict=True))
    made = p.computation.new(
        "conditional", found[0].root.shape, (p.value(selector), *packed), callees, like=old
    )
    return _unpacked(p, made, result, is_checked=is_checked), {}


def _branches(old: Instruction) -> tuple[Computation, ...]:
    """The branches in order; two may be one computation."""
    if old.operands[0].shape.dtype.is_pred:
        found: object = tuple(old[name] for name in BY_PREDICATE)
    else:
        found = old["branch_computations"]
    assert isinstance(found, tuple), "computations"
    return found


def loop(p: Scope, old: Instruction) -> Made:
    """A loop whose state holds the leaves, their sizes and, if needed, the flag."""
    body, condition = old["body"], old["condition"]
    assert isinstance(body, Computation), "body is a computation"
    assert isinstance(condition, Computation), "condition is a computation"
    (init,) = old.operands
    states = (init, *body.parameters, body.root, *condition.parameters)
    form = Form.of(old.shape, *(s.shape for s in states))
    step, test = p.inside(body), p.inside(condition)
    states = (_enter(step, [form]), _enter(test, [form]))
    step.walk()
    test.walk()
    if test.checks:
        raise UnsupportedError
    is_checked, given = bool(step.checks), _packed(p, init, form)
    predicate = test.value(test.root)
    if is_checked:
        given.append(p.constant(old, np.bool_(True), dt.PRED))
        before, goes_on = (_flag_of(state, form) for state in states)
        step.checks.append(before)
        predicate = make(predicate, "and", predicate, goes_on)
    _leave(step, form, is_checked=is_checked)
    test.finish(predicate)
    packed = make(old, "tuple", *given)
    callees = {"condition": test.computation, "body": step.computation}
    made = p.computation.new("while", packed.shape, (packed,), callees, like=old)
    return _unpacked(p, made, form, is_checked=is_checked), {}


def _flag_of(state: Instruction, form: Form) -> Instruction:
    """A loop's flag, which its state holds after all else."""
    state.shape = Shape.tuple((*state.shape.elements, FLAG))
    return make(state, "get-tuple-element", state, index=len(form.passed))


# -- passing values on ---------------------------------------------------------------------------


def _packed(p: Scope, value: Instruction, form: Form) -> list[Instruction]:
    """A value's leaves and the sizes of them."""
    leaves = list(flattened(p.tree(value)))
    sizes = []
    for leaf, dims in zip(leaves, form.sized, strict=True):
        given = p.sizes.get(leaf, {})
        if any(d not in dims for d in given):
            raise UnsupportedError
        sizes += [given[d] if d in given else p.number(leaf, leaf.shape.dims[d]) for d in dims]
    return leaves + sizes


def _unpacked(p: Scope, whole: Instruction, form: Form, *, is_checked: bool) -> Value:
    """The value in a tuple of leaves, sizes and a flag."""
    parts = [make(whole, "get-tuple-element", whole, index=k) for k in range(len(form.passed))]
    if is_checked:
        p.checks.append(make(whole, "get-tuple-element", whole, index=len(parts)))
    return _value(p, parts, form)


def _value(p: Scope, parts: Sequence[Instruction], form: Form) -> Value:
    leaves, sizes = parts[: len(form.sized)], iter(parts[len(form.sized) :])
    for leaf, dims in zip(leaves, form.sized, strict=True):
        if dims:
            p.sizes[leaf] = Sizes((d, next(sizes)) for d in dims)
    return built(iter(leaves), form.shape)


def _enter(inner: Scope, forms: Iterable[Form]) -> Instruction:
    """One parameter, a tuple, in the place of all."""
    old, forms = inner.computation.parameters, tuple(forms)
    shape = Shape.tuple(tuple(s for form in forms for s in form.passed))
    number = {"parameter_number": 0}
    whole = inner.computation.new("parameter", shape, (), number, like=inner.root, name="state")
    parts = [make(whole, "get-tuple-element", whole, index=k) for k in range(len(shape.elements))]
    for parameter, form in zip(old, forms, strict=True):
        count = len(form.passed)
        value = inner.values[parameter] = _value(inner, parts[:count], form)
        if isinstance(value, Instruction) and not any(form.sized):
            inner.computation.replace_uses(parameter, value)
        parts = parts[count:]
    return whole


def _leave(inner: Scope, result: Form, *, is_checked: bool) -> None:
    """The root as leaves, sizes and, if anything is checked, the flag."""
    parts = _packed(inner, inner.root, result)
    if is_checked:
        true = inner.constant(inner.root, np.bool_(True), dt.PRED)
        parts.append(inner.holds(true))
    inner.finish(make(inner.root, "tuple", *parts))
