"""A training step of a multilayer perceptron, 784-512-512-10, Adam, in plain JAX."""

import jax
import jax.numpy as jnp
import numpy as np
from timing import steps_beside_xla, wide

SIZES = (784, 512, 512, 10)


def initial(key):
    keys = jax.random.split(key, len(SIZES) - 1)
    pairs = zip(keys, SIZES[:-1], SIZES[1:], strict=True)
    weights = [(jax.random.normal(k, (m, n)) / m**0.5, jnp.zeros(n)) for k, m, n in pairs]
    zeros = jax.tree.map(jnp.zeros_like, weights)
    return weights, zeros, zeros, jnp.zeros((), jnp.int32)


def loss(weights, x, labels):
    for w, b in weights[:-1]:
        x = jax.nn.relu(x @ w + b)
    w, b = weights[-1]
    scores = jax.nn.log_softmax(x @ w + b)
    return -jnp.mean(jnp.take_along_axis(scores, labels[:, None], axis=1))


def step(state, x, labels):
    weights, first, second, count = state
    gradients = jax.grad(loss)(weights, x, labels)
    count = count + 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradients)
    rate = 1e-3 * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
    weights = jax.tree.map(
        lambda w, m, v: w - rate * m / (jnp.sqrt(v) + 1e-8), weights, first, second
    )
    return weights, first, second, count


def explained(state):
    weights, first, second, _ = state
    rate = 1e-3 * np.sqrt(1 - 0.999) / (1 - 0.9)
    steps = jax.tree.map(lambda m, v: -rate * wide(m) / (np.sqrt(wide(v)) + 1e-8), first, second)
    return weights, first, steps


for batch in (1, 128, 1024):
    x = jax.random.normal(jax.random.key(1), (batch, SIZES[0]))
    labels = jax.random.randint(jax.random.key(2), (batch,), 0, SIZES[-1])
    state = initial(jax.random.key(0))
    steps_beside_xla(
        f"MLP training step, batch {batch}", step, state, x, labels, explained=explained
    )
