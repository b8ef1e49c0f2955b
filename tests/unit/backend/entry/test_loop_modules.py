"""Modules of short loops: long ones apart, small ones together, each with its kernels' copies."""

import hlo
from hlo import driver
from hlo.backend.compilation import Compilation
from hlo.backend.entry.loop_ir import MODULE_LINES, ShortLoop, loop_modules
from hlo.backend.ir.kernel import Kernel
from tests.support.llvm_text import function_of

TEXT = "define void @KERNEL(ptr %b, i64 %begin, i64 %end) {\n  ret void\n}"
KERNEL = Kernel(function_of(TEXT), 1)


def loop(number: int, lines: int, *kernels: str) -> ShortLoop:
    name = f"hlo_loop_{number}"
    body = "  %x = add i32 0, 0\n" * lines
    return ShortLoop(name, f"define void @{name}(ptr %frame) {{\n{body}}}", kernels)


def test_small_loops_share_a_module_and_its_kernels() -> None:
    (module,) = loop_modules([loop(0, 5, "k", "l"), loop(1, 5, "k")], {"k": KERNEL, "l": KERNEL})
    assert module.symbols == ("hlo_loop_0", "hlo_loop_1")
    assert module.text.count("define internal void @k.in(") == 1
    assert module.optimised


def test_long_loops_have_modules_of_their_own() -> None:
    kernels = {"k": KERNEL, "l": KERNEL}
    loops = [loop(0, MODULE_LINES + 9, "k"), loop(1, MODULE_LINES - 9, "k"), loop(2, 30, "l")]
    modules = loop_modules(loops, kernels)
    assert [m.symbols for m in modules] == [("hlo_loop_0",), ("hlo_loop_1",), ("hlo_loop_2",)]
    assert ["@l.in(" in m.text for m in modules] == [False, False, True]
    assert loop_modules([], {}) == []


COUNTS = """HloModule m

goes { s = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  ROOT p = pred[] compare(i, n), direction=LT }

step { s = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  two = s32[] constant(2)
  j = s32[] add(i, two)
  ROOT t = (s32[], s32[]) tuple(j, n) }

ENTRY e { a = s32[] parameter(0)
  b = s32[] parameter(1)
  s = (s32[], s32[]) tuple(a, b)
  w = (s32[], s32[]) while(s), condition=goes, body=step
  i = s32[] get-tuple-element(w), index=0
  three = s32[] constant(3)
  c = s32[] multiply(i, three)
  u = (s32[], s32[]) tuple(b, c)
  v = (s32[], s32[]) while(u), condition=goes, body=step
  ROOT r = s32[] get-tuple-element(v), index=0 }
"""


def test_two_loops_of_a_program_run_one_after_the_other() -> None:
    module = hlo.parse(COUNTS)
    modules = Compilation(driver.optimize(module), passes="", threads=1).ir
    defined = [s for m in modules for s in m.symbols if s.startswith("hlo_loop")]
    assert defined == ["hlo_loop_0", "hlo_loop_1"]
    assert driver.compile(module, cache=False)(1, 8) == 28
