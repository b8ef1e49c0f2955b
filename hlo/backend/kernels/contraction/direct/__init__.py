"""Convolutions of few features without products: sums in registers over the window."""
