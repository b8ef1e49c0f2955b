"""The door to JAX, and the real XLA:CPU behind it."""
