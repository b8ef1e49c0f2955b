"""parse(print(v)) == v for every attribute kind of the language."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hlo.attributes import enums
from hlo.attributes.aliasing import (
    BUFFER_DONOR,
    INPUT_OUTPUT_ALIAS,
    OUTPUT_TO_OPERAND_ALIASING,
    Donation,
    InputAlias,
    OperandAlias,
)
from hlo.attributes.backend_config import BACKEND_CONFIG
from hlo.attributes.debug_attributes import DEBUG_ATTRIBUTES, DebugAttributes, DebugEntry
from hlo.attributes.dim_labels import DIM_LABELS, DimLabels
from hlo.attributes.domain import DOMAIN, Domain
from hlo.attributes.frontend import FRONTEND_ATTRIBUTES
from hlo.attributes.ints import INTS, INTS_LIST
from hlo.attributes.iota import Iota, canonical_iota
from hlo.attributes.kind import AttributeKind
from hlo.attributes.literal_value import LITERAL
from hlo.attributes.mesh import AxisRef, Mesh
from hlo.attributes.mesh_sharding import MeshDim, MeshSharding
from hlo.attributes.metadata import METADATA, Metadata
from hlo.attributes.origin import ORIGIN, ORIGIN_RECOVERY_TABLE, Origin, OriginalArray, Recovery
from hlo.attributes.padding import PADDING, PaddingDim
from hlo.attributes.replica_groups import REPLICA_GROUPS, IotaGroups, ListGroups, MeshGroups
from hlo.attributes.result_accuracy import RESULT_ACCURACY, ResultAccuracy, Tolerance
from hlo.attributes.scalars import BOOL, BOOLS, FLOAT, INT32, INT64, STRING, WRAPPED_INT32
from hlo.attributes.shapes import ENTRY_LAYOUT, SHAPE, SHAPES
from hlo.attributes.sharding import SHARDING, TupleSharding
from hlo.attributes.slices import SLICE, SliceDim
from hlo.attributes.sparsity import SPARSITY, Sparsity, SparsityConfig
from hlo.attributes.statistics import STATISTICS, Statistics
from hlo.attributes.subgroups import Tile, canonical_tile
from hlo.attributes.tile_sharding import TileSharding
from hlo.attributes.window import WINDOW, Window, WindowDim
from hlo.ir.layout import Layout
from hlo.ir.literal import Literal
from hlo.ir.shape import ProgramShape, Shape
from hlo.parser.parse import parse
from tests.support.attribute_kinds import all_kinds

int64s = st.integers(-(2**63), 2**63 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
small = st.integers(-3, 20)
natural = st.integers(0, 20)
texts = st.text(st.characters(min_codepoint=1, max_codepoint=0x2FF), max_size=8)
words = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,6}", fullmatch=True)
indices = st.lists(natural, max_size=3).map(tuple)
doubles = st.floats(allow_nan=False)


def tuples_of(strategy: st.SearchStrategy, **limits: int) -> st.SearchStrategy:
    return st.lists(strategy, **limits).map(tuple)


metadata = st.builds(
    Metadata,
    op_type=texts,
    op_name=texts,
    source_file=texts,
    source_line=int32s,
    source_end_line=int32s,
    source_column=int32s,
    source_end_column=int32s,
    profile_type=tuples_of(st.integers(0, 3), max_size=2),
    deduplicated_name=texts,
    scheduling_name=texts,
    metadata_payload=st.none() | texts,
)


@st.composite
def iotas(draw: st.DrawFn, size: int | None = None) -> Iota:
    dims = draw(st.lists(st.integers(1, 4), min_size=2, max_size=4))
    permutation = draw(st.permutations(range(len(dims))))
    if size is not None:
        return canonical_iota((size,), None)
    return canonical_iota(tuple(dims), tuple(permutation))


@st.composite
def tile_shardings(draw: st.DrawFn) -> TileSharding:
    group = draw(st.none() | st.tuples(st.sampled_from(["shard_as", "shard_like"]), natural))
    rest = {"shard_group": group, "metadata": draw(tuples_of(metadata, max_size=2))}
    kind = draw(st.sampled_from(["replicated", "manual", "unknown", "unreduced", "maximal", ""]))
    if kind:
        return TileSharding(kind, draw(small) if kind == "maximal" else 0, **rest)
    types = draw(tuples_of(st.sampled_from(["manual", "unreduced", "replicated"]), max_size=2))
    dims = tuple(draw(st.integers(1, 3)) for _ in range(2 + len(types)))
    count = math.prod(dims)
    devices = tuple(draw(st.permutations(range(count)))) if count > 1 else Iota((1,), (0,))
    if draw(st.booleans()):
        devices = canonical_iota((count,), None)
    kind, tile = canonical_tile(Tile(dims, devices, types))
    return TileSharding(kind, 0, tile, **rest)


MESH = Mesh((("x", 2), ("y", 4), ("z", 3)))
meshes = st.sampled_from(
    [MESH, Mesh(MESH.axes, Iota((4, 6), (1, 0))), Mesh(MESH.axes, (1, 0, *range(2, 24)))]
)


@st.composite
def mesh_shardings(draw: st.DrawFn) -> MeshSharding:
    refs = draw(st.permutations([AxisRef(0), AxisRef(1, 2, 2), AxisRef(2)]))
    dims = tuple(MeshDim((r,), draw(st.booleans())) for r in refs[: draw(st.integers(1, 3))])
    manual = tuple(sorted(refs[len(dims) :], key=lambda r: r.axis))
    shown = draw(tuples_of(metadata, max_size=2))
    return MeshSharding(draw(meshes), "tiled", dims, manual=manual, metadata=shown)


shardings = tile_shardings() | mesh_shardings()
leaves = st.none() | st.builds(OriginalArray, words, indices)  # "" is an unknown leaf
trees = st.recursive(leaves, lambda below: tuples_of(below, min_size=1, max_size=3), max_leaves=6)
arrays = st.builds(
    Shape.array,
    st.sampled_from(["f32", "pred", "s4", "bf16", "c64"]),
    st.lists(natural, max_size=3),
) | st.just(Shape.array("f32", (8, 128), layout=Layout((0, 1), ((8, 128), (2, 1)), memory_space=1)))
shapes = st.recursive(arrays, lambda below: tuples_of(below, max_size=3).map(Shape.tuple))
literals = st.sampled_from(["f32", "s8", "u64", "f64", "pred", "bf16"]).flatmap(
    lambda name: st.lists(st.integers(0, 1), max_size=4).map(
        lambda xs: Literal.of(np.array(xs), Shape.array(name, (len(xs),)))
    )
)
window_dims = st.builds(
    WindowDim, natural, natural, small, small, natural, natural, st.booleans()
)  # other negative numbers do not lex
sparse = st.builds(Sparsity, natural, natural, natural, natural)


def labels(rank: int) -> st.SearchStrategy:
    def split(order: list[int]) -> tuple:
        return order[0], order[1], tuple(order[2:])

    part = st.permutations(range(rank + 2)).map(split)
    return st.tuples(part, part, part).map(lambda p: DimLabels(*p[0], *p[1], *p[2]))


def unique_by_output(aliases: list[InputAlias]) -> tuple[InputAlias, ...]:
    found = {a.output: a for a in aliases}
    return tuple(found[key] for key in sorted(found))


def line(text: str) -> str:
    return (
        f"HloModule m\nENTRY e {{ p = f32[2] parameter(0)\n q = f32[] parameter(1)\n r = {text} }}"
    )


def header(text: str) -> str:
    return f"HloModule m, {text}\nENTRY e {{ p = f32[2] parameter(0) }}"


SUM = "to_apply={ x = f32[] parameter(0)\n y = f32[] parameter(1)\n s = f32[] add(x, y) }"
CALL = 'f32[2] custom-call(p), custom_call_target="t", '
CASES: dict[AttributeKind, tuple[str, str, st.SearchStrategy]] = {
    BOOL: (CALL, "custom_call_has_side_effect", st.booleans()),
    BOOLS: ("", "allow_spmd_sharding_propagation_to_output", tuples_of(st.booleans(), min_size=1)),
    INT64: ("f32[2] iota(), ", "iota_dimension", int64s),
    INT32: (
        "(f32[2], f32[2], u32[]) copy-start(p), ",
        "cross_program_prefetch_index",
        int32s,
    ),
    WRAPPED_INT32: ("f32[2] reduce-precision(p), mantissa_bits=3, ", "exponent_bits", int32s),
    FLOAT: (
        "f32[2] batch-norm-inference(p,p,p,p,p), feature_index=0, ",
        "epsilon",
        st.floats(width=32, allow_infinity=False, allow_nan=False),
    ),
    STRING: ("f32[2] custom-call(p), ", "custom_call_target", texts),
    INTS: ("f32[2] transpose(p), ", "dimensions", tuples_of(int64s, max_size=4)),
    INTS_LIST: (
        "f32[2] collective-permute(p), ",
        "source_target_pairs",
        tuples_of(st.tuples(small, small)),
    ),
    WINDOW: (CALL, "window", tuples_of(window_dims, max_size=3).map(Window)),
    DIM_LABELS: (CALL, "dim_labels", natural.flatmap(lambda n: labels(n % 8))),
    PADDING: (
        "f32[2] pad(p, q), ",
        "padding",
        tuples_of(st.builds(PaddingDim, small, small, natural), min_size=1),
    ),
    SLICE: ("f32[2] slice(p), ", "slice", tuples_of(st.builds(SliceDim, int64s, int64s, small))),
    FRONTEND_ATTRIBUTES: (
        "f32[2] copy(p), ",
        "frontend_attributes",
        st.dictionaries(words, texts | st.just('{"a":1}'), min_size=1).map(
            lambda d: tuple(sorted(d.items()))
        ),
    ),
    BACKEND_CONFIG: (
        "f32[2] copy(p), ",
        "backend_config",
        texts.filter(bool) | st.sampled_from([" {a} ", "{}", '{"a":"}"}']),
    ),
    STATISTICS: (
        "f32[2] copy(p), ",
        "statistics",
        st.builds(Statistics, int64s, tuples_of(st.tuples(words, doubles), min_size=1)),
    ),
    METADATA: ("f32[2] copy(p), ", "metadata", metadata),
    RESULT_ACCURACY: (
        "f32[2] tanh(p), ",
        "result_accuracy",
        st.builds(ResultAccuracy, st.sampled_from(["default", "highest"]))
        | st.builds(
            ResultAccuracy,
            tolerance=st.builds(Tolerance, st.floats(0), st.floats(0), st.integers(0, 2**62)),
        ),
    ),
    OUTPUT_TO_OPERAND_ALIASING: (
        CALL,
        "output_to_operand_aliasing",
        tuples_of(st.builds(OperandAlias, indices, small, indices)),
    ),
    INPUT_OUTPUT_ALIAS: (
        "",
        "input_output_alias",
        st.lists(
            st.builds(
                InputAlias,
                st.just(()),
                natural,
                indices,
                st.sampled_from(["may-alias", "must-alias"]),
            ),
            min_size=1,
        ).map(unique_by_output),
    ),
    BUFFER_DONOR: (
        "",
        "buffer_donor",
        st.sets(st.builds(Donation, natural, indices), min_size=1).map(lambda s: tuple(sorted(s))),
    ),
    ORIGIN: (
        "f32[2] copy(p), ",
        "origin",
        st.builds(Origin, trees) | st.just(Origin(synthetic_call=True)),
    ),
    DEBUG_ATTRIBUTES: (
        "",
        "debug_attributes",
        tuples_of(
            st.builds(
                DebugEntry,
                st.builds(OriginalArray, words, indices),
                tuples_of(
                    st.builds(
                        DebugAttributes,
                        st.none() | st.just("default"),
                        st.none() | int64s,
                        st.none() | int64s,
                        st.none() | st.booleans(),
                    ),
                    max_size=2,
                ),
            ),
            max_size=3,
        ),
    ),
    ORIGIN_RECOVERY_TABLE: (
        "",
        "origin_recovery_table",
        st.builds(
            Recovery,
            st.builds(OriginalArray, words, indices),
            st.builds(OriginalArray, words, indices),
        ).map(lambda r: (r,)),
    ),
    SHARDING: (
        "f32[2] copy(p), ",
        "sharding",
        shardings | tuples_of(shardings, max_size=7).map(TupleSharding),
    ),
    DOMAIN: (
        "f32[2] domain(p), ",
        "domain",
        st.tuples(shardings, shardings).map(lambda pair: Domain(*pair)),
    ),
    REPLICA_GROUPS: (
        f"f32[2] all-reduce(p), {SUM}, ",
        "replica_groups",
        tuples_of(tuples_of(small)).map(ListGroups)
        | st.builds(IotaGroups, natural, natural, iotas())
        | st.builds(
            MeshGroups, meshes, st.sampled_from([(AxisRef(0),), (AxisRef(1, 2, 2), AxisRef(0))])
        ),
    ),
    SHAPE: ("token[] outfeed(p, p), ", "outfeed_shape", shapes),
    SHAPES: (
        'f32[2] custom-call(), custom_call_target="t", ',
        "operand_layout_constraints",
        st.just(()),
    ),
    ENTRY_LAYOUT: (
        "",
        "entry_computation_layout",
        st.builds(ProgramShape, tuples_of(shapes, max_size=7), shapes),
    ),
    LITERAL: (CALL, "literal", literals),
    SPARSITY: (
        "f32[1,1] convolution(p, p), dim_labels=bf_io->bf, ",
        "sparsity_config",
        st.builds(SparsityConfig, sparse, st.none() | sparse),
    ),
    enums.OPERAND_PRECISION: (
        "f32[2] dot(p, p), ",
        "operand_precision",
        tuples_of(st.sampled_from(["default", "high", "highest"])),
    ),
}


def test_every_kind_has_a_case() -> None:
    special = {"computation", "computations", "instructions"}
    missing = [
        k.name
        for k in all_kinds()
        if k not in CASES and k.rule != "kind_enum" and k.refers not in special
    ]
    assert missing == []


@pytest.mark.parametrize("kind", CASES, ids=lambda k: k.name)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(data=st.data())
def test_a_printed_value_reads_back(kind: AttributeKind, data: st.DataObject) -> None:
    before, key, strategy = CASES[kind]
    value = data.draw(strategy)
    text = f"{key}={kind.print(value)}"
    module = parse(line(before + text) if before else header(text))
    read = (module.entry.root.attributes if before else module.attributes)[key]
    if isinstance(value, Literal):
        assert value.same_bits(read)
    else:
        assert read == value


ENUM_CASES = {
    enums.FUSION_KIND: "kLoop kInput kOutput kCustom",
    enums.DIRECTION: "EQ NE GE GT LE LT",
    enums.DOT_ALGORITHM: "dot_f32_f32_f32 dot_bf16_bf16_f32_x9",
    enums.API_VERSION: "API_VERSION_TYPED_FFI",
}


@pytest.mark.parametrize("kind", ENUM_CASES, ids=lambda k: k.name)
def test_an_enumeration_prints_its_own_words(kind: AttributeKind) -> None:
    for word in ENUM_CASES[kind].split():
        assert kind.print(word) == word
