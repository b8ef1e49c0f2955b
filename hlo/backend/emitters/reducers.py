"""Reducers on lanes: applied to partial results, and the values that they start from."""

from __future__ import annotations

from collections.abc import Sequence

from hlo.analysis.reducers import Reducer
from hlo.backend.emitters.applied import inlined
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.lanes import alternating, types
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.types import Lanes, joined, parts
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ops.identities import identity


def apply(
    nest: Nest, reducer: Reducer, a: Sequence[Lanes], x: Sequence[Lanes], *, rounds: bool = True
) -> list[Lanes]:
    """f(a, x). rounds: results rounded to their type (else kept wide where that is allowed).

    A target on doubles makes products of f32 that way: the same bits.
    """
    parameters = reducer.computation.parameters
    values: dict[Instruction, tuple[Lanes, ...]] = {
        p: (v,) for p, v in zip(parameters, (*a, *x), strict=True)
    }
    rounds = rounds or not reducer.opcodes
    if nest.target.on_doubles and reducer.opcodes == ("multiply",):
        return [types.on_doubles(nest.w, "fmul", *types.of_one_width(nest.w, *a, *x))]
    return list(inlined(nest, reducer.computation.root, values, rounds=rounds))


def join(
    nest: Nest, reducer: Reducer, a: Sequence[Lanes], b: Sequence[Lanes], kinds: Sequence[DType]
) -> list[Lanes]:
    """f of two partial results of one reduction, the earlier one on the left where that matters."""
    if reducer.ordered_by is not None:
        w, k = nest.w, reducer.ordered_by
        (x,), (y,) = parts(a[k]), parts(b[k])
        order = "slt" if kinds[k].is_signed else "ult"
        swaps = w.compare("icmp " + order, y, x)
        a, b = _swapped(w, swaps, a, b), _swapped(w, swaps, b, a)
    return apply(nest, reducer, a, b, rounds=False)


def identities(w: Writer, reducer: Reducer, kinds: Sequence[DType]) -> list[Lanes]:
    """e with f(e, x) = x for all x, per result."""
    pairs = zip(reducer.opcodes, kinds, strict=True)
    return [_identity(w, opcode, kind) for opcode, kind in pairs]


def _swapped(w: Writer, swaps: Value, x: Sequence[Lanes], y: Sequence[Lanes]) -> list[Lanes]:
    """y where swaps, else x."""
    return [
        joined([w.select(swaps, v, u) for u, v in zip(parts(p), parts(q), strict=True)])
        for p, q in zip(x, y, strict=True)
    ]


def _identity(w: Writer, opcode: str, kind: DType) -> Lanes:
    found, scalar = identity(opcode, kind), types.compute_scalar(kind)
    assert found is not None, "of an associative op"
    if kind.is_complex:
        return w.float(complex(found).real, scalar), w.float(complex(found).imag, scalar)
    if kind.is_float:
        return w.float(float(found), scalar)  # type: ignore[arg-type]  # no complex number
    return Value("true" if found else "false", "i1") if kind.is_pred else w.int(found, scalar)  # type: ignore[arg-type]  # an integer


def half(w: Writer, lanes: Lanes, count: int, which: int) -> Lanes:
    """The lower (0) or upper (1) `count` lanes; a scalar when that is one."""
    if count == 1:
        return joined([w.extract(v, which) for v in parts(lanes)])
    own = range(which * count, (which + 1) * count)
    return joined([w.shuffle(v, None, own) for v in parts(lanes)])


def halves(w: Writer, a: Lanes, b: Lanes, run: int, part: int) -> tuple[Lanes, Lanes]:
    """Of two vectors, the even runs of lanes and the odd ones (lanes/alternating.py)."""
    pairs = [
        alternating.alternate(w, x, y, run, part) for x, y in zip(parts(a), parts(b), strict=True)
    ]
    return joined([even for even, _ in pairs]), joined([odd for _, odd in pairs])


def swapped(w: Writer, lanes: Lanes, run: int) -> Lanes:
    """Each even run of lanes in the place of the odd one behind it, and the other way round."""
    return joined([alternating.swapped(w, v, run) for v in parts(lanes)])


def every(w: Writer, lanes: Lanes, step: int) -> Lanes:
    """Lanes 0, step, 2 step, ..."""
    return joined([alternating.every(w, v, step) for v in parts(lanes)])


def turned(w: Writer, lanes: Lanes, step: int) -> Lanes:
    """Lane k from lane k + step; the last ones are any lanes. Machines whose vectors slide (RISC-V)
    take fewer instructions for it than for runs that are swapped.
    """
    count = types.width(lanes)
    order = [(lane + step) % count for lane in range(count)]
    return joined([w.shuffle(v, None, order) for v in parts(lanes)])
