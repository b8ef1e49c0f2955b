"""The op table and tests/ops name the same opcodes."""

from hlo.ops.table import OPS
from tests.support.op_files import OPS_FOLDER


def test_every_opcode_has_a_file_and_every_file_an_opcode() -> None:
    assert {f.stem for f in OPS_FOLDER.glob("*.hlo")} == set(OPS)
