"""Orders of bytes behind loads, and what that keeps of them in small loops."""

import pytest

import hlo
from hlo.backend.entry.byte_orders import hide
from hlo.backend.ir.definitions import Definitions
from hlo.backend.ir.functions import Function
from hlo.backend.ir.kernel import Kernel
from hlo.backend.linking.toolchain import host_target
from hlo.driver import emit_stage, optimize
from tests.support.llvm_text import function_of

CALL = "call <64 x i8> @llvm.x86.avx512.permvar.qi.512(<64 x i8> %x, <64 x i8> {})"
UP, DOWN = "<i8 1, i8 2>", "<i8 2, i8 1>"
LOOP = """HloModule m
c { s = (s32[], bf16[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(40)
  ROOT p = pred[] compare(i, n), direction=LT }
b { s = (s32[], bf16[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = bf16[64] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  f = bf16[] constant(0.5)
  g = bf16[64] broadcast(f), dimensions={}
  y = bf16[64] multiply(x, g)
  z = bf16[64] add(y, x)
  ROOT t = (s32[], bf16[64]) tuple(j, z) }
ENTRY e {
  x = (s32[], bf16[64]) parameter(0)
  ROOT w = (s32[], bf16[64]) while(x), condition=c, body=b
}"""


def hidden(*calls: str) -> tuple[list[str], list[str]]:
    """The data that was added, and the lines of a function that holds the calls."""
    lines = [f"  %v{n} = {call}" for n, call in enumerate(calls)]
    function = function_of("\n".join(["define void @KERNEL(<64 x i8> %x) {", *lines, "}"]))
    assert isinstance(function, Function)
    module = Definitions()
    module.place("k", Kernel(function, 1))
    data = [d.text for d in hide(module)]
    return data, module.functions[0].text.split("\n")[1:-1]


def test_equal_orders_are_loaded_from_one_place() -> None:
    data, lines = hidden(*(CALL.format(order) for order in (UP, DOWN, UP)))
    assert data == [
        f"@hlo.order.{n} = internal externally_initialized constant <64 x i8> {order}, align 64"
        for n, order in enumerate((UP, DOWN))
    ]
    loads = [line.split("ptr ")[1] for line in lines if " load " in line]
    assert loads == [f"@hlo.order.{n}, align 64" for n in (0, 1, 0)]
    assert lines[-1] == f"  %v2 = {CALL.format('%v2.order')}"


def test_an_order_that_comes_at_run_time_stays() -> None:
    assert hidden(CALL.format("%order")) == ([], [f"  %v0 = {CALL.format('%order')}"])


@pytest.mark.skipif(not host_target().isa.permutes_bytes, reason="no such permutations")
def test_small_loops_on_bf16_permute_bytes() -> None:
    code = emit_stage(optimize(hlo.parse(LOOP)), "asm")
    assert "vpermb" in code
    assert "vpermt2b" not in code
    assert "vpmovdw" not in code
