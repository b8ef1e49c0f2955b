"""Topics: all names that `hlo-opt explain` has a page for."""

from __future__ import annotations

from hlo.error_codes import CODES


def topics() -> list[str]:
    """Error codes, opcodes, passes, rewrite rules, the verifier's rules."""
    from hlo.ops.table import OPS
    from hlo.passes.catalogue import CATALOGUE
    from hlo.passes.simplify.algsimp import all_rules
    from hlo.verifier.rules import rule_pages

    return [*CODES, *OPS, *CATALOGUE, *all_rules(), *rule_pages()]
