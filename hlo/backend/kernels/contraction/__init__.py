"""Sums of products: dots and convolutions of every type, on FMA units, AMX tiles or plain lanes."""
