"""Groups of block fusion that share members, or take results of each other."""

from __future__ import annotations

import pytest

from hlo import driver
from hlo.analysis.blocks import blocking
from hlo.analysis.blocks.block import Block, Cut
from hlo.analysis.blocks.size import block_of
from hlo.ir.graph import is_topological, post_order
from hlo.ir.instruction import Instruction
from hlo.passes.blocks import alike as block_alike
from hlo.passes.blocks import block_fusion as fusing
from hlo.passes.blocks.call import fused_group
from hlo.passes.large_values import block_fusion
from tests.support.attention_programs import attention


def test_groups_that_share_members_look_into_a_fusion_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What can be cut of a fused computation does not depend on the group that is tried; who makes
    a block of the one that is chosen looks once more.
    """
    asked: list[tuple[Instruction, tuple[int, int], tuple[int, ...]]] = []
    cuts = blocking.operand_cuts

    def counted(one: Instruction, span: tuple[int, int], block: Block) -> list[Cut] | None:
        asked.append((one, span, block.lead))
        return cuts(one, span, block)

    module = driver.optimize(driver.parse(attention(12, 300)), "fusion")
    monkeypatch.setattr(blocking, "operand_cuts", counted)
    assert block_fusion(module)
    inside = [key for key in asked if key[0].computation is not module.entry]
    assert inside
    assert len(inside) <= 2 * len(set(inside))


def test_products_are_looked_at_once_whatever_groups_they_are_tried_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until a group is made, which changes the computation."""
    asked: list[tuple[int, Instruction, tuple[int, int], tuple[int, ...]]] = []
    cuts = blocking._operand_cuts

    def counted(one: Instruction, span: tuple[int, int], block: Block) -> list[Cut] | None:
        assert one.computation is not None
        asked.append((one.computation.state, one, span, block.lead))
        return cuts(one, span, block)

    module = driver.optimize(driver.parse(attention(12, 300)), "fusion")
    monkeypatch.setattr(blocking, "_operand_cuts", counted)
    assert block_fusion(module)
    assert any(one.opcode == "dot" for _, one, _, _ in asked)
    assert len(asked) == len(set(asked))


def test_whether_a_kernel_runs_on_blocks_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever groups meet the instruction."""
    asked: list[Instruction] = []
    runs_on_blocks = fusing._runs_on_blocks

    def counted(one: Instruction) -> bool:
        asked.append(one)
        return runs_on_blocks(one)

    module = driver.optimize(driver.parse(attention(12, 300)), "fusion")
    monkeypatch.setattr(fusing, "_runs_on_blocks", counted)
    assert block_fusion(module)
    assert any(one.opcode == "dot" for one in asked)
    assert len(asked) == len(set(asked))


def test_what_a_block_needs_is_found_once_for_products_that_are_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By number: each has its own operands."""
    asked: list[Instruction] = []
    cuts = block_alike.cuts_needed

    def counted(one: Instruction, block: Block) -> list[tuple[int, tuple[int, ...]]]:
        asked.append(one)
        return cuts(one, block)

    dims = "lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}"
    alike = f"f32[4,8,8] dot(a, b), {dims}, rhs_contracting_dims={{1}}"
    module = driver.parse(f"""HloModule alike
ENTRY e {{
  a = f32[4,8,16] parameter(0)
  b = f32[4,16,8] parameter(1)
  d = f32[4,16,8] parameter(2)
  first = {alike}
  second = {alike.replace("a, b", "a, d")}
  other = f32[4,16,16] dot(d, a), {dims}, rhs_contracting_dims={{1}}
  ROOT r = (f32[4,8,8], f32[4,8,8], f32[4,16,16]) tuple(first, second, other) }}""")
    monkeypatch.setattr(block_alike, "cuts_needed", counted)
    known, block = block_alike.Known(), Block((4, 8), (1, 8))
    by_name = {i.name: i for i in module.entry.instructions}
    first, second, other = (known.needs(by_name[n], block) for n in ("first", "second", "other"))
    a, b, d = (by_name[n] for n in "abd")
    assert first == [(a, (0, 1)), (b, (0,))]
    assert second == [(a, (0, 1)), (d, (0,))]
    assert other == []  # its rows are sixteen
    assert asked == [by_name["first"], by_name["other"]]


CROSSED = """HloModule crossed
sum_of { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b) }
ascending { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=LT }
ENTRY e {
  p = f32[64,60,128] parameter(0)
  q = f32[64,60,128] parameter(1)
  zero = f32[] constant(0)
  x = f32[64,60,128] exponential(p)
  y = f32[64,60,128] exponential(q)
  xs = f32[64] reduce(x, zero), dimensions={1,2}, to_apply=sum_of
  ys = f32[64] reduce(y, zero), dimensions={1,2}, to_apply=sum_of
  xt = f32[64] sort(xs), dimensions={0}, to_apply=ascending
  yt = f32[64] sort(ys), dimensions={0}, to_apply=ascending
  xb = f32[64,60,128] broadcast(xt), dimensions={0}
  yb = f32[64,60,128] broadcast(yt), dimensions={0}
  u = f32[64,60,128] add(x, yb)
  v = f32[64,60,128] add(y, xb)
  ROOT r = (f32[64,60,128], f32[64,60,128]) tuple(u, v) }"""


def test_groups_that_need_results_of_each_other_are_not_both_made() -> None:
    """x, xs, u could be one kernel and y, ys, v another, but u waits for ys and v for xs."""
    module = driver.parse(CROSSED)
    assert block_fusion(module)
    driver.verify(module)
    assert is_topological(post_order(module.entry))
    assert sum(i.opcode == "fusion" for i in module.entry.instructions) == 1


def stages(dims: str, count: int) -> str:
    """Kernels with several results each, of which the next ones read all."""
    a, pair = f"f32[{dims}]", f"(f32[{dims}], f32[{dims}], f32[{dims}], f32[{dims}])"
    lines = ["HloModule stages"]
    for n in range(count):
        lines += [
            f"stage{n} {{",
            *(f"  p{k} = {a} parameter({k})" for k in range(4)),
            f"  q0 = {a} multiply(p0, p1)",
            f"  q1 = {a} add(p2, p3)",
            f"  q2 = {a} subtract(q0, q1)",
            f"  q3 = {a} divide(q1, p0)",
            f"  ROOT t = {pair} tuple(q0, q1, q2, q3)",
            "}",
        ]
    lines += ["ENTRY e {", *(f"  s0.{k} = {a} parameter({k})" for k in range(4))]
    for n in range(count):
        given = ", ".join(f"s{n}.{k}" for k in range(4))
        lines.append(f"  f{n} = {pair} fusion({given}), kind=kLoop, calls=stage{n}")
        lines += [
            f"  s{n + 1}.{k} = {a} get-tuple-element(f{n}), index={k}" for k in range(4)
        ]  # fmt: skip
    last = ", ".join(f"s{count}.{k}" for k in range(4))
    return "\n".join([*lines, f"  ROOT r = {pair} tuple({last})", "}"])


@pytest.mark.parametrize("dims", ["1000000", "1000,1000"])
def test_kernels_with_several_results_run_block_by_block_together(dims: str) -> None:
    """Those of an array of one dimension too; that results are named counts for nothing."""
    module = driver.parse(stages(dims, 9))
    assert block_fusion(module)
    fusions = [i for i in module.entry.instructions if i.opcode == "fusion"]
    assert len(fusions) == 1
    block = block_of(fusions[0])
    assert block is not None
    assert block.count >= 8
    driver.verify(module)


def residual(layers: int) -> str:
    """Layers that add to one large value: all that can be cut of it hangs together."""
    a = "f32[512,1024]"
    lines = ["HloModule residual", "ENTRY e {", f"  x0 = {a} parameter(0)"]
    for n in range(layers):
        lines += [
            f"  w{n} = f32[1024,1024] parameter({n + 1})",
            f"  d{n} = {a} dot(x{n}, w{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
            f"  t{n} = {a} tanh(d{n})",
            f"  x{n + 1} = {a} add(x{n}, t{n})",
        ]
    return "\n".join([*lines, f"  ROOT r = {a} negate(x{layers})", "}"])


def test_what_hangs_together_too_far_is_gone_through_once_for_all_of_its_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not from each value again, as long as no group is made of some of it."""
    asked: list[tuple[Instruction, tuple[int, ...]]] = []
    is_cut = block_alike.Known.is_cut

    def counted(known: block_alike.Known, one: Instruction, block: Block) -> bool:
        asked.append((one, block.lead))
        return is_cut(known, one, block)

    module = driver.parse(residual(40))
    monkeypatch.setattr(block_alike.Known, "is_cut", counted)
    block_fusion(module)
    driver.verify(module)
    groups = sum(i.opcode == "fusion" for i in module.entry.instructions)
    assert groups > 10
    assert fusing.MOST_MEMBERS < len(asked) < 3 * groups * fusing.MOST_MEMBERS // 2


def test_the_order_stays_valid_while_groups_become_calls() -> None:
    """What stands between members goes before the call, or behind it if it needs a member."""
    module = driver.parse("""HloModule between
ENTRY e {
  p = f32[8] parameter(0)
  a = f32[8] exponential(p)
  needs = f32[8] sine(a)
  free = f32[8] cosine(p)
  last = f32[8] negate(needs)
  b = f32[8] add(a, free)
  ROOT r = (f32[8], f32[8], f32[8]) tuple(a, b, last) }""")
    by_name = {i.name: i for i in module.entry.instructions}
    group = [by_name["a"], by_name["b"]]
    order = fusing._Order(module.entry)
    call = fused_group(module, module.entry, group, Block((8,), (1,)))
    order.replace(group, call)
    names = [one.name for one in order.instructions]
    assert names.index("free") < names.index(call.name) < names.index("needs")
    assert names.index("needs") < names.index("last")
    assert set(order.instructions) == set(module.entry.instructions)
    places = {one: place for place, one in enumerate(order.instructions)}
    for one in order.instructions:
        assert all(places[operand] < places[one] for operand in one.operands)
