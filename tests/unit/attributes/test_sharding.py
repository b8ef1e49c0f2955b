"""Shardings as XLA makes them canonical (docs/text.md 7.1, jaxlib 0.10.2)."""

import pytest

from hlo.attributes.iota import Iota, canonical_iota, iota_of
from hlo.attributes.sharding import TupleSharding, repeated, sharding_text
from hlo.attributes.tile_sharding import TileSharding
from hlo.errors import HloError
from hlo.ir.shape import Shape
from hlo.parser.parse import parse


def canonical(text: str, **options: bool) -> str:
    module = parse(f"HloModule m\nENTRY e {{ p = f32[8,8] parameter(0), sharding={text} }}")
    return sharding_text(module.entry.root["sharding"], **options)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{manual replicated}", "{replicated}"),
        ("{device=3 maximal}", "{maximal device=3}"),
        ("{devices=[2,2]<=[2,2]T(0,1)}", "{devices=[2,2]<=[4]}"),
        ("{devices=[4,1]<=[2,1,2]T(2,1,0)}", "{devices=[4,1]<=[2,2]T(1,0)}"),
        ("{devices=[2,2]0,1,2}", "{devices=[2,2]0,1,2,0}"),
        ("{devices=[1,1,4]<=[4] last_tile_dim_replicate}", "{replicated}"),
        ("{devices=[2,2,1]<=[4] last_tile_dim_replicate}", "{devices=[2,2]<=[4]}"),
        (
            "{devices=[2,1,2]3,2,1,0 last_tile_dim_replicate}",
            "{devices=[2,1,2]2,3,0,1 last_tile_dim_replicate}",
        ),
        (
            "{devices=[2,1,2,2]<=[8] last_tile_dims={replicated,manual}}",
            "{devices=[2,1,2,2]<=[2,2,2]T(0,2,1) last_tile_dims={manual, replicated}}",
        ),
        ("{devices=[1,1,2,1]<=[2] last_tile_dims={manual,unreduced}}", "{manual}"),
        ("{devices=[2,0]<=[0] last_tile_dims={manual}}", "{manual}"),
        (
            "{devices=[2,0]<=[0] last_tile_dims={replicated,manual}}",
            "{devices=[0,2]<=[2,0]T(1,0) last_tile_dims={manual, replicated}}",
        ),
        (
            "{devices=[3,0,2]<=[3,0,2]T(0,2,1) last_tile_dim_replicate}",
            "{devices=[3,0,2]<=[3,0,2]T(0,2,1) last_tile_dim_replicate}",
        ),
        ("{shard_as 1 shard_like 2 replicated}", "{replicated shard_as 2}"),
        ("{mesh['x'=2,'y'=4], []}", "{mesh['x'=2,'y'=4], replicated}"),
        ("{mesh['x'=2] [{'0' , ?}]}", "{mesh['x'=2], [{'x', ?}]}"),
    ],
)
def test_canonical_form(text: str, expected: str) -> None:
    assert canonical(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "{maximal}",
        "{replicated device=1}",
        "{devices=[2,2]0}",
        "{devices=[0,2]<=[0] last_tile_dim_replicate}",
        "{devices=[2,2]<=[2,2]}",
        "{devices=[2,2]0,1,2,3,4,5}",
        "{mesh['x'=2], [{'z'}]}",
        "{mesh['x'=2,'x'=2], []}",
        "{mesh['x'=4], [{'x':(1)4}]}",
        "{mesh['x'=4], [{'x'}, {'x'}]}",
        "{mesh['x'=4], device_ids=(0,1,2,3), []}",
        "{mesh['x'=1099511627776], device_ids=(1,0), []}",
    ],
)
def test_refused(text: str) -> None:
    with pytest.raises(HloError, match="sharding"):
        canonical(text)


def test_metadata_is_shown_on_request() -> None:
    text = '{replicated metadata={op_name="a"}}'
    assert canonical(text) == text
    assert canonical(text, metadata=False) == "{replicated}"


def test_a_tile_of_unreduced_devices_reads_back() -> None:
    text = "{devices=[1,1,2,1]<=[2] last_tile_dims={unreduced, replicated}}"
    xla = "{devices=[1,1,2]<=[2] last_tile_dims={unreduced}}"
    assert canonical(text, reads_back=False) == xla
    assert canonical(text) == text


def test_a_single_sharding_of_a_tuple_is_repeated() -> None:
    single = TileSharding("manual")
    pair = Shape.tuple((Shape.array("f32"), Shape.token()))
    assert repeated(single, pair) == TupleSharding((single, single))
    assert repeated(single, Shape.tuple(())) == TupleSharding((single,))
    assert repeated(single, Shape.array("f32")) is single


def test_iota_is_found_again_in_its_numbers() -> None:
    for dims, permutation in [((2, 3, 4), (2, 0, 1)), ((8,), (0,)), ((2, 2, 3), (1, 2, 0))]:
        iota = canonical_iota(dims, permutation if len(dims) > 1 else None)
        assert iota_of(iota.flat()) == iota
    assert canonical_iota((1, 1), (1, 0)) == Iota((1,), (0,))
