"""A program as one native function: control flow, threads, stops, the call from Python."""
