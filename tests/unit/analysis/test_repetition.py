"""Strands of repeated parts, and what reaches through layers that are left out."""

import hlo
from hlo.analysis.left_out import LeftOut, leaving_out, size_in_all_layers
from hlo.analysis.repetition import Keys, Strands, is_regular, repeated, shift, strands
from hlo.ir.graph import post_order
from hlo.ir.module import Module
from tests.support.layered import network, trained


def found_in(module: Module, fewest: int = 4) -> list[Strands]:
    order = post_order(module.entry)
    keys = Keys().all(order)

    def longest(found: Strands) -> dict:  # type: ignore[type-arg]  # a strand's first layer
        return {max(found.all, key=lambda s: len(s.members)): 0}

    return [strands(shift(seeds, keys), longest) for seeds in repeated(order, keys, fewest)]


def test_a_strand_has_a_member_of_each_layer() -> None:
    module = hlo.parse(network(9))
    found = found_in(module)[0]
    names = {tuple(m.name for m in strand.members) for strand in found.all}
    assert tuple(f"in{n}" for n in range(9)) in names
    assert tuple(f"w{n}" for n in range(9)) in names
    assert is_regular(found_inside(found), range(2, 7), post_order(module.entry))


def found_inside(found: Strands) -> Strands:
    from hlo.analysis.repetition import having

    return having(s for s in found.all if s.first <= 1 and s.last >= 7)


def test_gradients_are_in_the_layers_of_their_values() -> None:
    module = hlo.parse(trained(12))
    named = {i.name: i for i in module.entry.instructions}
    assert any(
        found.of[named["dw5"]].members.index(named["dw5"]) is not None
        and abs(found.layer[named["in4"]] - found.layer[named["in5"]]) == 1
        and found.layer[named["dw4"]] - found.layer[named["dw5"]]
        == found.layer[named["in4"]] - found.layer[named["in5"]]
        for found in found_in(module)
        if named["dw5"] in found.layer and named["in5"] in found.layer
    )


def test_what_does_not_repeat_has_no_strands() -> None:
    assert not found_in(hlo.parse(network(2)))


def test_what_reaches_through_the_layers_counts_those_left_out() -> None:
    module = hlo.parse(network(3))
    members = [i for i in module.entry.instructions if i.name[:-1] in ("in", "tanh")]
    layers = {m.start: int(m.name[-1]) for m in members}
    assert size_in_all_layers(members) == 6
    with leaving_out((LeftOut(10, layers),)):
        assert size_in_all_layers(members) == 6 + 10 * 2
        assert size_in_all_layers(members[:4]) == 4
