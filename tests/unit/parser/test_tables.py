"""The tables in their plain form say what Lark's say."""

from lark import Lark  # noqa: TID251  # whose tables are compared
from lark.grammar import Rule  # noqa: TID251

from hlo.parser.tables import Reduction, Tables, plain

GRAMMAR = """
start: "A" item* | other -> named
item: "B" | "C" start
other: AS_X "D"
AS_X: "x"
"""


def test_plain_tables_are_larks() -> None:
    grammar = Lark(GRAMMAR, parser="lalr", lexer="basic", start=["start", "item"])
    larks = grammar.parser.parser._parse_table
    tables = Tables(plain(grammar))
    assert (tables.start_states, tables.end_states) == (larks.start_states, larks.end_states)
    for state, row in larks.states.items():
        made = tables.states[state]
        assert made is tables.states[state]
        assert made.keys() == row.keys()
        for kind, (action, target) in row.items():
            own, aim = made[kind]
            assert own is action
            if isinstance(target, Rule):
                assert isinstance(aim, Reduction)
                assert aim.origin.name == target.origin.name
                assert len(aim.expansion) == len(target.expansion)
                assert aim.rule() == target
                assert aim.rule().alias == target.alias
            else:
                assert aim == target
    assert tables.asks == {s for s, row in larks.states.items() if "AS_X" in row}
    assert tables.finals == {s for s, row in larks.states.items() if set(row) == {"$END"}}
