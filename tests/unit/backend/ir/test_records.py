"""Records and values: how each prints, what it mentions, which constant it is."""

import pytest

from hlo.backend.ir.records import Arithmetic, Phi, names_of, renamed, symbols_of
from hlo.backend.ir.values import Value, every_lane, listed, poison
from hlo.backend.ir.writer import Writer
from hlo.backend.isa import assembly
from tests.support.llvm_text import function_of

X, Y = Value("%x", "float"), Value("%y", "<4 x float>")
P, N = Value("%p", "ptr"), Value("%i", "i64")

WRITTEN = {
    "%v1 = fmul contract float %x, %x": lambda w: w.binary("fmul contract", X, X),
    "%v1 = fneg float %x": lambda w: w.unary("fneg", X),
    "%v1 = fcmp olt <4 x float> %y, %y": lambda w: w.compare("fcmp olt", Y, Y),
    "%v1 = fpext float %x to double": lambda w: w.cast("fpext", X, "double"),
    "%v1 = load float, ptr %p, align 4": lambda w: w.load(P, "float", 4),
    "store float %x, ptr %p, align 4": lambda w: w.store(X, P, 4),
    "%v1 = getelementptr inbounds float, ptr %p, i64 %i": lambda w: w.address(P, N, "float"),
    "%v1 = alloca [3 x i8], align 64": lambda w: w.alloca("[3 x i8]", 64),
    "%v1 = extractelement <4 x float> %y, i64 2": lambda w: w.extract(Y, 2),
    "%v1 = insertelement <4 x float> %y, float %x, i64 2": lambda w: w.insert(Y, X, 2),
    "%v1 = shufflevector <4 x float> %y, <4 x float> poison, <2 x i32> <i32 3, i32 poison>": (
        lambda w: w.shuffle(Y, None, (3, -1))
    ),
    "%v1 = call float @f(float %x, i64 3)": lambda w: w.call("f", X, w.int(3), type="float"),
    "call void @f(ptr align 4 %p)": lambda w: w.call("f", P, attributes=("align 4",)),
    "call i64 (i64, ...) @g(i64 1, i64 2)": (
        lambda w: w.call_variadic("i64", "g", w.int(1), w.int(2))
    ),
    "br i1 true, label %a, label %b": lambda w: w.branch_if(Value("true", "i1"), "a", "b"),
    "ret void": lambda w: w.ret(),
    "ret float %x": lambda w: w.ret(X),
    "%v1 = phi float [ %x, %a ], [ 0.0, %b ]": (
        lambda w: w.phi("float", (X, "a"), (w.zero("float"), "b"))
    ),
}


@pytest.mark.parametrize("line", WRITTEN)
def test_a_record_prints_as_one_line(line: str) -> None:
    w = Writer()
    WRITTEN[line](w)
    assert w.text() == f"  {line}"


def test_a_function_prints_as_it_was_read() -> None:
    w = Writer()
    for act in WRITTEN.values():
        act(w)
    lines = [line for line in w.text().split("\n") if "..." not in line and "align 4 %" not in line]
    text = "\n".join(["define float @KERNEL(float %x, ptr %p) nounwind {", "a:", *lines, "}", ""])
    assert function_of(text).text == text
    assert function_of(text).length == text.count("\n")


def test_assembly_is_one_line_of_its_instructions() -> None:
    w = Writer()
    assembly.write(w, ["nop", "ret"], [N], [P], ["zmm0"])
    (record,) = w.records
    assert isinstance(record, assembly.InlineAssembly)
    assert record.code == ("nop", "ret")
    assert w.text().count("\n") == 0
    assert 'asm sideeffect "nop\\0Aret", "=&r,r,0,~{zmm0}' in w.text()


def test_equal_instructions_of_a_scope_are_written_once() -> None:
    w = Writer()
    first = w.binary("fadd", X, X)
    known = w.scope()
    assert w.binary("fadd", X, X) == first
    inner = w.unary("fneg", X)
    w.restore(known)
    assert w.unary("fneg", X) != inner
    assert w.load(P, "float") != w.load(P, "float")


def test_a_phi_is_told_what_comes_from_the_end_of_its_loop() -> None:
    w = Writer()
    phi = w.phi("i64", (w.int(0), "before"), name="%n")
    phi.add_incoming(N, "latch")
    assert w.text() == "  %n = phi i64 [ 0, %before ], [ %i, %latch ]"
    assert {*names_of((phi,))} == {"%i", "%before", "%latch", "%n"}


def test_symbols_are_those_that_are_called_or_passed() -> None:
    w = Writer()
    w.call("f", Value("@table", "ptr"), X)
    (call,) = w.records
    assert symbols_of((call,)) == ["f", "table"]
    assert str(renamed(call, {"f": "g", "table": "t"})) == "  call void @g(ptr @t, float %x)"
    add = Arithmetic("%a", "float", "fadd", (X, X))
    assert renamed(add, {"x": "y"}) is add
    assert not isinstance(add, Phi)


def test_values_say_which_constant_they_are() -> None:
    w = Writer()
    assert (w.int(-3).integer, w.int(7, "<4 x i32>").element.integer) == (-3, 7)
    assert w.int(7, "<4 x i32>").integer is None
    assert (w.float(0.5).number, w.float(0.1, "<2 x double>").element.number) == (0.5, 0.1)
    assert w.zero("float").number == 0.0
    assert (X.integer, X.number, X.mask, poison("i64").integer) == (None,) * 4
    assert listed("i1", (1, 0)).mask == (True, False)
    assert every_lane(4).mask is None
    assert [v.is_constant for v in (X, w.int(1), Value("@f", "ptr"))] == [False, True, True]
    assert listed("i32", (0, 1)).resized("i64") == listed("i64", (0, 1))
