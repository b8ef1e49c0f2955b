"""Expanders: passes that write one op as several simpler ones."""
