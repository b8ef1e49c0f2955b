"""While loops: what their trips read, keep and replace in their state."""
