"""Blocked products: plan, loops, and what they leave out, fetch ahead and finish."""
