"""Side-by-side timing against XLA:CPU: `python -m benchmarks FILE...`."""
