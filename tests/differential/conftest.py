"""What tests that compare with XLA share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.oracle import Oracle, available


@pytest.fixture(scope="module")
def xla() -> Iterator[Oracle]:
    """The installed XLA in a process of its own, for the tests of a file."""
    if not available():
        pytest.skip("jaxlib 0.10.2 is not installed")
    server = Oracle()
    yield server
    server.close()
