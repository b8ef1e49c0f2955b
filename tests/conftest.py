"""Property tests draw the same examples in every run: a red run can be repeated as it is."""

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
