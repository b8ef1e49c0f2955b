"""Layers of a network: passes see a few, and all are rewritten as if they had been seen."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

import hlo
from hlo.analysis.repetition import Strand, Strands
from hlo.ir.graph import clone_module
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.passes import lengthening
from hlo.passes.lengthening import Fit, lengthen
from hlo.passes.manager import LAYERS, Manager
from hlo.passes.pipeline import Layers, Step, parse_pipeline
from hlo.passes.recovery import without
from hlo.passes.remarks import heard_remarks
from hlo.passes.shortening import shortened
from hlo.tools.cases.inputs import made_up_inputs
from tests.support.layered import DOT, ROWS, WIDTH, Program, W, X, block, network, trained

Own = Mapping[Instruction, tuple[Strand, int]]
LENGTH = 24
LONG = network(LENGTH), trained(14)


def flat(module: Module) -> Module:
    """What the passes make when they see all layers, as they do when somebody looks on."""
    return hlo.optimize(module, manager=Manager(after=[lambda module, run: None]))


def opcodes(module: Module) -> Counter[str]:
    return Counter(i.opcode for i in module.entry.instructions)


def lengthened(text: str, passes: str = "algsimp,cse,fusion,dce") -> tuple[Module, int]:
    """The module after passes on its shorter form, and how many layers these did not see."""
    module = hlo.parse(text)
    cuts = shortened(module)
    Manager(verify=hlo.verify).run(module, parse_pipeline(passes))
    assert lengthen(module, cuts) is Fit.DONE
    hlo.verify(module)
    return module, sum(cut.count for cut in cuts)


@pytest.mark.parametrize("text", LONG, ids=["network", "trained"])
def test_all_layers_are_as_if_they_had_been_seen(text: str) -> None:
    module = hlo.parse(text)
    seen: list[int] = []
    manager = Manager(verify=lambda m: seen.append(len(m.entry)))
    made = hlo.optimize(module, manager=manager)
    assert min(seen) < len(flat(module).entry) * 0.6, "passes saw a few layers"
    hlo.verify(made)
    assert opcodes(made) == opcodes(flat(module))
    values = made_up_inputs(module, "normal", 0)
    expected = hlo.compile(flat(module), passes="", cache=False)(*values)
    given = hlo.compile(module, cache=False)(*values)
    for one, other in zip(leaves(given), leaves(expected), strict=True):
        assert one.tobytes() == other.tobytes()


def leaves(result: object) -> list[np.ndarray]:
    return [np.asarray(r) for r in (result if isinstance(result, tuple) else (result,))]


@pytest.mark.parametrize("text", LONG, ids=["network", "trained"])
def test_a_second_run_changes_nothing(text: str) -> None:
    once = hlo.optimize(hlo.parse(text))
    assert str(hlo.optimize(once)) == str(once)


def test_a_shorter_network_has_all_parameters_and_a_few_layers() -> None:
    module = hlo.parse(network(10))
    (cut,) = shortened(module)
    hlo.verify(module)
    assert len(module.entry.parameters) == 2 + 3 * 10
    assert cut.count == 6
    assert opcodes(module)["dot"] == 1 + 2 * (10 - cut.count)


def test_lengthening_without_a_pass_gives_the_module_back() -> None:
    module = hlo.parse(network(LENGTH))
    expected = clone_module(module)
    assert lengthen(module, shortened(module)) is Fit.DONE
    hlo.verify(module)
    assert opcodes(module) == opcodes(expected)
    values = made_up_inputs(expected, "normal", 0)
    np.testing.assert_array_equal(hlo.evaluate(module, *values), hlo.evaluate(expected, *values))


def test_names_and_metadata_are_those_of_each_layer() -> None:
    module, count = lengthened(network(LENGTH), "dce")
    assert count == LENGTH - 4
    of = {i.name: i["metadata"].op_name for i in module.entry.instructions if i.get("metadata")}  # type: ignore[attr-defined]
    assert {of[f"in{n}"] for n in range(LENGTH)} == {f"net/block_{n}/in" for n in range(LENGTH)}


def test_what_passes_made_has_the_place_of_its_own_layer() -> None:
    module, _ = lengthened(network(LENGTH), "fusion")
    assert dot_lines(module) == dot_lines(hlo.parse(network(LENGTH)))


def dot_lines(module: Module) -> list[int]:
    """Where the text has the products of a module, fused ones too."""
    found = [i.span for c in module.computations for i in c.instructions if i.opcode == "dot"]
    return sorted(span.line for span in found if span is not None)


def counting(p: Program, n: int, x: str) -> str:
    """A block that also counts: which layer it is decides what it computes."""
    before = f"count{n - 1}" if n else p.line("count_", "f32[] constant(0)")
    p.line(f"step{n}", "f32[] constant(1)")
    p.line(f"count{n}", f"f32[] add({before}, step{n})")
    p.line(f"counts{n}", f"{X} broadcast(count{n}), dimensions={{}}")
    return p.line(f"z{n}", f"{X} multiply({block(p, n, x)}, counts{n})")


def test_layers_that_count_are_left_as_they_are() -> None:
    assert not shortened(hlo.parse(network(LENGTH, counting)))


def scaled_apart(p: Program, n: int, x: str) -> str:
    """A block with a constant of its own."""
    p.line(f"own{n}", f"f32[] constant({n + 2})")
    p.line(f"owns{n}", f"{X} broadcast(own{n}), dimensions={{}}")
    return p.line(f"z{n}", f"{X} multiply({block(p, n, x)}, owns{n})")


def test_layers_with_other_constants_are_no_equal_ones() -> None:
    assert not shortened(hlo.parse(network(LENGTH, scaled_apart)))


def read_once(layers: int) -> str:
    """Layers all of which one instruction reads."""
    p = Program()
    x = p.parameter("x", X)
    values = []
    for n in range(layers):
        x = block(p, n, x)
        values.append(x)
    shape = f"f32[{ROWS * layers},{WIDTH}]"
    return p.text(f"{shape} concatenate({', '.join(values)}), dimensions={{0}}")


def test_layers_that_one_instruction_reads_stay() -> None:
    assert not shortened(hlo.parse(read_once(LENGTH)))


def given_in_part(layers: int) -> str:
    """Layers of which some give a result that the next one does not read when it is simplified."""
    p = Program()
    x = p.parameter("x", X)
    for n in range(layers):
        w = p.parameter(f"w{n}", W)
        p.line(f"product{n}", f"{X} dot({x}, {w}), {DOT}")
        p.line(f"end{n}", f"{X} cosine(product{n})")
        p.line(f"y{n}", f"{X} negate(end{n})")
        x = p.line(f"x{n}", f"{X} negate(y{n})")
    given = [f"y{n}" for n in (layers // 3, layers // 2, layers - 2)]
    return p.text(f"({', '.join([X] * (len(given) + 1))}) tuple({', '.join([*given, x])})")


def test_results_that_some_layers_do_not_give_are_not_made_in_these() -> None:
    made, left_out = lengthened(given_in_part(LENGTH), "algsimp")
    assert left_out
    assert opcodes(made)["negate"] == 3


def test_a_chain_without_products_is_no_network() -> None:
    def chained(p: Program, n: int, x: str) -> str:
        for k in range(12):
            x = p.line(f"s{n}_{k}", f"{X} {'sine' if k % 2 else 'cosine'}({x})")
        return p.line(f"z{n}", f"{X} add({x}, {p.parameter(f'b{n}', X)})")

    assert not shortened(hlo.parse(network(LENGTH, chained)))


def test_a_few_layers_stay() -> None:
    assert not shortened(hlo.parse(network(6)))


def test_random_numbers_that_count_see_all_layers() -> None:
    text = network(LENGTH).replace(
        "  first = ", "  low = f32[] constant(0)\n  high = f32[] constant(1)\n"
        f"  drawn = {X} rng(low, high), distribution=rng_uniform\n  first = "
    ).replace("dot(x, w)", "dot(drawn, w)")  # fmt: skip
    seen: list[int] = []
    hlo.optimize(hlo.parse(text), manager=Manager(verify=lambda m: seen.append(len(m.entry))))
    assert seen[0] > 300


def test_remarks_are_of_all_layers() -> None:
    with heard_remarks() as remarks:
        hlo.optimize(hlo.parse(network(LENGTH)))
    assert len({r.instruction for r in remarks}) > LENGTH


@pytest.mark.parametrize("fit", [Fit.UNLIKE, Fit.TIED])
def test_layers_that_passes_made_unlike_are_rewritten_as_all(
    fit: Fit, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = hlo.parse(network(LENGTH))
    expected = flat(module)
    monkeypatch.setattr("hlo.passes.lengthening._fit", lambda *_: fit)
    assert str(hlo.optimize(module)) == str(expected)


def test_further_layers_stay_where_the_last_ones_were_made_unlike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = hlo.parse(network(LENGTH))
    sizes: list[int] = []

    def fit(found: Strands, border: int, order: Sequence[Instruction], own: Own) -> Fit:
        sizes.append(len(order))
        return Fit.UNLIKE if len(sizes) == 1 else given(found, border, order, own)

    given = lengthening._fit
    monkeypatch.setattr(lengthening, "_fit", fit)
    made = hlo.optimize(module)
    first, second = sizes
    assert first < second < len(made.entry)
    assert opcodes(made) == opcodes(flat(module))


def summing(layers: int) -> str:
    """Layers whose values are added up in turn: a sum that goes from layer to layer."""
    p = Program()
    x = p.parameter("x", X)
    total = x
    for n in range(layers):
        x = block(p, n, x)
        total = p.line(f"total{n}", f"{X} add({total}, {x})")
    return p.text(f"{X} dot({total}, {p.parameter('w', W)}), {DOT}")


@pytest.mark.parametrize("passes", ["dce", "algsimp,cse", "fusion,dce"])
def test_sums_over_layers_are_right(passes: str) -> None:
    module = hlo.parse(summing(LENGTH))
    values = made_up_inputs(module, "normal", 0)
    expected = hlo.evaluate(module, *values)
    made = hlo.optimize(module, f"layers({passes})")
    hlo.verify(made)
    np.testing.assert_array_equal(hlo.evaluate(made, *values), expected)


def test_a_group_without_what_failed_sees_all_layers() -> None:
    steps = parse_pipeline("layers(dce,cse),algsimp")
    assert without(steps, ["cse"]) == (Layers((Step("dce"),)), Step("algsimp"))
    assert without(steps, [LAYERS.name]) == (Step("dce"), Step("cse"), Step("algsimp"))


def test_what_is_known_of_a_layers_computations_is_known_of_the_others() -> None:
    module, _ = lengthened(network(LENGTH))
    fused = [i for i in module.entry.instructions if i.opcode == "fusion"]
    numbers = {c.contents_number for i in fused for c in i.called_computations()}
    assert len(numbers) < len(fused) / 2
