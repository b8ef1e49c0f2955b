"""Code is placed at the outermost loop in which its inputs are known."""

from __future__ import annotations

import numpy as np

from hlo import driver

TEXT = """HloModule m
%largest (a: f16[], b: f16[]) -> f16[] {
  %a = f16[] parameter(0)
  %b = f16[] parameter(1)
  ROOT %r = f16[] maximum(%a, %b)
}
%product (a.1: f16[], b.1: f16[]) -> f16[] {
  %a.1 = f16[] parameter(0)
  %b.1 = f16[] parameter(1)
  ROOT %r.1 = f16[] multiply(%a.1, %b.1)
}
%sum (a.2: f16[], b.2: f16[]) -> f16[] {
  %a.2 = f16[] parameter(0)
  %b.2 = f16[] parameter(1)
  ROOT %r.2 = f16[] add(%a.2, %b.2)
}
ENTRY %e (p: f16[7,3,9]) -> f16[] {
  %p = f16[7,3,9]{2,1,0} parameter(0)
  %one = f16[] constant(1)
  %m = f16[3]{0} reduce(%p, %one), dimensions={0,2}, to_apply=%largest
  %w = f16[3]{0} reduce-window(%m, %one), window={size=3 pad=2_0}, to_apply=%product
  %i = f16[3]{0} iota(), iota_dimension=0
  %s = f16[3]{0} add(%w, %i)
  ROOT %t = f16[] reduce(%s, %one), dimensions={0}, to_apply=%sum
}
"""


def test_what_a_loop_carries_is_known_in_that_loop_only() -> None:
    module = driver.parse(TEXT)
    p = np.random.default_rng(3).uniform(1, 2, (7, 3, 9)).astype(np.float16)
    found = driver.compile(module, cache=False)(p)  # tests verify the IR
    np.testing.assert_array_equal(np.asarray(found), np.asarray(driver.evaluate(module, p)))
