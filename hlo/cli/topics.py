"""Topics: all names that `hlo-opt explain` has a page for."""

from __future__ import annotations

from hlo import ops  # noqa: F401  # fills the op table
from hlo.error_codes import CODES
from hlo.ops.table import OPS
from hlo.passes.catalogue import CATALOGUE
from hlo.passes.rewriting import RULES


def topics() -> list[str]:
    """Error codes, opcodes, passes, rewrite rules."""
    return [*CODES, *OPS, *CATALOGUE, *RULES]
