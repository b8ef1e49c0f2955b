"""Values in vector registers: loaded, masked, permuted, converted, in loops under construction."""
