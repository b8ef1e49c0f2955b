"""Functions that kernels define for themselves: the long ones once for a program."""

import numpy as np

import hlo
from hlo import driver
from hlo.backend.compilation import Compilation
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.shared_functions import shared, shared_often
from tests.support.llvm_text import function_of

SHORT = "define internal float @short(float %x) nounwind {\n  ret float %x\n}"
LONG_LINES = "\n".join(f"  %v{n} = fadd float %x, 1.0" for n in range(30))
LONG = f"""define internal {{float, i64}} @long({{float, i64}} %p, float %x) nounwind {{
{LONG_LINES}
  %r = call float @short(float %x)
  ret {{float, i64}} %p
}}"""
PAIR = "{float, i64} poison, float 0.0"
KERNEL = f"define void @KERNEL(ptr %b) {{\n  call {{float, i64}} @long({PAIR})\n  ret void\n}}"


def kernel_of(text: str, *definitions: str) -> Kernel:
    return Kernel(function_of(text), 1, (), tuple(map(function_of, definitions)))


def test_a_long_function_is_moved_with_what_it_calls() -> None:
    kernels = {"a": kernel_of(KERNEL, SHORT, LONG)}
    found = shared(kernels)
    (name,) = found.keys() - kernels.keys()
    assert list(found) == [name, "a"]
    assert [x.text for x in found[name].globals] == [SHORT]
    assert found[name].text.startswith("define {float, i64} @KERNEL({float, i64} %p, float %x)")
    assert found["a"].globals == ()
    assert found["a"].declarations == (f"declare {{float, i64}} @{name}({{float, i64}}, float)",)
    assert f"@{name}({PAIR})" in found["a"].text


def test_kernels_of_a_program_share_a_moved_function() -> None:
    other = KERNEL.replace("ret void", "br label %end\nend:\n  ret void")
    found = shared({"a": kernel_of(KERNEL, SHORT, LONG), "b": kernel_of(other, SHORT, LONG)})
    assert len(found) == 3


def test_short_functions_and_data_stay() -> None:
    data = "@.data.1 = private constant [1 x i8] zeroinitializer"
    text = (
        "define void @KERNEL(ptr %b) {\n  call float @short(float 0.0)\n"
        "  %q = load i8, ptr @.data.1\n}"
    )
    kernel = kernel_of(text, SHORT, data)
    assert shared({"a": kernel}) == {"a": kernel}


TWO_USERS = """HloModule m

ENTRY e {
  x = c64[40]{0} parameter(0)
  y = f64[3,7]{1,0} parameter(1)
  a = c64[40]{0} tan(x)
  b = f64[3,7]{1,0} tan(y)
  c = f64[7,3]{1,0} transpose(b), dimensions={1,0}
  ROOT t = (c64[40]{0}, f64[7,3]{1,0}) tuple(a, c)
}
"""


def test_a_program_calls_its_shared_functions() -> None:
    module = hlo.parse(TWO_USERS)
    texts = [m.text for m in Compilation(driver.optimize(module), passes="", threads=1).ir]
    defined = [
        line
        for t in texts
        for line in t.splitlines()
        if line.startswith("define") and "@m_hlo" in line
    ]
    assert len(defined) == len(set(defined))
    assert any("@m_hlo.complex.tan" in line for line in defined)
    x = np.linspace(-1, 1, 40).astype(np.complex64) * np.complex64(1 + 0.5j)
    y = np.linspace(-3, 1e9, 21).reshape(3, 7)
    a, c = driver.compile(module, cache=False)(x, y)
    np.testing.assert_allclose(a, np.tan(x.astype(np.complex128)), rtol=1e-6)
    np.testing.assert_allclose(c, np.tan(y).T, rtol=1e-14)


def test_only_functions_called_often_leave_the_middle_end() -> None:
    kernel = kernel_of(KERNEL, SHORT, LONG)
    rest, functions = shared_often({"a": kernel})
    assert (rest, functions) == ({"a": kernel}, {})
    rest, functions = shared_often({"a": kernel, "b": kernel})
    (name,) = functions
    assert functions == {name: shared({"a": kernel})[name]}
    (declared,) = rest["a"].declarations
    assert declared.endswith(f"@{name}({{float, i64}}, float) nounwind willreturn memory(none)")


def test_a_function_of_addresses_is_not_called_pure() -> None:
    text = LONG.replace("float %x) nounwind", "float %x, ptr %out) nounwind")
    kernel = kernel_of(KERNEL, SHORT, text)
    rest, _ = shared_often({"a": kernel, "b": kernel})
    (declared,) = rest["b"].declarations
    assert declared.endswith("float, ptr)")


SINES = """HloModule m

step {
  s = (s32[], f32[64], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[64]{0} get-tuple-element(s), index=1
  n = s32[] get-tuple-element(s), index=2
  r = f32[64]{0} reverse(x), dimensions={0}
  a = f32[64]{0} sine(r)
  b = f32[64]{0} add(a, x)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT t = (s32[], f32[64], s32[]) tuple(j, b, n)
}

goes {
  s = (s32[], f32[64], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=2
  ROOT p = pred[] compare(i, n), direction=LT
}

ENTRY e {
  x = f32[64]{0} parameter(0)
  n = s32[] parameter(1)
  zero = s32[] constant(0)
  s = (s32[], f32[64], s32[]) tuple(zero, x, n)
  w = (s32[], f32[64], s32[]) while(s), condition=goes, body=step
  ROOT r = f32[64]{0} get-tuple-element(w), index=1
}
"""


def test_a_short_loop_calls_its_function_by_name() -> None:
    module = hlo.parse(SINES)
    modules = Compilation(driver.optimize(module), passes="", threads=1).ir
    (loop,) = [m for m in modules if m.optimised]
    assert "define internal <16 x float> @hlo.sin" not in loop.text
    x = np.linspace(-3, 1e10, 64, dtype=np.float32)
    found = driver.compile(module, cache=False)(x, np.int32(5))
    np.testing.assert_allclose(found, hlo.evaluate(module, x, np.int32(5)), rtol=1e-5)
