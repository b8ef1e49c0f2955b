"""Which of the processor's features code is made for."""

from hlo.backend.linking import toolchain


def test_old_encodings_of_byte_moves_are_not_used() -> None:
    """insertq waits for the upper halves of registers: one stalls a loop of vectors."""
    assert not toolchain.host_features().get("sse4a", False)
    assert "+sse4a" not in toolchain.feature_text()
    assert "sse4a" not in toolchain.host_machine().features
