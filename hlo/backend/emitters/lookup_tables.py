"""Lookup tables: a chain of ops from a float of 8 or 16 bits to a float is looked up by its code.

    code of the root = table[code of the source], as all between depends on the source alone

The table is filled when the executable is made (ir/table_filling.py), by the chain itself, so that
the bits are those of the ops. Sixteen entries take 9 cycles of the load ports (normally distributed
numbers touch a few KB); an exponential rounded to bf16 takes 14 of the arithmetic ones, each sum or
product 2.5.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo.backend.emitters import constants
from hlo.backend.emitters.applied import apply
from hlo.backend.ir import table_filling
from hlo.backend.ir.values import counted, poison
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.isa.target import Target
from hlo.backend.lanes import types
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.types import Lanes
from hlo.backend.loops.chains import LANES as _LANES
from hlo.backend.loops.chains import table_of, uniform
from hlo.backend.loops.expression import Chain, Expression
from hlo.hashing import hasher
from hlo.ir.dtype import DType

_WORD_BYTES = 4
_EXTRA = 4  # Entries behind the last one: of short entries a whole word is read.


def looked_up(nest: Nest, expression: Expression, chain: Chain, xs: Sequence[Lanes]) -> list[Lanes]:
    """Lanes of the chain's root for lanes of its source."""
    table = _table(nest, expression, chain)
    kinds = chain.source[0].shape.dtype, chain.root.shape.dtype
    return [_entries(nest, table, x, *kinds) for x in xs if isinstance(x, Value)]


def _table(nest: Nest, expression: Expression, chain: Chain) -> Value:
    """The table's address. Equal chains have equal names, in all kernels of a program."""
    with nest.at(0) as entry:
        found = entry.memo.get(("table", chain.root, chain.source))
        if found is None:
            entries = table_of(expression, chain).entries
            inner = _filling(nest.target, expression, chain, entries)
            digest = hasher(inner.text().encode())
            name = f"hlo.codes.{digest.hexdigest()[:20]}"
            kind = types.storage_scalar(chain.root.shape.dtype)
            table_filling.enter(nest.w, name, f"[{entries + _EXTRA} x {kind}]", inner)
            found = entry.memo["table", chain.root, chain.source] = Value(f"@{name}", "ptr")
    assert isinstance(found, Value), "an address under this key"
    return found


def _filling(target: Target, expression: Expression, chain: Chain, entries: int) -> Writer:
    """The lines of the function that evaluates the chain for every code."""
    w = Writer()
    nest = Nest(w, target)
    source = chain.source[0].shape.dtype
    scalar = types.storage_scalar(source)
    counting = counted(scalar, _LANES)

    def round_of(i: Value, _: list[Value]) -> list[Value]:
        first = w.splat(w.cast("trunc", i, scalar), _LANES)
        raw = w.binary("add", first, counting)
        x = types.decoded(w, nest.target, raw, source)
        result = _evaluated(nest, expression, chain, x)
        code = types.encoded(w, nest.target, result, chain.root.shape.dtype)
        w.store(code, w.address(Value("%table", "ptr"), i, code.scalar_type), 1)
        return []

    nest.loop(0, entries, _LANES, [], round_of)
    w.ret()
    return w


def _evaluated(nest: Nest, expression: Expression, chain: Chain, x: Value) -> Value:
    """The root's lanes for lanes of the source."""
    values: dict[object, Lanes] = {chain.source: x}
    for member in chain.members:
        operands = []
        for operand in member.operands:
            node = expression.source(operand, ())
            if node not in values:
                literal = uniform(expression, node)
                assert literal is not None, "what is not in the chain is constant"
                values[node] = constants.scalar(nest.w, literal)
            operands.append(values[node])
        kinds = [o.shape.dtype for o in member.operands]
        result = apply(nest, member, operands, kinds)
        values[member, ()] = types.splat(nest.w, result, _LANES)
    root = values[chain.root, ()]
    assert isinstance(root, Value), "a real number"
    return root


# -- looking up ----------------------------------------------------------------------------------


def _entries(nest: Nest, table: Value, x: Value, source: DType, root: DType) -> Value:
    """Lanes of the root for lanes of the source."""
    w, target = nest.w, nest.target
    code = _code(nest, x, source)
    kind = types.storage_scalar(root)
    gather = target.isa.quick_gather(x.lanes)
    if gather is None:
        return types.decoded(w, target, _one_by_one(w, table, code, kind), root)
    words = gather(w, table, code, root.item_bytes)
    floats = vector_of("float", _LANES)
    if root.item_bytes == _WORD_BYTES:
        return w.cast("bitcast", words, floats)
    raw = w.cast("trunc", words, vector_of(kind, _LANES))
    if root.name != "bf16":
        return types.decoded(w, target, raw, root)
    result = w.cast("bitcast", w.binary("shl", words, w.int(16, words.type)), floats)
    w.note(result, types.BF16_CODE, raw)
    return result


def _code(nest: Nest, x: Value, source: DType) -> Value:
    """i32 lanes of the codes of lanes that hold numbers of the type."""
    w, words = nest.w, vector_of("i32", x.lanes)
    if source.name != "bf16":
        return w.cast("zext", types.encoded(w, nest.target, x, source), words)
    raw = w.noted(x, types.BF16_CODE)
    if raw is not None:
        return w.cast("zext", raw, words)
    bits = w.cast("bitcast", w.noted(x, source.name) or x, words)
    return w.binary("lshr", bits, w.int(16, words))


def _one_by_one(w: Writer, entries: Value, code: Value, kind: str) -> Value:
    """Lanes of the table's entries."""
    if code.lanes == 1:
        return w.load(w.address(entries, code, kind), kind, 1)
    result = poison(vector_of(kind, code.lanes))
    for lane in range(code.lanes):
        entry = w.load(w.address(entries, w.extract(code, lane), kind), kind, 1)
        result = w.insert(result, entry, lane)
    return result
