"""Functions across JAX's API with arguments, to be run by jax.jit and by hlo.jit."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy as jsp
import numpy as np
from jax import flatten_util, lax
from jax.experimental import io_callback

Function = Callable[..., Any]
FUNCTIONS: dict[str, tuple[Function, tuple[Any, ...]]] = {}


def draw(*dims: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(dims).astype(np.float32)


V, M, S = draw(7), draw(4, 6), draw(5, 5, seed=1)
POSITIVE = S @ S.T + 5 * np.eye(5, dtype=np.float32)
INTS, B = np.arange(-3, 4, dtype=np.int32), np.array([True, False, True])


def enter(name: str, f: Function, *arguments: Any) -> None:
    assert name not in FUNCTIONS
    FUNCTIONS[name] = (f, arguments)


UNARY = (
    "abs", "sin", "cos", "tan", "arcsinh", "arctan", "sinh", "cosh", "tanh", "exp", "expm1", "exp2",
    "log1p", "square", "sqrt", "cbrt", "sign", "floor", "ceil", "rint", "reciprocal", "sort",
    "argsort", "cumsum", "cumprod", "flip", "isnan", "isfinite", "mean", "std", "var", "median",
    "max", "min", "argmax", "argmin", "sum", "prod", "nansum", "ptp", "diff", "ediff1d",
)  # fmt: skip
for name in UNARY:
    enter(f"jnp.{name}", getattr(jnp, name), np.abs(V) + np.float32(0.1))
for name in ("add", "subtract", "multiply", "divide", "power", "maximum", "minimum", "arctan2",
             "hypot", "logaddexp", "fmod", "copysign", "nextafter", "heaviside"):  # fmt: skip
    enter(f"jnp.{name}", getattr(jnp, name), V, V[::-1].copy() + np.float32(2))
for name in ("bitwise_and", "bitwise_xor", "left_shift", "floor_divide", "remainder", "gcd"):
    enter(f"jnp.{name} of ints", getattr(jnp, name), INTS, np.abs(INTS) + 1)
for name in ("relu", "gelu", "silu", "softmax", "log_softmax", "softplus", "elu", "sigmoid"):
    enter(f"nn.{name}", getattr(jax.nn, name), M)
for name in ("det", "inv", "cholesky", "eigvalsh", "slogdet", "pinv", "matrix_rank"):
    enter(f"linalg.{name}", getattr(jnp.linalg, name), POSITIVE)
for name in ("erf", "erfinv", "gammaln", "digamma", "logit", "expit", "i0e", "ndtr"):
    enter(f"special.{name}", getattr(jsp.special, name), np.float32(0.3) + V * np.float32(0.01))
for name in ("fft", "ifft", "rfft", "fftshift"):
    enter(f"fft.{name}", getattr(jnp.fft, name), V)

enter("matmul", jnp.matmul, M, draw(6, 3))
enter("einsum", functools.partial(jnp.einsum, "ij,kj->ik"), M, M)
enter("tensordot", jnp.tensordot, M, draw(4, 6, seed=2))
enter("solve", jnp.linalg.solve, POSITIVE, V[:5])
enter("qr", lambda a: jnp.abs(jnp.linalg.qr(a)[1]), S)
enter("where", jnp.where, B, V[:3], np.float32(1))
enter("clip", jnp.clip, V, -0.5, 0.5)
enter("take", jnp.take, V, np.array([0, 3, 3]))
enter("gather", lambda a, i: a[i, :2], M, np.array([1, 0, -1]))
enter("scatter", lambda a, v: a.at[1::2].add(v), V, np.float32(2))
enter("dynamic slice", lambda a, i: lax.dynamic_slice(a, (i,), (3,)), V, 2)
enter("concatenate", lambda a, b: jnp.concatenate([a, b]), V, INTS)
enter("pad", lambda a: jnp.pad(a, ((1, 2), (0, 1)), mode="reflect"), M)
enter("transpose, reshape", lambda a: a.T.reshape(3, 8), M)
enter("top_k", lambda a: lax.top_k(a, 3), V)
enter("searchsorted", jnp.searchsorted, np.sort(V), V)
enter("histogram", lambda a: jnp.histogram(a, 4), V)
enter("interp", jnp.interp, V, np.linspace(-2, 2, 5, dtype=np.float32), draw(5))
enter("convolve", jnp.convolve, V, V[:3])
enter("conv", lambda x, k: lax.conv(x, k, (1, 1), "SAME"), draw(1, 2, 8, 8), draw(3, 2, 3, 3))
enter("reduce_window", lambda a: lax.reduce_window(a, 0.0, lax.add, (2, 2), (1, 1), "VALID"), M)
enter("scan", lambda a: lax.scan(lambda c, x: (c * 0.5 + x, c), 0.0, a), V)
enter(
    "while", lambda n: lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * 2), (0, n)), 3
)
enter("fori", lambda a: lax.fori_loop(0, 4, lambda i, c: c + a[i], 0.0), V)
enter("cond", lambda p, a: lax.cond(p, jnp.sin, jnp.cos, a), True, V)
enter("switch", lambda k, a: lax.switch(k, [jnp.sin, jnp.cos, jnp.tanh], a), 2, V)
enter("map", lambda a: lax.map(lambda r: r.sum(), a), M)
enter("associative_scan", lambda a: lax.associative_scan(jnp.maximum, a), V)
enter("vmap", jax.vmap(lambda a, b: jnp.dot(a, b), in_axes=(0, None)), M, draw(6))
enter("grad", jax.grad(lambda a: jnp.sum(jnp.tanh(a) ** 2)), V)
enter("value_and_grad", jax.value_and_grad(lambda p: jnp.sum(p["w"] * p["b"])), {"w": V, "b": V})
enter("jacobian", jax.jacfwd(lambda a: a**2 + a[::-1]), V)
enter("hessian", jax.hessian(lambda a: jnp.sum(a**3)), V[:3])
enter("jvp", lambda a: jax.jvp(jnp.sin, (a,), (a,)), V)
enter("checkpoint", jax.grad(jax.checkpoint(lambda a: jnp.sum(jnp.exp(jnp.sin(a))))), V)
enter("custom_jvp", jax.grad(lambda a: jnp.sum(jax.nn.relu(a))), V)
enter("bfloat16", lambda a: (a.astype(jnp.bfloat16) * 2).sum(), V)
enter("float16", lambda a: a.astype(jnp.float16) + 1, V)
enter("int8", lambda a: (a.astype(jnp.int8) * 3).astype(jnp.int32), INTS)
enter("complex", lambda a: jnp.abs(a * (1 + 2j)), V)
enter("weak types", lambda a, b: (a + b, a * 2, jnp.sin(b)), V, 3)
enter("unused argument", lambda a, b: a + 1, V, M)
enter("constant result", lambda a: (jnp.zeros(3), 5), V)
enter("closed-over array", lambda a: a + V, V)
enter(
    "nested trees",
    lambda t: {"s": t["a"][0] + t["b"], "t": (t["a"], None)},
    {"a": [V, INTS], "b": V},
)
enter("empty", lambda a: a[:0], V)
enter("nested jit", lambda a: jax.jit(jnp.sin)(a) + 1, V)
enter("random key", lambda k: jax.random.normal(k, (3,)), jax.random.PRNGKey(7))
enter("typed key", lambda k: jax.random.uniform(jax.random.fold_in(k, 3), (4,)), jax.random.key(7))
enter("split keys", lambda k: jax.random.key_data(jax.random.split(k)), jax.random.key(1))
enter("permutation", lambda k: jax.random.permutation(k, 9), jax.random.key(3))
enter("categorical", lambda k, a: jax.random.categorical(k, a), jax.random.key(3), M)
enter("image.resize", lambda a: jax.image.resize(a, (8, 9), "linear"), M)
enter("attention", jax.nn.dot_product_attention, *(draw(1, 4, 2, 8, seed=k) for k in range(3)))
enter("one_hot", lambda i: jax.nn.one_hot(i, 5), np.array([0, 3]))
enter("logsumexp", jsp.special.logsumexp, M)
enter("norm.logpdf", jsp.stats.norm.logpdf, V)
enter("ravel_pytree", lambda t: flatten_util.ravel_pytree(t)[0], {"a": V, "b": M})
enter("pure_callback", lambda a: jax.pure_callback(np.sin, a, a), V)
enter("callback of two", lambda a: jax.pure_callback(lambda v: (v, v * 2), (a, a), a), V)
enter("io_callback", lambda a: io_callback(lambda v: v + 1, a, a), V)
enter("ordered io", lambda a: io_callback(lambda v: v + 1, a, a, ordered=True) * 2, V)
enter("numpy scalars", lambda a, b: a + b, np.float32(2), np.int32(3))
enter("python numbers", lambda a, b, c: (a + b, c), 2, 3.5, True)
enter("jax arrays", lambda a, b: a @ b, jnp.asarray(M), jnp.asarray(M.T))
enter("64 bits", lambda a: a * 2, np.arange(3, dtype=np.float64))
