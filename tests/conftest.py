"""Property tests draw the same examples in every run: a red run can be repeated as it is. LLVM
verifies all IR, which it does not do outside the tests.
"""

import os

from hypothesis import settings

os.environ.setdefault("HLO_VERIFY_IR", "1")
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
