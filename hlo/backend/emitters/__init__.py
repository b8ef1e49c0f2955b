"""Emitters: an op's code on lanes, which is its third reading beside `infer` and `evaluate`."""
