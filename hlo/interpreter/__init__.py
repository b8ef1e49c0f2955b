"""The reference: modules evaluated with NumPy, exactly and without haste."""
