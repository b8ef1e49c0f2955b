"""Fingerprints: which computations are equal, and what equal ones know of each other."""

import hlo
from hlo.analysis.fingerprint import NOT_CONTENTS, SILENT, Fingerprints
from hlo.ir.computation import Computation
from hlo.ir.module import Module

TEXT = """HloModule m
one { a = f32[4] parameter(0) ROOT n = f32[4] negate(a), metadata={op_name="one"} }
other { x = f32[4] parameter(0) ROOT y = f32[4] negate(x), metadata={op_name="other"} }
third { x = f32[4] parameter(0) ROOT y = f32[4] exponential(x) }
ENTRY e { p = f32[4] parameter(0)
  c = f32[4] call(p), to_apply=one
  d = f32[4] call(c), to_apply=other
  ROOT r = f32[4] call(d), to_apply=third }"""


def compared(prints: Fingerprints, module: Module) -> tuple[Computation, ...]:
    """The computations that a module's calls call, which fingerprints have looked at."""
    for instruction in module.entry.instructions:
        prints.of(instruction)
    return tuple(module.computations[:3])


def test_equal_computations_share_what_is_known_of_them() -> None:
    one, other, third = compared(Fingerprints(NOT_CONTENTS), hlo.parse(TEXT))
    one.contents["fact"] = 1
    assert one.contents_number == other.contents_number != third.contents_number
    assert other.contents["fact"] == 1
    assert "fact" not in third.contents


def test_one_that_is_edited_has_its_own() -> None:
    one, other, _ = compared(Fingerprints(NOT_CONTENTS), hlo.parse(TEXT))
    one.contents["fact"] = 1
    other.set_attributes(other.root, {})
    assert "fact" not in other.contents
    assert one.contents_number != other.contents_number
    assert one.contents["fact"] == 1


def test_one_that_an_edited_one_was_equal_to_is_not_what_that_became() -> None:
    module, prints = hlo.parse(TEXT), Fingerprints(NOT_CONTENTS)
    one, other, _ = module.computations[:3]
    call, another = module.entry.instructions[1:3]
    prints.of(call)
    one.contents["fact"] = 1
    one.set_attributes(one.root, {})
    prints.of(another)
    assert one.contents_number != other.contents_number


def test_who_looks_away_from_more_shares_nothing() -> None:
    one, other, _ = compared(Fingerprints(SILENT), hlo.parse(TEXT))
    assert one.contents_number != other.contents_number
