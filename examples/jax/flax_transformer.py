"""A training step of a small decoder in Flax, with Optax's AdamW."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from timing import steps_beside_xla, wide

WORDS, WIDTH, HEADS, LAYERS, LENGTH, BATCH = 512, 128, 4, 2, 64, 8


class Block(nn.Module):
    @nn.compact
    def __call__(self, x):
        mask = nn.make_causal_mask(jnp.ones(x.shape[:2]))
        x = x + nn.MultiHeadDotProductAttention(num_heads=HEADS)(nn.LayerNorm()(x), mask=mask)
        hidden = nn.gelu(nn.Dense(4 * WIDTH)(nn.LayerNorm()(x)))
        return x + nn.Dense(WIDTH)(hidden)


class Decoder(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        places = self.param("places", nn.initializers.normal(0.02), (LENGTH, WIDTH))
        x = nn.Embed(WORDS, WIDTH)(tokens) + places
        for _ in range(LAYERS):
            x = Block()(x)
        return nn.Dense(WORDS)(nn.LayerNorm()(x))


model, optimizer = Decoder(), optax.adamw(1e-3)
tokens = jax.random.randint(jax.random.key(0), (BATCH, LENGTH), 0, WORDS)
parameters = model.init(jax.random.key(1), tokens)


def loss(parameters, tokens):
    scores = model.apply(parameters, tokens)[:, :-1]
    return optax.softmax_cross_entropy_with_integer_labels(scores, tokens[:, 1:]).mean()


def step(state, tokens):
    parameters, rest = state
    gradient = jax.grad(loss)(parameters, tokens)
    updates, rest = optimizer.update(gradient, rest, parameters)
    return optax.apply_updates(parameters, updates), rest


def explained(state):
    parameters, (adam, *_) = state
    steps = jax.tree.map(
        lambda m, v: -1e-3 * wide(m) / 0.1 / (np.sqrt(wide(v) / 0.001) + 1e-8), adam.mu, adam.nu
    )
    return parameters, adam.mu, steps


state = parameters, optimizer.init(parameters)
steps_beside_xla("Flax decoder, training step", step, state, tokens, explained=explained)
