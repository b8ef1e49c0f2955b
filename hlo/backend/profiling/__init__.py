"""Profiling: where a run's time goes, beside what the machine could do at most."""
