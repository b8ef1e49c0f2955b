"""Property tests draw the same examples in every run: a red run can be repeated as it is. LLVM
verifies all IR, which it does not do outside the tests, and makes the code of a text once.
"""

import os
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from hypothesis import settings

os.environ.setdefault("HLO_VERIFY_IR", "1")
# Read when NumPy is imported, here and in children: threads of its products, which are small, would
# wait busily for processors that other workers have.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


@pytest.fixture(scope="session", autouse=True)
def scratch(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What tests and their processes leave behind goes where pytest clears up after three runs."""
    folder = str(tmp_path_factory.mktemp("scratch"))
    os.environ["TMPDIR"] = tempfile.tempdir = folder


@pytest.fixture(scope="session", autouse=True)
def known() -> None:
    from tests.support import known_code  # imports the back end, which collecting alone need not

    known_code.install()


@pytest.fixture
def registry() -> Iterator[None]:
    """What a test registers for targets of custom calls, others do not see."""
    from hlo.ops.custom_targets import REGISTERED, TARGETS

    targets, registered = dict(TARGETS), set(REGISTERED)
    yield
    TARGETS.clear()
    TARGETS.update(targets)
    REGISTERED.clear()
    REGISTERED.update(registered)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What compares with the oracle is skipped where its extra is not installed."""
    if find_spec("jaxlib") is None:
        missing = pytest.mark.skip(reason="the oracle extra is not installed")
        for item in items:
            if item.get_closest_marker("oracle") is not None:
                item.add_marker(missing)
