"""The parts of `hlo.Builder`, one file per family of its vocabulary."""
