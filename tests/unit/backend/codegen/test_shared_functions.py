"""Functions that kernels define for themselves: the long ones once for a program."""

import numpy as np

import hlo
from hlo import driver
from hlo.backend import backend
from hlo.backend.codegen.shared_functions import shared
from hlo.backend.kernels.kernel import Kernel

SHORT = "define internal float @short(float %x) nounwind {\n  ret float %x\n}"
LONG_LINES = "\n".join(f"  %v{n} = fadd float %x, 1.0" for n in range(30))
LONG = f"""define internal {{float, i64}} @long({{float, i64}} %p, float %x) nounwind {{
{LONG_LINES}
  %r = call float @short(float %x)
  ret {{float, i64}} %p
}}"""
PAIR = "{float, i64} poison, float 0.0"
KERNEL = f"define void @KERNEL(ptr %b) {{\n  call {{float, i64}} @long({PAIR})\n  ret void\n}}"


def test_a_long_function_is_moved_with_what_it_calls() -> None:
    kernels = {"a": Kernel(KERNEL, 1, (), (SHORT, LONG))}
    found = shared(kernels)
    (name,) = found.keys() - kernels.keys()
    assert list(found) == [name, "a"]
    assert found[name].globals == (SHORT,)
    assert found[name].text.startswith("define {float, i64} @KERNEL({float, i64} %p, float %x)")
    assert found["a"].globals == ()
    assert found["a"].declarations == (f"declare {{float, i64}} @{name}({{float, i64}}, float)",)
    assert f"@{name}({PAIR})" in found["a"].text


def test_kernels_of_a_program_share_a_moved_function() -> None:
    other = KERNEL.replace("ret void", "br label %end\nend:\n  ret void")
    found = shared(
        {"a": Kernel(KERNEL, 1, (), (SHORT, LONG)), "b": Kernel(other, 1, (), (SHORT, LONG))}
    )
    assert len(found) == 3


def test_short_functions_and_data_stay() -> None:
    data = "@.data.1 = private constant [1 x i8] zeroinitializer"
    text = (
        "define void @KERNEL(ptr %b) {\n  call float @short(float 0.0)\n  load i8, ptr @.data.1\n}"
    )
    kernel = Kernel(text, 1, (), (SHORT, data))
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
    texts = [m.text for m in backend.emit_llvm(backend.build_program(driver.optimize(module)))]
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
