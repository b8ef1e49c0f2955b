"""The loops of kernels as data: what runs over what, how wide, and what is kept where."""
