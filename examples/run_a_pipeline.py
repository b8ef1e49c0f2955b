"""Run passes over a module and compare the compiled result with the reference."""

from pathlib import Path

import numpy as np

import hlo

text = Path(__file__).with_name("softmax.hlo").read_text()
module = hlo.parse(text, "softmax.hlo")
optimized = hlo.optimize(module, "default")
print(optimized)

x = np.random.default_rng(0).standard_normal((256, 512)).astype(np.float32)
compiled = hlo.compile(module)(x)
reference = hlo.evaluate(module, x)
assert np.allclose(compiled, reference, rtol=1e-6)
print("largest difference", np.abs(compiled - reference).max())
