"""Convolutions as products: padding, words, and the repair of what padding spoils."""
