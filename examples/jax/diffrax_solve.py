"""A Diffrax solve: the Lorenz system by an adaptive Runge-Kutta method."""

import diffrax
import jax.numpy as jnp
from timing import beside_xla


def lorenz(t, y, rho):
    a, b, c = y
    return jnp.stack([10.0 * (b - a), a * (rho - c) - b, a * b - 8.0 / 3.0 * c])


def solve(y, rho):
    found = diffrax.diffeqsolve(
        diffrax.ODETerm(lorenz),
        diffrax.Tsit5(),
        t0=0.0,
        t1=2.0,
        dt0=0.01,
        y0=y,
        args=rho,
        saveat=diffrax.SaveAt(ts=jnp.linspace(0.0, 2.0, 50)),
        stepsize_controller=diffrax.PIDController(rtol=1e-5, atol=1e-5),
    )
    return found.ys


beside_xla("Diffrax, Lorenz by Tsit5", solve, jnp.ones(3), 28.0, rtol=2e-2)
