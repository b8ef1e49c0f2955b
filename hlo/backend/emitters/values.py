"""Ops whose elements are made, not moved: iota, constant, map, bitcast-convert that regroups."""

from __future__ import annotations

from collections.abc import Sequence

from hlo.backend.emitters import constants, elementwise
from hlo.backend.emitters.applied import inlined
from hlo.backend.emitters.elemental import Elemental, Emitter
from hlo.backend.ir.writer import Value, vector_of
from hlo.backend.lanes import access, types
from hlo.backend.lanes.access import Memory
from hlo.backend.lanes.types import Lanes
from hlo.backend.loops.expression import Path
from hlo.indexing import affine
from hlo.indexing.affine import Expr, Index
from hlo.ir.dtype import DTYPES, DType
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ops.movement import IotaAttributes


def iota(
    elemental: Elemental, instruction: Instruction, indices: Sequence[Index], _: Path
) -> list[Lanes]:
    """convert(j_d)"""
    d = IotaAttributes.of(instruction.attributes).iota_dimension
    return [_counted(elemental, index[d], instruction.shape.dtype) for index in indices]


def _counted(elemental: Elemental, e: Expr, dtype: DType) -> Lanes:
    nest = elemental.nest
    value = nest.lane_values(e, e.lanes) if e.lanes > 1 else nest.scalar(e)
    real = constants.counted(nest.w, value, dtype.component)
    if dtype.is_complex:
        return real, nest.w.float(0.0, real.type)
    return types.rounded(nest.w, nest.target, real, dtype)


def constant(
    elemental: Elemental, instruction: Instruction, indices: Sequence[Index], path: Path
) -> list[Lanes]:
    """Inline where all elements are equal, otherwise a load from data beside the kernel."""
    literal = instruction["literal"]
    assert isinstance(literal, Literal)
    for k in path:
        assert isinstance(literal.value, tuple)
        literal = literal.value[k]
    storage = elemental.expression.storage(literal.shape.dtype)
    if storage is not literal.shape.dtype and not literal.is_elided:
        literal = constants.bits_of(literal, storage)
    if not literal.shape.dims or literal.is_uniform:
        return [constants.scalar(elemental.nest.w, literal) for _ in indices]
    base = constants.array(elemental.nest.w, literal)
    memory = Memory(base, literal.shape.dtype, literal.shape.size)
    guard = elemental.test(elemental.guards) if elemental.guards else None
    results = []
    for index in indices:
        position = affine.linear(index, literal.shape.dims)
        own = guard
        if own is not None and own.lanes > 1 and position.lanes == 1:
            own = Value("true", "i1")
        results.append(access.load(elemental.nest, memory, position, own))
    return results


def map_(
    elemental: Elemental, instruction: Instruction, indices: Sequence[Index], path: Path
) -> list[Lanes]:
    """f(x_0[j], ..)"""
    (computation,) = instruction.called_computations()
    columns = [elemental.lanes_at(x, indices) for x in instruction.operands]
    results = []
    for n, index in enumerate(indices):
        lanes = max((e.lanes for e in index), default=1)
        given = [elemental.splat(column[n], lanes) for column in columns]
        values: dict[Instruction, tuple[Lanes, ...]] = {
            p: (v,) for p, v in zip(computation.parameters, given, strict=True)
        }
        results.append(inlined(elemental.nest, computation.root, values)[path[0] if path else 0])
    return results


def bitcast_convert(
    elemental: Elemental, instruction: Instruction, indices: Sequence[Index], _: Path
) -> list[Lanes]:
    """Parts of wider elements, or elements joined from narrower ones; part 0 is the lowest."""
    (operand,) = instruction.operands
    if operand.shape.dtype.bits > instruction.shape.dtype.bits:
        wholes = elemental.lanes_at(operand, [index[:-1] for index in indices])
        pairs = zip(wholes, indices, strict=True)
        return [_part(elemental, instruction, whole, index[-1]) for whole, index in pairs]
    count = operand.shape.dims[-1]
    results = []
    for index in indices:
        pieces = elemental.lanes_at(operand, [(*index, affine.number(k)) for k in range(count)])
        results.append(_joined(elemental, instruction, pieces))
    return results


def _part(elemental: Elemental, instruction: Instruction, whole: Lanes, which: Expr) -> Lanes:
    source, target = instruction.operands[0].shape.dtype, instruction.shape.dtype
    w = elemental.nest.w
    bits = _bits(elemental, whole, source)
    moved = which * target.bits
    lanes = max(bits.lanes, which.lanes)
    wide = elemental.splat(bits, lanes)
    assert isinstance(wide, Value)
    if which.lanes > 1:
        amount = elemental.nest.lane_values(moved, lanes, "i64")
    else:
        amount = w.splat(elemental.nest.scalar(moved), lanes)
    amount = amount.of_type(vector_of("i64", lanes))
    if wide.scalar_type != "i64":
        amount = w.cast("trunc", amount, wide.type)
    return of_bits(elemental, w.binary("lshr", wide, amount), target)


def _joined(elemental: Elemental, instruction: Instruction, pieces: list[Lanes]) -> Lanes:
    source, target = instruction.operands[0].shape.dtype, instruction.shape.dtype
    w = elemental.nest.w
    total: Value | None = None
    for k, piece in enumerate(pieces):
        bits = _bits(elemental, piece, source)
        wide = w.cast("zext", bits, vector_of(f"i{target.bits}", bits.lanes))
        moved = w.binary("shl", wide, w.int(k * source.bits, wide.type))
        total = moved if total is None else w.binary("or", total, moved)
    assert total is not None, "at least one piece"
    return of_bits(elemental, total, target)


def _bits(elemental: Elemental, lanes: Lanes, dtype: DType) -> Value:
    """The element's own bits as an integer of exactly its width."""
    assert isinstance(lanes, Value), "complex elements are not regrouped"
    w, machine = elemental.nest.w, elemental.nest.target
    unsigned = DTYPES.get(f"u{dtype.bits}")
    # Read as an integer of its width, so that NaNs keep their bits.
    if dtype.is_float and unsigned is not None:
        read = elementwise.emit("bitcast-convert", w, machine, [lanes], [dtype], unsigned)
        assert isinstance(read, Value), "integers"
        return read
    raw = types.encoded(w, machine, lanes, dtype)
    own = vector_of(f"i{dtype.bits}", raw.lanes)
    if raw.scalar_type in ("float", "double"):
        return w.cast("bitcast", raw, own)
    return w.cast("trunc", raw, own)


def of_bits(elemental: Elemental, bits: Value, dtype: DType) -> Lanes:
    """The element whose bits are the lowest of an integer."""
    w = elemental.nest.w
    own = w.cast("trunc", bits, vector_of(f"i{dtype.bits}", bits.lanes))
    storage = vector_of(types.storage_scalar(dtype), bits.lanes)
    if dtype.is_float and dtype.bits >= 32:
        raw = w.cast("bitcast", own, storage)
    else:
        raw = w.cast("zext", own, storage)
    return types.decoded(w, elemental.nest.target, raw, dtype)


VALUES: dict[str, Emitter] = {
    "bitcast-convert": bitcast_convert,
    "constant": constant,
    "iota": iota,
    "map": map_,
}
