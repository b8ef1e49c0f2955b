"""Expand: ops written out as plainer ones."""
