"""Steps of the dynamic padder, by family: an instruction on dynamic sizes as static ones."""
