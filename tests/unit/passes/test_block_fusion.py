"""Block fusion: which chains are grouped, how they are cut, and that they compute the same."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

import numpy as np
import pytest

from hlo import driver
from hlo.analysis.blocks import size as block_size
from hlo.analysis.blocks.block import Block, Cut, Span
from hlo.analysis.blocks.blocked import is_blocked
from hlo.analysis.blocks.cutting import Start, cut_computation
from hlo.analysis.blocks.size import block_of, part_sizes
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.passes.large_values import block_fusion
from hlo.runtime.executable import Executable
from tests.support import oracle
from tests.support.attention_programs import (
    REDUCERS,
    attention,
    causal,
    gradients,
    heads_in_rows,
    softmax,
)
from tests.support.by_threads import for_threads
from tests.support.growing_modules import computation
from tests.support.growing_modules import module as program


def scores(rows: int) -> str:
    """A product with a small matrix whose rows are normalised; rows are what blocks part."""
    return f"""HloModule scores
{REDUCERS}
ENTRY e {{
  x = f32[{rows},8] parameter(0)
  w = f32[8,24] parameter(1)
  s = f32[{rows},24] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  {softmax(f"{rows},24", str(rows), 1)}
  g = f32[{rows}] reduce(p, low), dimensions={{1}}, to_apply=max_of
  ROOT r = (f32[{rows}], f32[{rows}]) tuple(g, m) }}"""


PAIRS = f"""HloModule pairs
{REDUCERS}
body {{ c = (s32[], f32[400,3]) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  x = f32[400,3] get-tuple-element(c), index=1
  one = s32[] constant(1)
  n = s32[] add(i, one)
  a = f32[400,400,3] broadcast(x), dimensions={{0,2}}
  b = f32[400,400,3] broadcast(x), dimensions={{1,2}}
  d = f32[400,400,3] subtract(b, a)
  dd = f32[400,400,3] multiply(d, d)
  zero = f32[] constant(0)
  r = f32[400,400] reduce(dd, zero), dimensions={{2}}, to_apply=sum_of
  s = f32[] constant(1.5)
  sb = f32[400,400] broadcast(s), dimensions={{}}
  t = f32[400,400] add(r, sb)
  tb = f32[400,400,3] broadcast(t), dimensions={{0,1}}
  f = f32[400,400,3] divide(d, tb)
  g = f32[400,3] reduce(f, zero), dimensions={{1}}, to_apply=sum_of
  y = f32[400,3] add(x, g)
  ROOT o = (s32[], f32[400,3]) tuple(n, y) }}
cond {{ c = (s32[], f32[400,3]) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  e = s32[] constant(3)
  ROOT l = pred[] compare(i, e), direction=LT }}
ENTRY e {{ x = f32[400,3] parameter(0)
  z = s32[] constant(0)
  c = (s32[], f32[400,3]) tuple(z, x)
  w = (s32[], f32[400,3]) while(c), condition=cond, body=body
  ROOT r = f32[400,3] get-tuple-element(w), index=1 }}"""


def convolution(images: int, *, finished: bool) -> str:
    """A padded convolution, and its rectified results where `finished`."""
    shape = f"f32[{images},28,28,16]"
    end = f"""
  c = {shape} convolution(x, w), window={{size=3x3 pad=1_1x1_1}}, dim_labels=b01f_01io->b01f
  z = f32[] constant(0)
  zb = {shape} broadcast(z), dimensions={{}}
  ROOT r = {shape} maximum(c, zb) }}"""
    if not finished:
        end = end[: end.index("\n  z =")].replace("c = f32", "ROOT c = f32") + " }"
    return f"""HloModule convolution
ENTRY e {{
  x = {shape} parameter(0)
  w = f32[3,3,16,16] parameter(1){end}"""


def blocked(module: Module) -> list[Instruction]:
    return [
        i
        for c in module.computations
        for i in c.instructions
        if i.opcode == "fusion" and is_blocked(i)
    ]


def block_in(text: str) -> Block | None:
    """The block of a program's only blocked fusion."""
    found = blocked(driver.optimize(driver.parse(text)))
    if not found:
        return None
    (fusion,) = found
    return block_of(fusion)


def inputs(text: str) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    return [
        rng.standard_normal(p.shape.dims).astype(np.float32)
        for p in driver.parse(text).entry.parameters
    ]


def test_blocks_are_batches_or_rows() -> None:
    assert block_in(attention(32, 128)) == Block((32,), (2,))
    assert block_in(attention(4, 512)) == Block((4, 512), (1, 128))
    assert block_in(causal(4, 480)) == Block((4, 480), (1, 120))
    assert block_in(heads_in_rows(4, 512)) == Block((4, 512), (1, 128))
    assert block_in(scores(1 << 14)) == Block((1 << 14,), (1 << 10,))
    assert block_in(scores(16411)) == Block((16411,), (1040,))  # a prime: the last two overlap
    assert block_in(convolution(32, finished=True)) == Block((32,), (2,))
    assert block_in(convolution(33, finished=False)) == Block((33,), (1,))
    assert block_in(PAIRS) == Block((400,), (25,))


def test_small_and_unfit_chains_stay() -> None:
    assert block_in(attention(8, 64)) is None
    text = scores(1 << 14)
    shared = text.replace("tuple(g, m)", "tuple(g, m, s)").replace(
        "ROOT r = (f32[16384], f32[16384])", "ROOT r = (f32[16384], f32[16384], f32[16384,24])"
    )
    assert block_in(shared) is None  # the product is a result: nothing is saved
    columns = text.replace(
        "dimensions={1}, to_apply=max_of\n  mb", "dimensions={0}, to_apply=max_of\n  mb"
    )
    columns = columns.replace("m = f32[16384]", "m = f32[24]").replace(
        "broadcast(m), dimensions={0}", "broadcast(m), dimensions={1}"
    )
    columns = columns.replace("ROOT r = (f32[16384], f32[16384])", "ROOT r = (f32[16384], f32[24])")
    assert block_in(columns) is None  # every row needs all others


def test_blocks_do_not_add_up_all_columns_again() -> None:
    """How many rows share a column's least number: few numbers, for which every block would go
    through all rows."""
    wide, sums = "f32[800,900]", "to_apply=sum_of"
    text = f"""HloModule ties
{REDUCERS}
ENTRY e {{ a = f32[800,3] parameter(0)
  b = f32[900,3] parameter(1)
  least = f32[900] parameter(2)
  zero = f32[] constant(0)
  d = {wide} dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
  lb = {wide} broadcast(least), dimensions={{1}}
  p = pred[800,900] compare(d, lb), direction=LT
  e = {wide} convert(p)
  n = f32[900] reduce(e, zero), dimensions={{0}}, {sums}
  nb = {wide} broadcast(n), dimensions={{1}}
  w = {wide} divide(e, nb)
  ROOT o = f32[800,3] dot(w, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}} }}"""
    assert block_in(text) is None


def test_blocks_hold_what_is_not_written_over() -> None:
    """Scores become weights where they lie, so that they are there once."""
    assert block_in(attention(2, 2048)) == Block((2, 2048), (1, 192))
    text = attention(2, 2048)
    product = text[text.index("ROOT o = ") :]
    shared = text.replace("ROOT o", "o").removesuffix("}")
    shared += product.replace("ROOT o", "u").replace("dot(p, v)", "dot(raw, v)").removesuffix("}")
    shared += "ROOT both = f32[2,2048,16] add(o, u) }"
    assert block_in(shared) == Block((2, 2048), (1, 80))


def test_operands_of_products_in_no_block_stay_as_they_lie() -> None:
    text = heads_in_rows(4, 512)
    alone = text[: text.index("  s = f32[")].replace("raw =", "ROOT raw =") + "}"
    product = driver.optimize(driver.parse(alone)).entry.root
    assert [o.opcode for o in product.operands] == ["reshape", "parameter"]


def test_text_of_a_block() -> None:
    (fusion,) = blocked(driver.optimize(driver.parse(scores(16411))))
    (callee,) = fusion.called_computations()
    block = block_of(fusion)
    assert block is not None
    assert block.count == 16
    cut = cut_computation(callee, block)
    body, parameters = cut.computation, cut.parameters
    cuts = [p for p in parameters if not isinstance(p, Start)]
    assert cuts == parameters
    assert sorted((p.shape.dims, span) for p, span in cuts) == [
        ((8, 24), ()),
        ((16411, 8), (0,)),
    ]
    assert body.root.shape.elements[0].dims == (1040,)
    assert not any(16411 in leaf.dims for i in body.instructions for leaf in i.shape.leaves())


def test_fusions_in_fusions_are_cut_at_any_depth() -> None:
    """The block of the result is one of every fusion inside."""
    depth = 2000
    taken = ["x = f32[4096,8] parameter(0)", "w = f32[8,24] parameter(1)"]
    inner = "dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    fused = []
    for k in range(depth):
        lines = [f"h = f32[4096,24] {inner}", "ROOT s = f32[4096,24] tanh(h)"]
        fused.append(computation(f"g{k}", [*taken, *lines]))
        inner = f"fusion(x, w), kind=kLoop, calls=g{k}"
    entry = driver.parse(program([*taken, f"ROOT s = f32[4096,24] {inner}"], *fused)).entry
    cut = cut_computation(entry, Block((4096,), (64,)))
    body, parameters = cut.computation, cut.parameters
    cuts = [p for p in parameters if not isinstance(p, Start)]
    assert [(p["parameter_number"], span) for p, span in cuts] == [(0, (0,)), (1, ())]
    for _ in range(depth):
        (call,) = (i for i in body.instructions if i.opcode == "fusion")
        assert call.shape.dims == (64, 24)
        assert [o.shape.dims for o in call.operands] == [(64, 8), (8, 24)]
        (body,) = call.called_computations()
    assert body.root.opcode == "tanh"


def test_the_pass_ends_and_its_text_is_read_again() -> None:
    module = driver.optimize(driver.parse(attention(32, 128)))
    assert not block_fusion(module)
    again = driver.parse(driver.to_text(module))
    assert len(blocked(again)) == len(blocked(driver.optimize(again))) == 1


def test_constants_that_only_a_block_reads_go_with_it() -> None:
    text = f"""HloModule products
{REDUCERS}
ENTRY e {{
  x = f32[20000,8] parameter(0)
  w = f32[8,24] parameter(1)
  v = f32[24,24] parameter(2)
  zero = f32[] constant(0)
  s = f32[20000,24] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  u = f32[20000,24] dot(s, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT m = f32[20000] reduce(u, zero), dimensions={{1}}, to_apply=max_of }}"""
    module = driver.parse(text)
    assert block_fusion(module)
    assert [i for i in module.entry.instructions if not i.users] == [module.entry.root]


def test_values_that_are_only_waited_for_stay() -> None:
    module = driver.parse(
        "HloModule m\nENTRY e { p = f32[1024,1024] parameter(0)\n"
        " a = f32[1024,1024] exponential(p)\n b = f32[1024,1024] negate(a)\n"
        " ROOT c = f32[1024,1024] add(p, p), control-predecessors={b} }"
    )
    before = driver.to_text(module)
    assert not block_fusion(module)
    assert driver.to_text(module) == before


def test_what_others_wait_for_stays_outside() -> None:
    text = scores(1 << 14).replace(
        "ROOT r = (f32[16384], f32[16384]) tuple(g, m)",
        "h = f32[16384] reduce(p, zero), dimensions={1}, to_apply=sum_of\n"
        "  one = f32[] constant(1)\n"
        "  two = f32[] add(one, one), control-predecessors={h}\n"
        "  ROOT r = (f32[16384], f32[16384], f32[]) tuple(g, m, two)",
    )
    module = driver.parse(text)
    block_fusion(module)
    assert any(i.name == "h" for i in module.entry.instructions)
    driver.verify(driver.parse(driver.to_text(module)))


def test_part_sizes() -> None:
    assert part_sizes(12) == (1, 2, 3, 4, 6, 12)
    for n in (997, 1024, 16411):
        for size in part_sizes(n):
            assert n % size == 0 or (size % 16 == 0 and -(-n // size) * size - n <= n // 16)


@pytest.mark.parametrize(
    "text",
    [
        attention(32, 128),
        attention(2, 384),
        attention(4, 509),
        gradients(4, 512),
        heads_in_rows(4, 512),
        heads_in_rows(4, 509),
        causal(4, 509),
        causal(4, 512, counted="f32"),
        scores(1 << 14),
        scores(16411),
        PAIRS,
        convolution(32, finished=True),
        convolution(33, finished=False),
    ],
    ids=[
        "batches",
        "rows",
        "overlapping rows of batches",
        "gradients",
        "heads in rows",
        "overlapping rows of heads in rows",
        "counted rows",
        "rows counted in f32",
        "long",
        "overlapping",
        "loop",
        "images",
        "padding",
    ],
)
def test_blocks_compute_what_the_whole_does(text: str) -> None:
    arrays = inputs(text)
    module = driver.parse(text)
    whole = driver.optimize(module, "simplify,fusion")
    assert not blocked(whole)
    expected = results(driver.compile(whole, passes=""), arrays)
    first = None
    for threads in (1, 2, 3, 7):
        program = for_threads(module, threads=threads)
        assert isinstance(program, Executable)
        runs = [results(program, arrays)]
        if threads == 3:
            runs.append(results(program.run_guarded, arrays))
        for found in runs:
            first = first or found
            for a, b, c in zip(found, expected, first, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=5e-6)
                assert a.tobytes() == c.tobytes()


def results(run: Callable[..., object], arrays: list[np.ndarray]) -> list[np.ndarray]:
    found = run(*arrays)
    return [np.asarray(part) for part in (found if isinstance(found, tuple) else (found,))]


def _said(config: str) -> Block | None:
    """The block of the scores' fusion under another text of its decisions."""
    text = driver.to_text(driver.optimize(driver.parse(scores(1 << 14))))
    assert text.count('backend_config={"hlo":{"block":[1024]}}') == 1
    again = driver.parse(text.replace('{"hlo":{"block":[1024]}}', config))
    (fusion,) = blocked(again)
    return block_of(fusion)


def test_the_block_of_the_text_is_taken() -> None:
    assert _said('{"hlo":{"block":[512]}}') == Block((1 << 14,), (512,))
    foreign = '{"hlo":{"block":[512],"other":[1]},"outer_dimension_partitions":["2"]}'
    assert _said(foreign) == Block((1 << 14,), (512,))


@pytest.mark.parametrize(
    "config",
    [
        '""', '{"hlo":{}}', '{"hlo":{"block":[0]}}', '{"hlo":{"block":[16385]}}',
        '{"hlo":{"block":[2,8]}}', '{"hlo":{"block":[1,8]}}', '{"hlo":{"block":[1,1,1,1]}}',
        '{"hlo":{"block":"many"}}', '{"hlo":[]}', '{"hlo":{"block":[512]}, not JSON}',
        '{"other":{"hlo":{"block":[512]}}}',
    ],
)  # fmt: skip
def test_a_block_that_is_absent_or_wrong_is_chosen_anew(config: str) -> None:
    assert _said(config) == Block((1 << 14,), (1 << 10,))


def test_the_block_is_found_once_for_a_state_of_what_it_follows_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Block] = []
    needed = block_size.needed

    def counted(
        roots: Iterable[Instruction], span: Span, block: Block, inside: Container[Instruction]
    ) -> set[Cut] | None:
        asked.append(block)
        return needed(roots, span, block, inside)

    (fusion,) = blocked(driver.optimize(driver.parse(attention(12, 300))))
    found = block_of(fusion)
    monkeypatch.setattr(block_size, "needed", counted)
    assert block_of(fusion) == found
    assert asked == []
    (body,) = fusion.called_computations()
    inner = next(i for i in body.instructions if i.opcode == "fusion").called_computations()[0]
    inner.root = inner.root  # an edit
    assert block_of(fusion) == found
    assert asked == [found]


@pytest.mark.oracle
@pytest.mark.skipif(not oracle.available(), reason="needs jaxlib 0.10.2")
def test_xla_reads_the_text_of_a_block() -> None:
    server = oracle.Oracle()
    try:
        text = driver.to_text(driver.optimize(driver.parse(scores(1 << 14))))
        printed = server.to_string(text)
        assert printed is not None
        assert 'backend_config={"hlo":{"block":[1024]}}' in printed
    finally:
        server.close()
