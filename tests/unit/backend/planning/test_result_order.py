"""Results whose layout is not row-major lie in memory as the header says, without a copy."""

import numpy as np
import pytest

from hlo import driver
from hlo.backend.compilation import Compilation
from hlo.backend.planning.result_order import in_memory_order
from hlo.interpreter.evaluate import evaluate

TRANSPOSED = """HloModule m, entry_computation_layout={(f32[4,5]{1,0})->f32[5,4]{0,1}}
ENTRY e { x = f32[4,5] parameter(0)
  ROOT t = f32[5,4]{0,1} transpose(x), dimensions={1,0} }"""
NESTED = """HloModule m,
  entry_computation_layout={(f32[4,5]{1,0})->(f32[5,4]{0,1}, (f32[4,5]{0,1}, f32[4,5]{1,0}))}
ENTRY e { x = f32[4,5] parameter(0)
  n = f32[4,5] negate(x)
  s = (f32[4,5], f32[4,5]) tuple(n, x)
  t = f32[5,4]{0,1} transpose(n), dimensions={1,0}
  ROOT r = (f32[5,4]{0,1}, (f32[4,5], f32[4,5])) tuple(t, s) }"""
TURNED = """HloModule m, entry_computation_layout={(f32[2,4,5]{2,1,0})->f32[2,4,5]{1,0,2}}
ENTRY e { ROOT x = f32[2,4,5] parameter(0) }"""
DONATED = """HloModule m, input_output_alias={ {}: (0, {}, may-alias) },
  entry_computation_layout={(f32[4,5]{1,0})->f32[4,5]{0,1}}
ENTRY e { x = f32[4,5] parameter(0)
  ROOT n = f32[4,5]{0,1} negate(x) }"""
BOUND = DONATED.replace("may-alias", "must-alias")
CALLED = """HloModule m, entry_computation_layout={(f32[4,5]{1,0})->(f32[4,5]{0,1}, f32[4,5]{1,0})}
ENTRY e { x = f32[4,5] parameter(0)
  p = pred[] constant(true)
  t = (f32[4,5], f32[4,5]) tuple(x, x)
  ROOT c = (f32[4,5], f32[4,5]) conditional(p, t, t), true_computation=i, false_computation=i }
"""
SAME = "i { ROOT i = (f32[4,5], f32[4,5]) parameter(0) }\n"
CALLED = CALLED.replace("ENTRY", SAME + "ENTRY")


def leaves(value: object) -> list[np.ndarray]:
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in leaves(part)]
    return [value]


@pytest.mark.parametrize("text", [TRANSPOSED, NESTED, TURNED, DONATED, BOUND, CALLED])
def test_layouts_of_results(text: str) -> None:
    module = driver.parse(text)
    dims = module.entry.parameters[0].shape.dims
    x = np.arange(np.prod(dims), dtype=np.float32).reshape(dims)
    wanted = leaves(evaluate(module, x))
    shapes = list(module.attributes["entry_computation_layout"].result.leaves())
    executable = driver.compile(module, cache=False)
    for found in (
        executable(x),
        executable(x[::-1][::-1]),
        executable(x.copy(), donate=(0,)),
        executable.run_guarded(x),
        Compilation(module, passes="").executable(x),
    ):
        for a, b, shape in zip(leaves(found), wanted, shapes, strict=True):
            np.testing.assert_array_equal(a, b)
            order = shape.layout.minor_to_major[::-1]
            assert a.transpose(order).flags.c_contiguous


def test_transpose_that_the_layout_undoes() -> None:
    """What is left is a copy of the argument."""
    ordered = in_memory_order(driver.parse(TRANSPOSED))
    assert [i.opcode for i in driver.optimize(ordered).entry.instructions] == ["parameter"]


def test_gradient_that_lies_as_its_dot_makes_it_is_not_turned() -> None:
    """As JAX writes the gradient of weights: the dot's transpose, in the dot's own order."""
    text = """HloModule m,
      entry_computation_layout={(f32[40,50]{1,0}, f32[40,70]{1,0})->f32[50,70]{0,1}}
    ENTRY e { h = f32[40,50] parameter(0)
      g = f32[40,70] parameter(1)
      d = f32[70,50] dot(g, h), lhs_contracting_dims={0}, rhs_contracting_dims={0}
      ROOT r = f32[50,70]{0,1} transpose(d), dimensions={1,0} }"""
    ordered = in_memory_order(driver.parse(text))
    opcodes = [i.opcode for i in driver.optimize(ordered).entry.instructions]
    assert opcodes == ["parameter", "parameter", "dot"]


def test_row_major_results_stay() -> None:
    text = TRANSPOSED.replace("{0,1}", "{1,0}")
    module = driver.parse(text)
    assert in_memory_order(module) is module
    assert len(Compilation(module, passes="", threads=1).program.steps) == 1
