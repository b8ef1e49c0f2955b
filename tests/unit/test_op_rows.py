"""What is said of an opcode stands in its row: no other table says it, and a row is enough."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from hlo.indexing.maps import CASES
from hlo.ir import dtype as dt
from hlo.ops.table import INDEX_MAPS, OPS, Trait, opcodes
from tests.support import source_files
from tests.support.source_files import ROOT, nodes_of

FILES = [p for p in source_files.FILES if "ops" not in p.parts[len(ROOT.parts) :]]
# What holds a program together and computes nothing by itself.
STRUCTURE = {
    *opcodes(Trait.FREE | Trait.CALLS), "fusion", "async-start", "async-update", "async-done",
}  # fmt: skip
ATTRIBUTES = {name for row in OPS.values() for name in row.attrs}
FORMS = re.compile(r"-(start|update|done)$")
LLVM = {"add", "sub", "mul", "fadd", "fsub", "fmul", "and", "or", "xor", "shl", "lshr", "ashr"}


def stated(node: ast.AST, compared: set[ast.AST]) -> list[str]:
    """The opcodes of a literal that says something of each of them, none where it is free."""
    match node:
        case ast.Dict(keys=keys, values=values):
            if any(isinstance(v, ast.Name | ast.Attribute | ast.Lambda | ast.Call) for v in values):
                return []  # a reading: a function of each
            if {v.value for v in values if isinstance(v, ast.Constant)} <= LLVM:
                return []
            members = keys
        case ast.Set(elts=members) | ast.Tuple(elts=members) | ast.List(elts=members):
            if node in compared and len(members) <= 2:
                return []
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(words)), attr="split")):
            members = [ast.Constant(word) for word in words.split()]
        case _:
            return []
    words = [m.value for m in members if isinstance(m, ast.Constant)]
    named = [] if ATTRIBUTES.issuperset(words) else [w for w in words if w in OPS]
    is_free = STRUCTURE.issuperset(named) or len({FORMS.sub("", w) for w in named}) < 2
    return [] if is_free else named


def statements(source: str) -> Iterator[list[str]]:
    nodes = nodes_of(source)
    inside = [n for n in nodes if isinstance(n, ast.Compare)]
    compared = {
        c for n in inside if isinstance(n.ops[0], ast.In | ast.NotIn) for c in n.comparators
    }
    yield from filter(None, (stated(node, compared) for node in nodes))


def test_no_table_outside_the_rows_says_something_of_opcodes() -> None:
    """A literal set, list, tuple or mapping of two or more opcodes is a column of the table.

    Free are: a mapping to functions (a reading: the emitters, the index maps, a pass's handler of
    each op) or to LLVM's instructions; ops of structure alone, which hold values and computations
    together (parameter, tuple, call, fusion, ..), or the forms of one op (X-start, X-done);
    `opcode in (a, b)` of two, and patterns of a `match`, which compare structure as two `==` do;
    arguments, as of a rewrite that is an equation of just these ops. Attributes may have an
    opcode's name.
    """
    found = [
        f"{path.relative_to(ROOT)}: {', '.join(names)}"
        for path in FILES
        if path.parent.name != "cli"  # subcommands that are called as opcodes are: convert, reduce
        for names in statements(path.read_text())
    ]
    assert not found, "\n".join(found)


def test_the_scan_finds_what_it_is_for() -> None:
    found = {
        'X = {"tanh": 16, "erf": 20}': True,
        'X = frozenset({"slice", "reshape"})': True,
        'X = ("add", "multiply")': True,
        'if o in ("add", "multiply", "maximum"): pass': True,
        'X = "add multiply".split()': True,
        'if o in ("add", "multiply"): pass': False,
        'X = {"add": _add, "multiply": _multiply}': False,
        'X = {"add": "fadd", "multiply": "fmul"}': False,
        'X = {"parameter", "tuple", "fusion"}': False,
        'X = {"all-reduce", "all-reduce-start"}': False,
        'X = ("condition", "body", "select", "scatter")': False,
    }
    assert {source: any(statements(source)) for source in found} == found


def test_an_element_comes_from_one_kind_of_place() -> None:
    for opcode in OPS:
        places = OPS[opcode].traits & INDEX_MAPS
        assert len(places) == (opcode in CASES), f"{opcode}: {places}"


def test_associative_rows_have_identities() -> None:
    for opcode, row in OPS.items():
        assert bool(row.traits & Trait.ASSOCIATIVE) == (row.identity is not None), opcode
        if row.identity is not None:
            assert row.identity(dt.S32) is not None


def test_what_costs_much_has_a_latency() -> None:
    for opcode, row in OPS.items():
        assert row.cost.is_high == (row.cost.latency > 0), opcode


def test_dones_are_rows() -> None:
    dones = {row.done for row in OPS.values() if row.done}
    assert dones == {o for o in OPS if o.endswith("-done")}
