"""Every program of the tests, as given: the back end plans it without any pass, or says why not."""

from __future__ import annotations

import pytest

from hlo.backend.compilation import Compilation
from hlo.errors import HloError
from tests.support import program_texts

PARTS = 8
PROGRAMS = [(n, t) for n, t in program_texts.written() if len(t) < 20_000]


@pytest.mark.parametrize("part", range(PARTS))
def test_a_program_without_passes_is_planned_or_refused(part: int) -> None:
    broken: list[str] = []
    for name, module in program_texts.verified(PROGRAMS[part::PARTS]):
        try:
            _ = Compilation(module, threads=2, passes="").program
        except HloError:
            continue
        except Exception as error:
            broken.append(f"{name}: {error!r}")
    assert broken == []
