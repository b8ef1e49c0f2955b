"""Inputs that abort, crash or hang the real parser or importer: ours reports an error.

Source: docs/control.md 6.8, docs/semantics.md 18.
"""

import pytest

from hlo.driver import parse, verify
from hlo.errors import HloError

F = "f { a = f32[2] parameter(0) ROOT n = f32[2] negate(a) }\n"
KILLERS = {
    "parameter gap": "ENTRY e { ROOT p = f32[2] parameter(1) }",
    "huge parameter number": "ENTRY e { ROOT p = f32[2] parameter(1000000) }",
    "reshape count": "ENTRY e { p = f32[2] parameter(0) ROOT r = f32[3] reshape(p) }",
    "dynamic-reshape count": "ENTRY e { p = f32[2] parameter(0) s = s32[] parameter(1) "
    "ROOT r = f32[<=3] dynamic-reshape(p, s) }",
    "dynamic-reshape sizes": "ENTRY e { p = f32[2] parameter(0) ROOT r = f32[<=2] dynamic-reshape(p) }",  # noqa: E501  # a program
    "element out of range": "ENTRY e { p = (f32[2]) parameter(0) "
    "ROOT r = f32[2] get-tuple-element(p), index=3 }",
    "element of an array": "ENTRY e { p = f32[2] parameter(0) "
    "ROOT r = f32[2] get-tuple-element(p), index=0 }",
    "inferred element out of range": "ENTRY e { p = (f32[2]) parameter(0) "
    "ROOT r = get-tuple-element(p), index=3 }",
    "recv of an array": "ENTRY e { t = token[] after-all() ROOT r = f32[2] recv(t), channel_id=1 }",
    "recv of nothing": "ENTRY e { t = token[] after-all() ROOT r = () recv(t), channel_id=1 }",
    "conditional without operands": F + "ENTRY e { ROOT r = f32[2] conditional(), "
    "branch_computations={f} }",
    "rng-bit-generator without operands": "ENTRY e { ROOT r = (u64[2], u32[2]) "
    "rng-bit-generator(), algorithm=rng_philox }",
    "reduce-window without operands": "add { a = f32[] parameter(0) b = f32[] parameter(1) "
    "ROOT r = f32[] add(a, b) }\nENTRY e { ROOT r = f32[2] reduce-window(), to_apply=add }",
    "scan with a negative dimension": "s { x = f32[] parameter(0) c = f32[] parameter(1) "
    "ROOT r = f32[] add(x, c) }\nENTRY e { p = f32[2] parameter(0) z = f32[] parameter(1) "
    "ROOT r = f32[] scan(p, z), dimensions={-1}, num_carries=1, to_apply=s }",
    "unknown mesh axis": "ENTRY e { p = f32[2] parameter(0) ROOT r = f32[2] all-to-all(p), "
    "replica_groups=mesh['a'=2] {'b'}, dimensions={0} }",
    "part of a mesh's empty axis": "ENTRY e { ROOT p = f32[2] parameter(0), "
    "sharding={mesh['a'=0], [{'a':(1)2}]} }",
    "malformed origin": 'ENTRY e { ROOT p = f32[2] parameter(0), origin={{"x"},{"y"}} }',
    "origin of a lost path": 'ENTRY e { ROOT p = f32[2] parameter(0), origin={){"x"}} }',
    "sugar without operands": "ENTRY e { s = ((), f32[2], u32[]) dot-start() "
    "ROOT d = f32[2] dot-done(s) }",
    "fusion with more operands than parameters": F + "ENTRY e { p = f32[2] parameter(0) "
    "ROOT r = f32[2] fusion(p, p), kind=kLoop, calls=f }",
    "send without channel": "ENTRY e { p = f32[2] parameter(0) t = token[] after-all() "
    "s = (f32[2], u32[], token[]) send(p, t) ROOT d = token[] send-done(s) }",
    "send without user": "ENTRY e { p = f32[2] parameter(0) t = token[] after-all() "
    "ROOT s = (f32[2], u32[], token[]) send(p, t), channel_id=1 }",
    "iota groups of another size": "ENTRY e { p = f32[8] parameter(0) ROOT r = f32[8] "
    "all-to-all(p), replica_groups=[2,4]<=[7], dimensions={0} }",
    "transposition out of range": "ENTRY e { p = f32[8] parameter(0) ROOT r = f32[8] "
    "all-to-all(p), replica_groups=[2,2]<=[2,2]T(0,5), dimensions={0} }",
    "token with dimensions": "ENTRY e { ROOT t = token[2] parameter(0) }",
    "replica-id of another type": "ENTRY e { ROOT r = s32[] replica-id() }",
    "dot with one operand": "ENTRY e { p = f32[2] parameter(0) ROOT r = f32[2] dot(p) }",
    "compare of tuples": "ENTRY e { p = (f32[2]) parameter(0) "
    "ROOT r = pred[] compare(p, p), direction=EQ }",
    "overflowing element count": "ENTRY e { p = f32[9223372036854775807,9223372036854775807] "
    "parameter(0) ROOT r = f32[3] reshape(p) }",
    "triangular-solve of vectors": "ENTRY e { p = f32[2] parameter(0) ROOT r = f32[2] "
    "triangular-solve(p, p), transpose_a=NO_TRANSPOSE }",
    "negative slice size": "ENTRY e { p = f32[2] parameter(0) i = s32[] parameter(1) "
    "ROOT r = f32[2] dynamic-slice(p, i), dynamic_slice_sizes={-2} }",
}


@pytest.mark.parametrize("name", KILLERS)
def test_killer_is_an_error(name: str) -> None:
    with pytest.raises(HloError) as raised:
        verify(parse(f"HloModule m\n{KILLERS[name]}\n"))
    assert raised.value.span is not None
    assert raised.value.message
