"""hlo-opt explain CODE|V20|OPCODE|PASS: the manual on the terminal."""

from __future__ import annotations

import difflib
import inspect

import click

from hlo.cli.completing import TOPIC
from hlo.cli.terminal import tell
from hlo.error_codes import CODES
from hlo.errors import HloError


@click.command("explain")
@click.argument("topic", type=TOPIC, metavar="CODE|V20|OPCODE|PASS|RULE")
def command(topic: str) -> int:
    """What an error code, a rule of the verifier, an opcode, a pass or a rewrite rule means."""
    from hlo.cli.topics import topics

    found = list(_pages(topic))
    if not found:
        near = difflib.get_close_matches(topic, topics(), 3)
        raise HloError(
            "unknown-name",
            f"explain: there is no code, opcode, pass or rule {topic}",
            help=f"did you mean {', '.join(near)}?" if near else "",
        )
    tell("\n".join(found))
    return 0


def _pages(topic: str) -> list[str]:
    from hlo.ops.listing import explain_op
    from hlo.ops.table import OPS
    from hlo.passes.catalogue import CATALOGUE
    from hlo.passes.pipeline import canonical_name
    from hlo.passes.simplify.algsimp import all_rules
    from hlo.verifier.lint import WARNINGS
    from hlo.verifier.rules import explain_rule, rule_pages

    pages = []
    if topic in CODES:
        pages.append(f"error[{topic}]\n{CODES[topic]}{_example(topic)}")
    if topic in WARNINGS:
        pages.append(f"warning[{topic}]\n{WARNINGS[topic]}")
    if topic.upper() in rule_pages():
        pages.append(explain_rule(topic.upper()))
    if topic in OPS:
        pages.append(explain_op(topic))
    name = canonical_name(topic)
    if name is not None:
        pages.append(f"pass {name}\n{inspect.getdoc(CATALOGUE[name])}")
    rule = all_rules().get(topic)
    if rule is not None:
        kind = "exact" if rule.exact else "not exact: runs with inexact=true"
        pages.append(f"rule {rule.name} ({rule.family}, {kind})\n{rule.equation}")
    return pages


def _example(code: str) -> str:
    """A program of the verifier's pages that has this error, and what is said of it."""
    from hlo import driver
    from hlo.errors import HloErrors
    from hlo.verifier.rules import broken_programs

    for program in broken_programs():
        try:
            driver.verify(driver.parse(program, "example.hlo"))
        except HloErrors as errors:
            if errors.errors[0].code == code:
                return f"\n\nFor example:\n\n{errors.errors[0]}"
        except HloError as error:
            if error.code == code:
                return f"\n\nFor example:\n\n{error}"
    return ""
