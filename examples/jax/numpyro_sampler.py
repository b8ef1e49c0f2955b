"""A NumPyro sampler: 200 NUTS transitions of a hierarchical model (eight schools)."""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer.hmc import hmc
from numpyro.infer.util import initialize_model
from timing import beside_xla

EFFECTS = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
DRAWS = 200


def schools():
    mean = numpyro.sample("mean", dist.Normal(0, 5))
    spread = numpyro.sample("spread", dist.HalfNormal(5))
    with numpyro.plate("school", 8):
        offset = numpyro.sample("offset", dist.Normal(0, 1))
        numpyro.sample("effect", dist.Normal(mean + spread * offset, ERRORS), obs=EFFECTS)


model = initialize_model(jax.random.key(0), schools)
start, transition = hmc(model.potential_fn, algo="NUTS")


def sample(parameters, key):
    state = start(parameters, num_warmup=0, step_size=0.2, adapt_step_size=False, rng_key=key)

    def draw(state, _):
        state = transition(state)
        return state, state.z["mean"]

    return jax.lax.scan(draw, state, None, length=DRAWS)[1].mean()


beside_xla("NumPyro, 200 NUTS draws", sample, model.param_info.z, jax.random.key(1), rtol=10.0)
