"""An attribute kind is a file, a rule of the grammar and a field of an op's record.

A copy of the project gets the kind RATIO, text such as `3:2`, on an op of its own, `scale-by`: one
field states its name, type, kind and default, and the text is read, printed, verified and evaluated
by it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.project_copy import ROOT, ProjectCopy

KIND = '''"""Ratios: `3:2`."""

from __future__ import annotations

from msgspec import Struct

from hlo.attributes.kind import AttributeKind
from hlo.attributes.tree import Tree, ints_of
from hlo.errors import Violation


class Ratio(Struct, frozen=True):
    """over / under."""

    over: int
    under: int


def _ratio(tree: Tree) -> Ratio:
    over, under = ints_of(tree)
    if not under:
        raise Violation("attribute-value", "", f"{over}:0", "a number other than 0 below")
    return Ratio(over, under)


def _ratio_text(ratio: Ratio) -> str:
    return f"{ratio.over}:{ratio.under}"


RATIO = AttributeKind("RATIO", "kind_ratio", _ratio, _ratio_text)
'''
RULE = "kind_ratio: INT COLON INT\n"
IMPORT = "from hlo.attributes.ratio import RATIO, Ratio\n"
ROW = '''

class ScaleByAttributes(Attributes, frozen=True, kw_only=True):
    by: Annotated[Ratio, RATIO, "always"]
    unless: Annotated[Ratio, RATIO] = Ratio(1, 1)


class ScaleBy(Op):
    """floor(x * by), and x where `by` is `unless`. C1: signed. C2: by is not negative."""

    opcode = "scale-by"
    arity = 1
    record = ScaleByAttributes

    @staticmethod
    def infer(x: Shape, *, attrs: ScaleByAttributes) -> Shape:
        check_kind(x, frozenset({dt.Kind.SIGNED}), "operand 0", "C1")
        return x

    @staticmethod
    def check(x: Shape, *, attrs: ScaleByAttributes, shape: Shape) -> None:
        if attrs.by.over * attrs.by.under < 0:
            raise Violation("attribute-value", "by", f"{attrs.by}", "0 or more", "C2")

    @staticmethod
    def evaluate(x: Array, *, attrs: ScaleByAttributes) -> Array:
        by = attrs.by
        return x if by == attrs.unless else x * by.over // by.under
'''
CASES = """// INPUT: s32[3] {4, 5, -1}
// EXPECT: s32[3] {6, 7, -2}
HloModule scale_by

ENTRY e {
  x = s32[3] parameter(0)
  ROOT r = s32[3] scale-by(x), by=3:2
}
// -----
// the other attribute given
// INPUT: s32[3] {4, 5, -1}
// EXPECT: s32[3] {4, 5, -1}
HloModule scale_by

ENTRY e {
  x = s32[3] parameter(0)
  ROOT r = s32[3] scale-by(x), unless=3:2, by=3:2
}
// -----
// not negative
// ERROR: attribute-value C2
HloModule scale_by

ENTRY e {
  x = s32[3] parameter(0)
  ROOT r = s32[3] scale-by(x), by=-3:2
}
"""
USES = '''
import numpy as np
from hlo.attributes.ratio import RATIO, Ratio
from hlo.ops.conversion import ScaleByAttributes
from tests.support.attribute_kinds import all_kinds
from tests.support.op_files import file_cases, run_case

cases = list(file_cases(here / "tests/ops/scale-by.hlo"))
for case in cases:
    assert run_case(case) == [], (case, run_case(case))
    compiled = lambda module, *values: hlo.compile(module)(*values)
    assert run_case(case, compiled) == [], (case, run_case(case, compiled))
assert RATIO in all_kinds()  # which the property test wants a generator for


def module(attributes):
    return f"""HloModule m
ENTRY e {{
  x = s32[2] parameter(0)
  ROOT r = s32[2] scale-by(x){attributes}
}}"""


def refused(attributes):
    try:
        hlo.parse(module(attributes))
    except hlo.HloError as error:
        return f"{error.code}: {error.message}"


read = hlo.parse(module(", unless=1:1, by=7:-3"))
root = read.entry.root
assert root.attributes == {"by": Ratio(7, -3), "unless": Ratio(1, 1)}, root.attributes
attrs = ScaleByAttributes.of(root.attributes)
assert attrs == ScaleByAttributes.of(hlo.parse(str(read)).entry.root.attributes)
assert (attrs.by.under, attrs.unless) == (-3, Ratio(1, 1))
assert "scale-by(%x), by=7:-3\\n" in str(read), read  # a default is not printed
print(refused(""), refused(", by=7"), refused(", by=7:0"), refused(", by=1:2, by=1:2"), sep="\\n")

b = hlo.Builder("m")
x = b.parameter("x", hlo.Shape.array("s32", [2]))
built = b.build(b.scale_by(x, by=Ratio(5, 2)))
hlo.verify(built)
assert "by=5:2" in str(built)
assert hlo.evaluate(built, np.int32([2, 3])).tolist() == [5, 7]
'''
FAMILY, GRAMMAR = "hlo/ops/conversion.py", "hlo/parser/attributes.lark"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> ProjectCopy:
    """The project with the kind, and an op that has two attributes of it."""
    copy = ProjectCopy(tmp_path_factory.mktemp("project"))
    copy.add("hlo/attributes/ratio.py", KIND)
    copy.insert(GRAMMAR, RULE)
    copy.insert(FAMILY, IMPORT, before="from hlo.attributes.scalars")
    copy.insert(FAMILY, ROW)
    copy.add("tests/ops/scale-by.hlo", CASES)
    return copy


def test_it_is_a_file_a_rule_and_a_field(copy: ProjectCopy) -> None:
    assert copy.added == ["hlo/attributes/ratio.py", "tests/ops/scale-by.hlo"]
    rows = len([line for line in ROW.splitlines() if line])
    assert copy.edited == {GRAMMAR: 1, FAMILY: 1 + rows}  # the kind's import, and the op


def test_contributing_lists_the_places(copy: ProjectCopy) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text.split("## Add an attribute kind")[1].split("\n## ")[0]
    for path in [*copy.added[:1], *copy.edited]:
        assert f"`{Path(path).parent}/" in section, path


def test_it_is_read_printed_verified_and_evaluated(copy: ProjectCopy) -> None:
    said = copy.script(USES).splitlines()
    assert said == [
        "attribute-missing: scale-by: no attribute by, expected by=",
        "syntax: '}', expected ':'",
        "attribute-value: scale-by: by: 7:0, expected a number other than 0 below",
        "duplicate-name: scale-by: by: given twice, expected each attribute once",
    ]


def test_it_is_explained(copy: ProjectCopy) -> None:
    page = copy.opt("explain", "scale-by")
    assert "  by: RATIO, required\n  unless: RATIO, default Ratio(over=1, under=1)\n" in page
