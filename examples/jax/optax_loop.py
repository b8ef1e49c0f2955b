"""A loop of Optax updates inside the program: a logistic regression, Adam with a schedule."""

import jax
import jax.numpy as jnp
import optax
from timing import beside_xla

STEPS = 200
x = jax.random.normal(jax.random.key(0), (256, 20))
truth = jax.random.normal(jax.random.key(1), (20,))
y = (x @ truth > 0).astype(jnp.float32)
optimizer = optax.adam(optax.cosine_decay_schedule(0.1, STEPS))


def loss(w, x, y):
    return optax.sigmoid_binary_cross_entropy(x @ w, y).mean()


def fit(w, x, y):
    def update(carry, _):
        w, state = carry
        value, gradient = jax.value_and_grad(loss)(w, x, y)
        updates, state = optimizer.update(gradient, state, w)
        return (optax.apply_updates(w, updates), state), value

    (w, _), values = jax.lax.scan(update, (w, optimizer.init(w)), None, length=STEPS)
    return w, values


beside_xla(f"Optax, {STEPS} Adam steps", fit, jnp.zeros(20), x, y, rtol=1e-2)
