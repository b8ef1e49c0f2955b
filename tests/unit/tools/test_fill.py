"""fill_elided: which constants get values, and that they make sense."""

from pathlib import Path

import numpy as np
import pytest

from hlo.errors import HloErrors
from hlo.interpreter.evaluate import evaluate
from hlo.parser.parse import parse
from hlo.tools.cases.fill import fill_elided
from tests.support.command import call

GATHER = """
HloModule m

ENTRY e {
  table = f32[5,4] constant({...})
  rows = s32[30] constant({...})
  kept = s32[2] constant({7, 8})
  taken = f32[30,4] gather(table, rows), offset_dims={1}, collapsed_slice_dims={0},
    start_index_map={0}, index_vector_dim=1, slice_sizes={1,4}
  ROOT t = (f32[5,4], s32[30], s32[2], f32[30,4]) tuple(table, rows, kept, taken)
}
"""


def test_values_are_small_and_indices_in_range() -> None:
    module = parse(GATHER)
    table, rows, kept, taken = evaluate(fill_elided(module))  # type: ignore[misc]  # a tuple
    assert 0.02 < float(np.std(table)) < 0.3
    assert rows.min() >= 0
    assert rows.max() <= 4
    assert kept.tolist() == [7, 8]
    assert (taken == table[rows]).all()


def test_seed_decides_and_the_module_stays_as_it_was() -> None:
    module = parse(GATHER)
    first, again, other = (evaluate(fill_elided(module, s)) for s in (3, 3, 4))
    assert (first[0] == again[0]).all()  # type: ignore[index]  # a tuple
    assert (first[0] != other[0]).any()  # type: ignore[index]  # a tuple
    assert module.entry.instructions[0]["literal"].is_elided  # type: ignore[attr-defined]  # a Literal


def test_every_type_is_filled() -> None:
    types = ("pred", "s4", "u8", "s64", "bf16", "f8e4m3fn", "f8e8m0fnu", "f4e2m1fn", "c64", "c128")
    rows = [f"c{i} = {t}[20] constant({{...}})" for i, t in enumerate(types)]
    shapes, names = ", ".join(f"{t}[20]" for t in types), ", ".join(f"c{i}" for i in range(10))
    body = "\n".join([*rows, f"ROOT t = ({shapes}) tuple({names})"])
    values = evaluate(fill_elided(parse("HloModule m\nENTRY e {\n" + body + "\n}")))
    assert isinstance(values, tuple)
    assert [v.shape for v in values] == [(20,)] * 10
    assert np.isfinite(values[6].astype(np.float32)).all()


WRONG = "p = f32[2] parameter(0)\n c = f32[2] constant({...})\n ROOT r = f32[4] broadcast(p), "
WRONG = f"HloModule m\nENTRY e {{ {WRONG} dimensions={{3}} }}"


def test_a_module_that_does_not_verify() -> None:
    """What its constants are asked for, it cannot say."""
    with pytest.raises(HloErrors):
        fill_elided(parse(WRONG))
    whole = parse(WRONG.replace("{...}", "{1, 2}"))
    assert str(fill_elided(whole)) == str(whole)


@pytest.mark.parametrize("command", [("slice", "--from=p"), ("extract", "--name=p")])
@pytest.mark.parametrize("literal", ["{...}", "{1, 2}"])
def test_commands_refuse_it(command: tuple[str, str], literal: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.hlo"
    file.write_text(WRONG.replace("{...}", literal))
    outcome = call("hlo-opt", command[0], str(file), command[1])
    assert outcome.code == 1
    assert "error[" in outcome.err
