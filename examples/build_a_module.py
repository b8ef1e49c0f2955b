"""Build axpy with the Builder, print it, compile it, run it."""

import numpy as np

import hlo

vector = hlo.Shape.array("f32", [8])
b = hlo.Builder("axpy")
alpha = b.parameter("alpha", hlo.Shape.array("f32"))
x = b.parameter("x", vector)
y = b.parameter("y", vector)
alphas = b.broadcast(alpha, dimensions=(), shape=vector)
module = b.build(b.add(b.multiply(alphas, x), y))
hlo.verify(module)
print(module)

axpy = hlo.compile(module)
ramp = np.arange(8, dtype=np.float32)
result = axpy(np.float32(2), ramp, ramp)
print(result)
assert np.array_equal(result, 3 * ramp)
