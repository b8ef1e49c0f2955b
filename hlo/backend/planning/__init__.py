"""Planning: what runs in which order, by which kind of step, and which bytes hold what."""
