"""While loops: what leaves them, what their state holds, which are no loops at all."""
