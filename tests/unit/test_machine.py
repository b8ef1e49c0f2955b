"""Machines: descriptions are found by features and by names."""

import json

import numpy as np
import pytest
from msgspec.structs import replace

import hlo
from hlo.backend.ir.work import speeds_of
from hlo.backend.isa.avx512 import Avx512
from hlo.errors import HloError
from hlo.given_machines import from_json, with_features
from hlo.ir import dtype as dt
from hlo.machine import (
    CHOICES,
    COMMON,
    NAMED,
    Cache,
    Rates,
    described,
    named,
)

MINE: dict[str, object] = {
    "name": "mine", "triple": "x86_64-unknown-linux-gnu", "features": ["sse2"], "vector_bytes": 16
}  # fmt: skip


@pytest.mark.parametrize("machine", NAMED.values(), ids=lambda m: m.name)
def test_a_machine_is_found_by_its_own_features(machine) -> None:  # type: ignore[no-untyped-def]
    """With its name: what has the same vectors as another row is told from that by it."""
    assert described(machine.triple, machine.features, machine.name) == machine
    more = machine.features | {"sha", "x-that-nobody-knows"}
    found = described(machine.triple, more, machine.name)
    assert found == replace(machine, features=more)
    unnamed = described(machine.triple, more)
    assert unnamed.vector_bytes == machine.vector_bytes, "from the least to the most capable"


def test_processors_of_the_same_vectors_are_told_apart_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    level = NAMED["neoverse-v1"]
    other = replace(level, name="longlines", line_bytes=128, processors=("longlines2",))
    monkeypatch.setattr("hlo.machine._ALL", (other, level))
    assert described(level.triple, level.features, "longlines2") == other
    assert described(level.triple, level.features) == level


def test_a_hidden_feature_that_vectors_do_not_need_hides_no_vectors() -> None:
    level = NAMED["x86-64-v3"]
    assert described(level.triple, level.features - {"movbe", "bmi2"}).name == "x86-64-v3"
    assert described(level.triple, level.features - {"fma"}).vector_bytes == 16


def test_a_processor_whose_features_are_hidden_costs_what_it_costs() -> None:
    whole, amd = NAMED["sapphirerapids"], NAMED["znver4"]
    seen = frozenset(f for f in whole.features if not f.startswith("amx"))
    assert described(whole.triple, seen).cycles.bf16_dots == amd.cycles.bf16_dots == 2
    found = described(whole.triple, seen, "emeraldrapids")
    assert (found.cycles, found.rates, found.caches) == (whole.cycles, whole.rates, whole.caches)
    assert (found.features, found.vector_bytes) == (seen, 64)
    assert Avx512(found).dot_product(dt.BF16, dt.BF16) is None
    assert Avx512(described(amd.triple, amd.features, "znver5")).dot_product(dt.BF16, dt.BF16)
    narrow = described(whole.triple, NAMED["x86-64-v3"].features, "emeraldrapids")
    assert (narrow.vector_bytes, narrow.registers) == (32, 16)
    for unknown in ("a-name-to-come", "generic", "x86-64", "cortex-a72"):
        assert described(whole.triple, seen, unknown) == described(whole.triple, seen)


def test_what_is_longer_than_a_processors_paths_takes_turns() -> None:
    """Zen 4 has paths of 256 bits: a sum of 512 begins in each cycle and waits four of them."""
    four, five = NAMED["znver4"], NAMED["znver5"]
    assert (four.turns, five.turns, NAMED["x86-64-v3"].turns) == (2, 1, 1)
    assert with_features(four, "-avx512f").turns == 1
    for machine, products in ((four, 4), (five, 8)):
        speeds = speeds_of(machine)
        assert speeds.wait_us * speeds.instructions == pytest.approx(products)


def test_zen_5_is_told_from_zen_4_by_what_it_is_called_or_has() -> None:
    four, five = NAMED["znver4"], NAMED["znver5"]
    assert described(four.triple, four.features) == described(four.triple, four.features, "znver4")
    hidden = described(four.triple, four.features, "znver5")
    assert (hidden.name, hidden.caches, hidden.rates) == ("znver5", five.caches, five.rates)
    assert hidden.features == four.features
    assert described(five.triple, five.features).name == "znver5"
    assert five.first_cache.way_bytes == four.first_cache.way_bytes == 4096
    assert five.rates.contracted_ops > four.rates.contracted_ops


def test_another_architecture_is_another_machine() -> None:
    assert described("aarch64-apple-darwin23", NAMED["armv8-a"].features).name == "armv8-a"
    apple = described("arm64-apple-darwin23.0.0", NAMED["neoverse-n1"].features)
    assert (apple.name, apple.architecture, apple.registers) == ("neoverse-n1", "aarch64", 32)
    riscv = described("riscv64-unknown-linux-gnu", frozenset({"v"}))
    assert (riscv.name, riscv.architecture, riscv.vector_bytes) == ("generic", "riscv64", 16)


def test_processors_have_one_description() -> None:
    names = [name for m in NAMED.values() for name in (m.name, *m.processors)]
    assert sorted(names) == sorted(set(names))
    assert named("znver3") is NAMED["x86-64-v3"]
    with pytest.raises(HloError, match="there is no machine znver33") as caught:
        named("znver33")
    assert caught.value.code == "machine"
    assert "did you mean znver3?" in str(caught.value)


def test_lanes_of_a_vector() -> None:
    assert NAMED["x86-64-v4"].lanes(dt.F32) == 16
    assert NAMED["x86-64-v3"].lanes(dt.F64) == 4
    assert NAMED["x86-64-v2"].lanes(dt.S8) == 4


def test_registers_follow_from_vectors_where_nobody_says() -> None:
    assert (NAMED["x86-64-v4"].registers, NAMED["x86-64-v3"].registers) == (32, 16)
    assert (NAMED["armv8-a"].registers, COMMON.registers) == (32, 16)
    less = with_features(NAMED["x86-64-v4"], "-avx512f,-avx512bw,-avx512cd,-avx512dq,-avx512vl")
    assert (less.vector_bytes, less.registers) == (32, 16)
    assert from_json(json.dumps(MINE | {"vector_bytes": 64}), "m").registers == 32


def test_a_file_says_caches_and_rates_or_leaves_them() -> None:
    left = from_json(json.dumps(MINE), "m")
    assert (left.caches, left.rates, left.line_bytes) == (COMMON.caches, Rates(), 64)
    caches = [{"bytes": 49152, "ways": 12}, {"bytes": 1 << 21, "ways": 16, "shared": True}]
    said = from_json(
        json.dumps(MINE | {"caches": caches, "rates": {"share_us": 2}, "line_bytes": 128}), "m"
    )
    assert said.caches[0] == Cache(bytes=49152, ways=12, way_bytes=4096)
    assert said.last_cache is said.second_cache
    assert (said.rates, said.line_bytes) == (Rates(share_us=2.0), 128)
    assert with_features(said, "+sse3").caches == said.caches
    assert said.identity != left.identity


@pytest.mark.parametrize("field", CHOICES)
def test_a_number_that_no_kernel_is_written_for_names_those_there_are(field: str) -> None:
    with pytest.raises(HloError, match=rf"{field} is 12, expected .*\b{CHOICES[field][0]}\b.* or "):
        from_json(json.dumps(MINE | {field: 12}), "m")


def test_programs_are_compiled_for_a_machine_by_its_name() -> None:
    module = hlo.parse("HloModule m\nENTRY e { ROOT p = f32[3] parameter(0) }")
    made = hlo.compile(module, cache=False, machine="x86-64-v2")
    np.testing.assert_array_equal(made(np.arange(3, dtype=np.float32)), [0, 1, 2])
    with pytest.raises(HloError, match="there is no machine x86-64-v9"):
        hlo.compile(module, cache=False, machine="x86-64-v9")
    with pytest.raises(HloError, match=r"int, expected hlo\.machine\.Machine or a name"):
        hlo.compile(module, cache=False, machine=3)  # type: ignore[arg-type]
