"""Functions of JAX, compiled and called by this package: `hlo.jit`."""
