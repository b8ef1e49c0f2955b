"""The extension for VS Code: its files name each other, and its grammar colours HLO."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hlo.ir.dtype import DTYPES
from hlo.ir.instruction import CALLING_ATTRIBUTES

FOLDER = Path(__file__).parents[3] / "editors" / "vscode"
GRAMMAR = json.loads((FOLDER / "syntaxes" / "hlo.tmLanguage.json").read_text())
LINES = [
    ("HloModule m, is_scheduled=true", {"HloModule": "keyword", "m": "entity.name.namespace",
     "is_scheduled": "entity.other.attribute-name", "true": "constant.language"}),
    ("%add.1 (a: f32[], b: f32[]) -> f32[] {", {"%add.1": "entity.name.function",
     "f32": "storage.type"}),
    ("ENTRY %main (x: f32[4]) -> f32[] {", {"ENTRY": "keyword", "%main": "entity.name.function"}),
    ("plain {", {"plain": "entity.name.function"}),
    ("  ROOT %y = bf16[2,3]{1,0} dot(%a, %b), lhs_contracting_dims={1} // x=1",
     {"ROOT": "keyword", "%y": "variable.other.definition", "bf16": "storage.type",
      "[2,3]": "constant.numeric", "{1,0}": "comment.layout", "dot": "support.function",
      "%a": "variable.other", "lhs_contracting_dims": "entity.other.attribute-name",
      "1": "constant.numeric", "// x=1": "comment.line"}),
    ('  r = f32[] reduce(c, z), dimensions={0}, to_apply=add, metadata={op_name="jit(f)/dot"}',
     {"reduce": "support.function", "to_apply": "entity.other.attribute-name",
      "add": "entity.name.function", '"jit(f)/dot"': "string.quoted"}),
    ("  c = f32[] constant(-1.5e+09)", {"-1.5e+09": "constant.numeric"}),
    ("  c = f32[] constant(-inf)", {"inf": "constant.language"}),
    ("  d = (f32[2], s32[]) get-tuple-element(t), index=0",
     {"get-tuple-element": "support.function", "s32": "storage.type"}),
]  # fmt: skip


def rules() -> list[dict[str, object]]:
    """The grammar's rules of one line, in the order in which they are tried."""
    found = []
    for entry in GRAMMAR["patterns"]:
        found += GRAMMAR["repository"][entry["include"][1:]]["patterns"]
    return [rule for rule in found if "match" in rule]


def coloured(line: str) -> dict[str, str]:
    """Texts of a line and their scopes: the first match, of the first rule among those."""
    found: dict[str, str] = {}
    at = 0
    while True:
        matches = [(m.start(), n, m, rule) for n, rule in enumerate(rules())
                   if (m := re.compile(str(rule["match"])).search(line, at))]  # fmt: skip
        if not matches:
            return found
        _, _, match, rule = min(matches, key=lambda row: row[:2])
        if "name" in rule:
            found.setdefault(match[0], str(rule["name"]))
        for number, capture in dict(rule.get("captures", {})).items():  # type: ignore[call-overload]
            if match[int(number)] is not None:
                found.setdefault(match[int(number)], capture["name"])
        at = max(match.end(), at + 1)


@pytest.mark.parametrize(("line", "wanted"), LINES, ids=[line[:20] for line, _ in LINES])
def test_colours(line: str, wanted: dict[str, str]) -> None:
    found = coloured(line)
    for text, scope in wanted.items():
        assert found.get(text, "").startswith(scope), (text, found)


def test_the_grammar_knows_all_types_and_calls() -> None:
    (shape,) = GRAMMAR["repository"]["shapes"]["patterns"]
    listed = re.search(r"\(([a-z0-9|]+)\)", shape["match"])
    assert listed is not None
    assert set(listed[1].split("|")) == set(DTYPES)
    calls = re.search(
        r"\(([a-z_|]+)\)", GRAMMAR["repository"]["attributes"]["patterns"][0]["match"]
    )
    assert calls is not None
    several = {"branch_computations", "called_computations"}  # in braces
    assert set(calls[1].split("|")) == set(CALLING_ATTRIBUTES) - several


def test_the_extension_names_files_that_there_are() -> None:
    package = json.loads((FOLDER / "package.json").read_text())
    contributed = package["contributes"]
    named = [package["main"], contributed["grammars"][0]["path"]]
    named += [contributed["languages"][0]["configuration"]]
    assert all((FOLDER / name).is_file() for name in named)
    assert contributed["grammars"][0]["scopeName"] == GRAMMAR["scopeName"]
    json.loads((FOLDER / "language-configuration.json").read_text())


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not there")
def test_the_client_is_javascript() -> None:
    node = shutil.which("node")
    assert node is not None
    subprocess.run([node, "--check", FOLDER / "extension.js"], check=True)
