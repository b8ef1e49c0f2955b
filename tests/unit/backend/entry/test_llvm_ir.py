"""The program as LLVM modules: what is written once, how long programs are cut, short loops."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from hlo.backend.entry.kernel_modules import kernel_module
from hlo.backend.entry.llvm_ir import emit
from hlo.backend.entry.step_lists import STEPS_PER_FUNCTION
from hlo.backend.ir.definitions import symbol
from hlo.backend.ir.ir_module import ENTRY
from hlo.backend.ir.kernel import Kernel
from hlo.backend.linking import toolchain
from hlo.backend.linking.compile import objects
from hlo.backend.linking.installing import link
from hlo.backend.linking.tabulation import link_table
from hlo.backend.planning.program import LoopStep, Program, kernel_steps
from hlo.backend.planning.steps import program_of
from hlo.interpreter.evaluate import evaluate
from hlo.machine import COMMON
from hlo.parser.parse import parse
from tests.support.llvm_text import function_of
from tests.support.tiny_kernels import compiled, f32, planned


def program(text: str) -> Program:
    return program_of(planned(text), 1, COMMON)


def chain(length: int) -> str:
    rows = ["HloModule chain", "ENTRY e {", "  x0 = f32[3] parameter(0)"]
    for n in range(length):
        opcode = ("add", "multiply", "subtract")[n % 3]
        root = "ROOT " if n == length - 1 else ""
        rows.append(f"  {root}x{n + 1} = f32[3] {opcode}(x{n}, x{max(0, n - 2)})")
    return "\n".join([*rows, "}"])


def test_equal_kernels_are_written_once() -> None:
    made = program(chain(90))
    assert len(made.kernels) <= 4
    text = "\n".join(str(m) for m in emit(made))
    assert text.count("define void @k_") == len(made.kernels)


def test_long_programs_are_cut_into_functions() -> None:
    text = chain(3 * STEPS_PER_FUNCTION)
    made = program(text)
    modules = emit(made, workers=2)
    assert "\n".join(m.text for m in modules).count("define i32 @hlo_part") >= 3
    table = replace(link_table(made), calls=())
    executable = link(parse(text), table, objects(modules, cache=False))
    x = f32(0.25, 0.5, 1)
    np.testing.assert_array_equal(executable(x), evaluate(parse(text), x))


def test_ten_thousand_kernels_compile() -> None:
    x = np.zeros(3, np.float32)
    np.testing.assert_array_equal(compiled(chain(10_000))(x), x)


def test_small_programs_are_one_module() -> None:
    modules = emit(program(chain(3)), workers=1)
    assert len(modules) == 1
    assert ENTRY in modules[0].symbols


def test_lists_of_kernels_have_no_entry() -> None:
    made = program(chain(90))
    assert made.is_listed
    assert not any(ENTRY in m.symbols for m in emit(made))
    table = link_table(made)
    assert [slot for _, slot, _ in table.calls] == [s.slot for s in kernel_steps(made)]
    assert {name for name, _, _ in table.calls} == {symbol(kernel) for kernel in made.kernels}
    x = f32(0.25, 0.5, 1)
    expected = evaluate(parse(chain(90)), x)
    np.testing.assert_array_equal(compiled(chain(90))(x), expected)


def test_loops_files_and_flushed_runs_have_one() -> None:
    loop = program(COUNTING)
    assert not loop.is_listed
    assert link_table(loop).calls == ()
    flushed = toolchain.host_target().isa.float_mode
    listed = program(chain(3))
    for modules in (emit(loop), emit(listed, workers=1), emit(listed, flushed=flushed)):
        assert any(ENTRY in m.symbols for m in modules)


@pytest.mark.parametrize("flushes", [False, True])
def test_modules_verify(*, flushes: bool) -> None:
    flushed = toolchain.host_target().isa.float_mode if flushes else None
    modules = emit(program(chain(5)), flushed=flushed, workers=1)
    verified = [str(toolchain.parsed(m)) for m in modules]
    assert any(f"@{ENTRY}(" in text for text in verified)


def kernel(body: str, *, globals: tuple[str, ...]) -> Kernel:
    text = f"define void @KERNEL(ptr %buffers, i64 %begin, i64 %end) {{\n{body}\n  ret void\n}}\n"
    return Kernel(function_of(text), 1, globals=tuple(map(function_of, globals)))


def test_equal_globals_are_shared_and_unequal_ones_renamed() -> None:
    use = "  %v = load i64, ptr @.c0"
    first = kernel(use, globals=("@.c0 = private constant i64 1",))
    same = kernel(use + "\n", globals=("@.c0 = private constant i64 1",))
    other = kernel(use, globals=("@.c0 = private constant i64 2",))
    module = kernel_module({"a": first, "b": same, "c": other})
    assert module.text.count("constant i64 1") == 1
    assert "@.c0.c = private constant i64 2" in module.text
    assert "load i64, ptr @.c0.c" in module.text
    toolchain.parsed(module)


COUNTING = """HloModule counting
c { s = (s32[], f32[2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(500)
  ROOT p = pred[] compare(i, n), direction=LT }
b { s = (s32[], f32[2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[2] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[2] multiply(x, x)
  z = f32[2] add(y, x)
  ROOT t = (s32[], f32[2]) tuple(j, z) }
ENTRY e {
  zero = s32[] constant(0)
  x = f32[2] parameter(0)
  t = (s32[], f32[2]) tuple(zero, x)
  ROOT w = (s32[], f32[2]) while(t), condition=c, body=b
}"""


def test_short_loops_are_optimised_functions() -> None:
    made = program(COUNTING)
    assert any(isinstance(s, LoopStep) for s in made.steps)
    (loops,) = [m for m in emit(made) if m.optimised]
    assert "alwaysinline" in loops.text
    optimised = str(toolchain.parsed(loops))
    assert "call void @k_" not in optimised


def counting_chain(length: int, size: int) -> str:
    """A loop of so many steps, each on an array of so many elements."""
    ops = [
        f"  y{n + 1} = f32[{size}] {('add', 'multiply')[n % 2]}(y{n}, y{max(0, n - 2)})"
        for n in range(length)
    ]
    text = COUNTING.replace("f32[2]", f"f32[{size}]").splitlines()
    at = next(i for i, line in enumerate(text) if "multiply(x, x)" in line)
    text[at] = "\n".join([f"  y0 = f32[{size}] multiply(x, x)", *ops])
    return "\n".join(text).replace("add(y, x)", f"add(y{length}, x)")


@pytest.mark.parametrize(("length", "size", "inlined"), [(100, 2, 1), (20, 64, 1), (20, 128, 0)])
def test_loops_of_many_steps_are_short_as_long_as_each_step_is(
    length: int, size: int, inlined: int
) -> None:
    """From memory a step takes 0.00, 0.04 and 0.07 us."""
    text = counting_chain(length, size)
    assert sum(m.optimised for m in emit(program(text))) == inlined
    if size == 2:
        x = f32(0.1, -0.3)
        expected = evaluate(parse(text), x)
        got = compiled(text)(x)
        assert [a.tobytes() for a in got] == [e.tobytes() for e in expected]  # type: ignore[attr-defined]  # arrays


def test_short_loops_give_the_interpreters_bits() -> None:
    x = f32(0.1, -0.3)
    expected = evaluate(parse(COUNTING), x)
    got = compiled(COUNTING)(x)
    assert [a.tobytes() for a in got] == [e.tobytes() for e in expected]  # type: ignore[attr-defined]  # arrays
