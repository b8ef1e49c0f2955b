"""Structure and control flow: tuples, parameters, calls, loops, branches, fusions, async chains.

Source: docs/semantics.md 16 and docs/control.md 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Generic

import numpy as np

from hlo.attributes.aliasing import OUTPUT_TO_OPERAND_ALIASING, OperandAlias
from hlo.attributes.domain import DOMAIN
from hlo.attributes.enums import FUSION_KIND
from hlo.attributes.names import COMPUTATION, COMPUTATIONS
from hlo.attributes.scalars import BOOL, INT64, STRING
from hlo.errors import Violation
from hlo.ir import dtype as dt
from hlo.ir.shape import ProgramShape, Shape, compatible
from hlo.ops.attributes import Attributes, F
from hlo.ops.shape_rules import text, written
from hlo.ops.table import KernelFamily, Op, Trait

if TYPE_CHECKING:
    from hlo.ops.callee import Callee
    from hlo.ops.context import Context

Array = np.ndarray


class Parameter(Op):
    """The caller's value number n. C1: n >= 0, the numbers of a computation are dense."""

    opcode = "parameter"
    arity = 0
    traits = Trait.FREE | Trait.SOURCE | Trait.FUSES | Trait.CARRIES | Trait.BUFFERS
    inferable = False
    takes_shape = True

    @staticmethod
    def infer(*, shape: Shape | None) -> Shape:
        return written(shape)


class Constant(Op):
    """A literal. C1: its shape is the result's, layouts aside."""

    opcode = "constant"
    arity = 0
    traits = Trait.FREE | Trait.SOURCE | Trait.FINISHES | Trait.FUSES
    inferable = False
    takes_shape = True

    @staticmethod
    def infer(*, shape: Shape | None) -> Shape:
        return written(shape)


class Tuple(Op):
    """(x0, x1, ...): any values, none too."""

    opcode = "tuple"
    traits = Trait.FREE | Trait.FUSES | Trait.CARRIES | Trait.BUFFERS

    @staticmethod
    def infer(*operands: Shape) -> Shape:
        return Shape.tuple(operands)

    @staticmethod
    def evaluate(*operands: object) -> tuple[object, ...]:
        return operands


class GetTupleElementAttributes(Attributes, frozen=True):
    index: Annotated[int, INT64, "always"]


class GetTupleElement(Op):
    """Element `index` of a tuple. C1: the operand is a tuple. C2: 0 <= index < its size."""

    opcode = "get-tuple-element"
    arity = 1
    record = GetTupleElementAttributes
    traits = Trait.FREE | Trait.CARRIES | Trait.BUFFERS

    @staticmethod
    def infer(operand: Shape, *, attrs: GetTupleElementAttributes) -> Shape:
        if not operand.is_tuple:
            raise Violation("shape-mismatch", "operand 0", text(operand), "a tuple", "C1")
        if not 0 <= attrs.index < len(operand.elements):
            expected = f"at least 0 and below {len(operand.elements)}"
            raise Violation("attribute-value", "index", f"{attrs.index}", expected, "C2")
        return operand.elements[attrs.index]

    @staticmethod
    def evaluate(operand: Sequence[object], *, attrs: GetTupleElementAttributes) -> object:
        return operand[attrs.index]


class AfterAll(Op):
    """A token after all operands. C1 (ours): the operands are tokens."""

    opcode = "after-all"
    traits = Trait.FREE | Trait.SOURCE

    @staticmethod
    def infer(*operands: Shape) -> Shape:
        return Shape.token()

    @staticmethod
    def check(*operands: Shape, shape: Shape) -> None:
        for i, operand in enumerate(operands):
            _check_token(operand, f"operand {i}", "C1")

    @staticmethod
    def evaluate(*operands: object) -> None:
        return None


class AddDependency(Op):
    """Operand 0, ordered after a token. C1: operand 1 is a token."""

    opcode = "add-dependency"
    arity = 2
    traits = Trait.FREE | Trait.SAME_PLACE | Trait.SAME_LAYOUT

    @staticmethod
    def infer(operand: Shape, token: Shape) -> Shape:
        _check_token(token, "operand 1", "C1")
        return operand

    @staticmethod
    def evaluate(operand: object, token: object) -> object:
        return operand


def _check_token(shape: Shape, at: str, label: str) -> None:
    if not shape.is_token:
        raise Violation("shape-mismatch", at, text(shape), "token[]", label)


class OptBarrier(Op):
    """The operand, of any shape; nothing is moved, merged or folded across it."""

    opcode = "opt-barrier"
    arity = 1
    traits = Trait.FREE | Trait.SAME_PLACE | Trait.CARRIES | Trait.SAME_LAYOUT
    inferable = False

    @staticmethod
    def infer(operand: Shape) -> Shape:
        return operand

    @staticmethod
    def evaluate(operand: object) -> object:
        return operand


class DomainAttributes(Attributes, frozen=True):
    domain: Annotated[object, DOMAIN, "always"]


class Domain(Op):
    """The operand, at the border of two sharding domains."""

    opcode = "domain"
    arity = 1
    record = DomainAttributes
    traits = Trait.FREE | Trait.SAME_PLACE | Trait.CARRIES | Trait.SAME_LAYOUT

    @staticmethod
    def infer(operand: Shape, *, attrs: DomainAttributes) -> Shape:
        return operand

    @staticmethod
    def evaluate(operand: object, *, attrs: DomainAttributes) -> object:
        return operand


def check_signature(at: str, callee: ProgramShape, arguments: Sequence[Shape], label: str) -> None:
    """Refuse a computation whose parameters are not `arguments`, layouts aside."""
    if len(callee.parameters) != len(arguments):
        found = f"a computation of {len(callee.parameters)} parameters"
        raise Violation("call-signature", at, found, f"{len(arguments)}", label)
    for i, (parameter, argument) in enumerate(zip(callee.parameters, arguments, strict=True)):
        if not compatible(parameter, argument):
            found = f"a computation with parameter {i} of shape {text(parameter)}"
            raise Violation("call-signature", at, found, text(argument), label)


def check_result(at: str, callee: ProgramShape, expected: Shape, label: str) -> None:
    """Refuse a computation with another result shape, layouts aside."""
    if not compatible(callee.result, expected):
        found = f"a computation with result {text(callee.result)}"
        raise Violation("call-signature", at, found, text(expected), label)


class CallAttributes(Attributes, Generic[F], frozen=True, kw_only=True):
    is_composite: Annotated[bool, BOOL] = False
    to_apply: Annotated[F, COMPUTATION]


class Call(Op):
    """to_apply(operands...). C1: as many parameters as operands, of their shapes."""

    opcode = "call"
    record = CallAttributes
    traits = Trait.CALLS | Trait.CARRIES | Trait.BUFFERS

    @staticmethod
    def infer(*operands: Shape, attrs: CallAttributes[ProgramShape]) -> Shape:
        check_signature("to_apply", attrs.to_apply, operands, "C1")
        return attrs.to_apply.result

    @staticmethod
    def evaluate(*operands: object, attrs: CallAttributes[Callee]) -> object:
        return attrs.to_apply(*operands)


class WhileAttributes(Attributes, Generic[F], frozen=True):
    condition: Annotated[F, COMPUTATION]
    body: Annotated[F, COMPUTATION]


class While(Op):
    """x = init; while condition(x): x = body(x).

    C1: condition takes one parameter of init's shape and returns pred[]. C2: body takes one
    parameter of init's shape and returns that shape.
    """

    opcode = "while"
    arity = 1
    record = WhileAttributes
    traits = Trait.CALLS | Trait.CARRIES | Trait.BUFFERS | Trait.SAME_LAYOUT
    takes_context = True

    @staticmethod
    def infer(init: Shape, *, attrs: WhileAttributes[ProgramShape]) -> Shape:
        check_signature("condition", attrs.condition, (init,), "C1")
        check_result("condition", attrs.condition, Shape.array(dt.PRED), "C1")
        check_signature("body", attrs.body, (init,), "C2")
        check_result("body", attrs.body, init, "C2")
        return init

    @staticmethod
    def evaluate(init: object, *, attrs: WhileAttributes[Callee], context: Context) -> object:
        loop, state = context.instruction, init
        while attrs.condition(state):
            context.count_step(loop)
            state = attrs.body(state)
        return state


class ConditionalAttributes(Attributes, Generic[F], frozen=True):
    true_computation: Annotated[F | None, COMPUTATION, "given"] = None
    false_computation: Annotated[F | None, COMPUTATION, "given"] = None
    branch_computations: Annotated[tuple[F, ...] | None, COMPUTATIONS, "given"] = None

    @property
    def pair(self) -> tuple[F, F] | None:
        """The branches of true and of false, where both are given."""
        if self.true_computation is None or self.false_computation is None:
            return None
        return self.true_computation, self.false_computation


class Conditional(Op):
    """pred[]: true_computation(x0) or false_computation(x1); s32[] i: branch i of x_i.

    An index outside 0..n-1 means the last branch.
    C1: operand 0 is a scalar pred, with true_computation and false_computation, or a scalar s32
    with branch_computations. C2: one operand per branch, at least one branch. C3: each branch
    takes one parameter of its operand's shape. C4: all branches return one shape.
    """

    opcode = "conditional"
    record = ConditionalAttributes
    traits = Trait.CALLS | Trait.CARRIES

    @staticmethod
    def infer(*operands: Shape, attrs: ConditionalAttributes[ProgramShape]) -> Shape:
        _check_branch_index(operands)
        pair = attrs.pair
        if (pair is not None) != (operands[0].dtype is dt.PRED):
            expected = "true_computation and false_computation for pred[]"
            raise Violation("attribute-missing", "", "without them", expected, "C1")
        branches = pair or attrs.branch_computations or ()
        if not branches or len(operands) != len(branches) + 1:
            found = f"{len(operands)} operands"
            raise Violation("arity", "operands", found, f"{len(branches) + 1}", "C2")
        names = BRANCH_NAMES if pair else ("branch_computations",) * len(branches)
        for name, branch, operand in zip(names, branches, operands[1:], strict=True):
            check_signature(name, branch, (operand,), "C3")
            check_result(name, branch, branches[0].result, "C4")
        return _any_branch_dynamic([b.result for b in branches])

    @staticmethod
    def evaluate(
        selector: Array, *operands: object, attrs: ConditionalAttributes[Callee]
    ) -> object:
        if attrs.pair is not None:
            then, otherwise = attrs.pair
            return then(operands[0]) if selector else otherwise(operands[1])
        assert attrs.branch_computations is not None, "the parser requires one of both forms"
        last = len(attrs.branch_computations) - 1
        index = int(selector) if 0 <= selector <= last else last
        return attrs.branch_computations[index](operands[index])


BRANCH_NAMES = ("true_computation", "false_computation")


def _check_branch_index(operands: Sequence[Shape]) -> None:
    if not operands:
        raise Violation("arity", "operands", "no operands", "at least 2", "C2")
    index = operands[0]
    if not index.is_scalar or index.dtype not in (dt.PRED, dt.S32):
        raise Violation("shape-mismatch", "operand 0", text(index), "pred[] or s32[]", "C1")


def _any_branch_dynamic(results: Sequence[Shape]) -> Shape:
    """The first branch's shape, dimensions dynamic in any branch marked so."""
    first = results[0]
    if first.is_tuple:
        columns = zip(*(r.elements for r in results), strict=True)
        return Shape.tuple(_any_branch_dynamic(column) for column in columns)
    if not first.is_array or not any(r.is_dynamic for r in results):
        return first
    flags = (any(column) for column in zip(*(r.dynamic for r in results), strict=True))
    return Shape.array(first.dtype, first.dims, layout=first.layout, dynamic=flags)


class FusionAttributes(Attributes, Generic[F], frozen=True, kw_only=True):
    kind: Annotated[str, FUSION_KIND, "always"]
    output_to_operand_aliasing: Annotated[tuple[OperandAlias, ...], OUTPUT_TO_OPERAND_ALIASING] = ()
    calls: Annotated[F, COMPUTATION]


class Fusion(Op):
    """calls(operands...): one kernel by intent; kind and aliasing never change the value.

    C1: as many parameters as operands, of their shapes. C2: the result is the root's shape.
    """

    opcode = "fusion"
    record = FusionAttributes
    traits = Trait.MOVES_MEMORY
    family = KernelFamily.LOOPS
    inferable = False

    @staticmethod
    def infer(*operands: Shape, attrs: FusionAttributes[ProgramShape]) -> Shape:
        check_signature("calls", attrs.calls, operands, "C1")
        return attrs.calls.result

    @staticmethod
    def evaluate(*operands: object, attrs: FusionAttributes[Callee]) -> object:
        return attrs.calls(*operands)


class AsyncStartAttributes(Attributes, Generic[F], frozen=True, kw_only=True):
    async_execution_thread: Annotated[str, STRING] = "main"
    output_to_operand_aliasing: Annotated[tuple[OperandAlias, ...], OUTPUT_TO_OPERAND_ALIASING] = ()
    calls: Annotated[F, COMPUTATION]


class AsyncStart(Op):
    """((operands), calls(operands...), contexts...): runs at once, which is always allowed.

    C1: the result is a tuple ((operands), result, ...). C2: calls takes the operands. C3: element
    1 is its result's shape.
    """

    opcode = "async-start"
    record = AsyncStartAttributes
    traits = Trait.BUFFERS
    family = KernelFamily.CONTROL
    done = "async-done"
    inferable = False
    takes_shape = True

    @staticmethod
    def infer(
        *operands: Shape, attrs: AsyncStartAttributes[ProgramShape], shape: Shape | None
    ) -> Shape:
        target = written(shape)
        chain = target.elements
        if not target.is_tuple or len(chain) < 2 or not chain[0].is_tuple:
            expected = "((operands), result, ...)"
            raise Violation("shape-mismatch", "result", text(target), expected, "C1")
        check_signature("calls", attrs.calls, operands, "C2")
        check_result("calls", attrs.calls, chain[1], "C3")
        return Shape.tuple((Shape.tuple(operands), attrs.calls.result, *chain[2:]))

    @staticmethod
    def evaluate(
        *operands: object, attrs: AsyncStartAttributes[Callee], shape: Shape
    ) -> tuple[object, ...]:
        contexts = (zeros_of(s) for s in shape.elements[2:])
        return (operands, attrs.calls(*operands), *contexts)


def zeros_of(shape: Shape) -> object:
    """A value of a shape that means nothing."""
    if shape.is_tuple:
        return tuple(zeros_of(e) for e in shape.elements)
    return np.zeros(shape.dims, shape.dtype.numpy) if shape.is_array else None


class AsyncAttributes(Attributes, Generic[F], frozen=True):
    """Of async-update and async-done, which ignore them: the start has them."""

    async_execution_thread: Annotated[str, STRING, "never"] = "main"
    calls: Annotated[F | None, COMPUTATION, "never"] = None


class AsyncUpdate(Op):
    """The state of an async chain, unchanged. C1: the operand is an async chain's tuple."""

    opcode = "async-update"
    arity = 1
    record = AsyncAttributes
    traits = Trait.BUFFERS | Trait.SAME_LAYOUT
    family = KernelFamily.FREE
    inferable = False

    @staticmethod
    def infer(chain: Shape, *, attrs: AsyncAttributes[ProgramShape]) -> Shape:
        _check_chain(chain)
        return chain

    @staticmethod
    def evaluate(chain: object, *, attrs: AsyncAttributes[Callee]) -> object:
        return chain


class AsyncDone(Op):
    """The result of an async chain, its element 1. C1: the operand is an async chain's tuple."""

    opcode = "async-done"
    arity = 1
    record = AsyncAttributes
    traits = Trait.BUFFERS
    family = KernelFamily.FREE
    inferable = False

    @staticmethod
    def infer(chain: Shape, *, attrs: AsyncAttributes[ProgramShape]) -> Shape:
        _check_chain(chain)
        return chain.elements[1]

    @staticmethod
    def evaluate(chain: tuple[object, ...], *, attrs: AsyncAttributes[Callee]) -> object:
        return chain[1]


def _check_chain(chain: Shape) -> None:
    if not chain.is_tuple or len(chain.elements) < 2:
        expected = "the tuple of an async-start"
        raise Violation("shape-mismatch", "operand 0", text(chain), expected, "C1")
