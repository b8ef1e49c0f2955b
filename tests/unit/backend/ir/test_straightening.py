"""Straightening: which blocks become a part of the one before."""

from hlo.backend.ir.functions import Function, straightened
from hlo.backend.ir.records import (
    Arithmetic,
    Instruction,
    Label,
    Line,
    Phi,
    branch,
    branch_if,
)
from hlo.backend.ir.values import Value

END = Value("%end", "i64")
TEST = Value("%c", "i1")
RETURN = Instruction("", "void", "ret void", ())


def add(name: str) -> Arithmetic:
    return Arithmetic(name, "i64", "add", (END, END))


def texts(records: list[Line]) -> list[str]:
    return [str(record).strip() for record in straightened(records)]


def test_a_loops_blocks_are_one_and_its_phi_names_what_they_are_part_of() -> None:
    counter = Phi("%i", "i64", "phi", (Value("0", "i64"), Value("%n", "i64")), "", "",
                  ("pre", "next"))  # fmt: skip
    records: list[Line] = [
        Label("entry"), branch("pre"), Label("pre"), branch("loop"), Label("loop"), counter,
        add("%x"), branch("next"), Label("next"), add("%n"), branch_if(TEST, "loop", "done"),
        Label("done"), RETURN,
    ]  # fmt: skip
    before = list(map(str, records))
    assert texts(records) == [
        "entry:", "br label %loop", "loop:", "%i = phi i64 [ 0, %entry ], [ %n, %loop ]",
        "%x = add i64 %end, %end", "%n = add i64 %end, %end",
        "br i1 %c, label %loop, label %done", "done:", "ret void",
    ]  # fmt: skip
    assert list(map(str, records)) == before, "polling and cutting find them as they were"


def test_a_block_that_several_enter_stays() -> None:
    records: list[Line] = [
        Label("entry"), branch_if(TEST, "a", "b"), Label("a"), branch("b"), Label("b"), RETURN,
    ]  # fmt: skip
    assert straightened(records) is records


def test_a_block_that_begins_with_a_phi_stays() -> None:
    phi = Phi("%x", "i64", "phi", (END,), "", "", ("entry",))
    records: list[Line] = [Label("entry"), branch("a"), Label("a"), phi, RETURN]
    assert straightened(records) is records


def test_a_first_block_without_a_name_stays() -> None:
    records: list[Line] = [add("%x"), branch("a"), Label("a"), RETURN]
    assert straightened(records) is records


def test_functions_are_printed_so() -> None:
    function = Function(records=[Label("entry"), branch("a"), Label("a"), RETURN])
    assert "a:" not in function.text
    assert function.length == 6, "what is cut is told by its records"
