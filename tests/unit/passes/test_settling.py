"""Facts of a computation last until its next edit; a pass does not look twice at what it left."""

import hlo
from hlo.ir.computation import Computation
from hlo.ir.graph import callees, post_order
from hlo.ir.shape import Shape
from hlo.passes.settling import is_settled, reach_states
from hlo.passes.simplify.cse import cse

TEXT = """HloModule nested
square { p = f32[] parameter(0) ROOT s = f32[] multiply(p, p) }
twice { p = f32[] parameter(0) a = f32[] call(p), to_apply=square ROOT b = f32[] add(a, p) }
ENTRY main { x = f32[] parameter(0) ROOT y = f32[] call(x), to_apply=twice }
"""


def test_a_fact_is_found_once_between_edits() -> None:
    square, *_ = hlo.parse(TEXT).computations
    asked: list[str] = []

    def count(computation: Computation) -> int:
        asked.append(computation.name)
        return len(computation)

    assert square.fact(count) == square.fact(count) == 2
    assert asked == ["square"]
    square.new("negate", Shape.array("f32"), (square.root,))
    assert square.fact(count) == 3
    assert asked == ["square", "square"]


def test_orders_follow_edits() -> None:
    square, twice, main = hlo.parse(TEXT).computations
    assert [i.name for i in post_order(square)] == ["p", "s"]
    square.root = square.new("negate", Shape.array("f32"), (square.root,), name="n")
    assert [i.name for i in post_order(square)] == ["p", "s", "n"]
    assert callees(main) == (twice,)
    main.set_attributes(main.root, {"to_apply": square})
    assert callees(main) == (square,)


def test_reach_states_change_with_what_is_called() -> None:
    module = hlo.parse(TEXT)
    square, twice, main = module.computations
    before = reach_states(module)
    assert before == reach_states(module)
    square.new("negate", Shape.array("f32"), (square.root,))
    after = reach_states(module)
    assert all(before[c] != after[c] for c in (square, twice, main))
    before = after
    main.set_attributes(main.root, dict(main.root.attributes))
    after = reach_states(module)
    assert [before[c] != after[c] for c in (square, twice, main)] == [False, False, True]


def test_cse_looks_again_after_an_edit_of_what_is_called() -> None:
    module = hlo.parse(TEXT)
    square, twice, _ = module.computations
    assert not cse(module)
    reach = reach_states(module)
    assert is_settled(twice, cse, reach[twice])
    extra = square.new("multiply", Shape.array("f32"), square.root.operands)
    square.root = square.new("add", Shape.array("f32"), (square.root, extra))
    assert not is_settled(twice, cse, reach_states(module)[twice])
    assert cse(module)
    assert square.root.operands[0] is square.root.operands[1]


def test_adopted_computations_get_the_first_free_name() -> None:
    module = hlo.parse(TEXT)
    square, twice, main = module.computations
    names = [module.adopt(type(square)("square"), before=main).name for _ in range(3)]
    assert names == ["square.1", "square.2", "square.3"]
    assert [c.name for c in module.computations] == ["square", "twice", *names, "main"]
    module.remove(module.computations[2])
    assert module.adopt(type(square)("square"), after=square).name == "square.1"
    assert module.computations[1].name == "square.1"
    assert module.computations[2] is twice
