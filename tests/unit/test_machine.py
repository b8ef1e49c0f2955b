"""Machines: descriptions are found by features and by names."""

import pytest

from hlo.errors import HloError
from hlo.ir import dtype as dt
from hlo.machine import NAMED, described, named


@pytest.mark.parametrize("machine", NAMED.values(), ids=lambda m: m.name)
def test_a_machine_is_found_by_its_own_features(machine) -> None:  # type: ignore[no-untyped-def]
    found = described(machine.triple, machine.features)
    assert found == machine
    more = described(machine.triple, machine.features | {"sha", "x-that-nobody-knows"})
    assert more.name == machine.name
    assert "sha" in more.features


def test_a_hidden_feature_that_vectors_do_not_need_hides_no_vectors() -> None:
    level = NAMED["x86-64-v3"]
    assert described(level.triple, level.features - {"movbe", "bmi2"}).name == "x86-64-v3"
    assert described(level.triple, level.features - {"fma"}).vector_bytes == 16


def test_another_architecture_is_another_machine() -> None:
    assert described("aarch64-apple-darwin23", NAMED["armv8-a"].features).name == "armv8-a"
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
