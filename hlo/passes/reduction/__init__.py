"""Reduction: long, windowed and scattered ones cut into what runs side by side."""
