"""Shapes that nobody wrote, of operands with sizes that are not known (`?`) or bounded (`<=3`)."""

from __future__ import annotations

import re

import pytest

from hlo.errors import HloError
from hlo.parser.parse import parse
from hlo.printer.options import PrintOptions
from tests.support.oracle import Oracle

# The operands' shapes; the call; what XLA infers, "" where it refuses.
ROWS = (
    ("f32[1] f32[?]", "add(p0, p1)", "f32[?]{0}"),
    ("f32[<=1] f32[?]", "add(p0, p1)", "f32[?]{0}"),
    ("f32[<=1] f32[2]", "add(p0, p1)", "f32[2]{0}"),
    ("f32[2] f32[<=2]", "add(p0, p1)", "f32[<=2]{0}"),
    ("f32[0] f32[<=1]", "add(p0, p1)", "f32[0]{0}"),
    ("f32[?] f32[<=2]", "add(p0, p1)", "f32[<=2]{0}"),
    ("f32[<=1,?] f32[1,?]", "add(p0, p1)", "f32[1,?]{1,0}"),
    ("f32[<=1,4]{0,1} f32[1,4]", "add(p0, p1)", "f32[<=1,4]{0,1}"),
    ("f32[?,4]{0,1} f32[?,4]", "add(p0, p1)", "f32[?,4]{1,0}"),
    ("f32[1,?] f32[3,2]", "complex(p0, p1)", "c64[3,2]{1,0}"),
    ("f32[3] f32[?,3]", "add(p0, p1)", ""),
    ("f32[2,3] f32[?,4]", "add(p0, p1)", ""),
    ("f32[?] f32[1]", "compare(p0, p1), direction=LT", "pred[?]{0}"),
    ("pred[2] f32[?] f32[<=2]", "select(p0, p1, p2)", "f32[<=2]{0}"),
    ("pred[<=2] f32[2] f32[?]", "select(p0, p1, p2)", "f32[2]{0}"),
    ("pred[?] f32[2] f32[<=2]", "select(p0, p1, p2)", "f32[?]{0}"),
    ("pred[] f32[?,3]{0,1} f32[2,3]", "select(p0, p1, p2)", "f32[2,3]{0,1}"),
    ("f32[?]", "broadcast(p0), dimensions={}", ""),
    ("f32[2,?]", "cholesky(p0), lower=true", "f32[2,?]{1,0}"),
    ("f32[?,3]", "cholesky(p0), lower=true", "f32[?,3]{1,0}"),
    ("f32[2,3]", "cholesky(p0), lower=true", ""),
    ("f32[2,?] f32[3,3]", "triangular-solve(p0, p1), transpose_a=ADJOINT", "f32[3,3]{1,0}"),
    ("f32[?,2] f32[3,3]", "triangular-solve(p0, p1), transpose_a=ADJOINT", ""),
    ("f32[4,4] f32[3,?]", "triangular-solve(p0, p1), transpose_a=ADJOINT", "f32[3,?]{1,0}"),
    ("f32[?,3,3] f32[2,3,3]", "triangular-solve(p0, p1), transpose_a=ADJOINT", ""),
    (
        "f32[2,?] f32[3] f32[4]",
        "batch-norm-training(p0, p1, p2), epsilon=0.1, feature_index=1",
        "(f32[2,?]{1,0}, f32[?]{0}, f32[?]{0})",
    ),
    (
        "f32[2,3] f32[?] f32[<=3] f32[?] f32[3]",
        "batch-norm-inference(p0, p1, p2, p3, p4), epsilon=0.1, feature_index=1",
        "f32[2,3]{1,0}",
    ),
    (
        "f32[2,3] f32[3] f32[3] f32[3] f32[?,3]",
        "batch-norm-grad(p0, p1, p2, p3, p4), epsilon=0.1, feature_index=1",
        "(f32[2,3]{1,0}, f32[3]{0}, f32[3]{0})",
    ),
    ("f32[?]", "topk(p0), k=0, largest=true", ""),
    ("f32[]", "topk(p0), k=0, largest=true", "(f32[], s32[])"),
    ("f32[3] f32[]", "scan(p0, p1), dimensions={0}, num_carries=2, to_apply=both", ""),
    (
        "f32[<=3] f32[]",
        "scan(p0, p1), dimensions={0}, num_carries=1, to_apply=both",
        "(f32[3]{0}, f32[])",
    ),
    ("f32[?,3]", "topk(p0), k=2, largest=true", "(f32[?,2]{1,0}, s32[?,2]{1,0})"),
    ("f32[?]", "fft(p0), fft_type=RFFT, fft_length={0}", "c64[?]{0}"),
    ("f32[?]", "fft(p0), fft_type=RFFT, fft_length={5}", "c64[3]{0}"),
    ("c64[2,<=1]", "fft(p0), fft_type=IRFFT, fft_length={0}", "f32[2,<=0]{1,0}"),
    ("c64[0]", "fft(p0), fft_type=IRFFT, fft_length={0}", "f32[0]{0}"),
    ("c64[?]", "fft(p0), fft_type=IRFFT, fft_length={-1}", ""),
    ("f32[2,?] f32[3,4]", "convolution(p0, p1), dim_labels=bf_io->bf", ""),
    ("f32[2,?] f32[?,4]", "convolution(p0, p1), dim_labels=bf_io->bf", "f32[2,4]{1,0}"),
    ("f32[?,3] f32[3,4]", "convolution(p0, p1), dim_labels=bf_io->bf", "f32[?,4]{1,0}"),
    ("f32[?,3] f32[3,4]", "convolution(p0, p1), dim_labels=bf_io->bf, batch_group_count=2", ""),
    (
        "f32[2,5,3] f32[?,3,4]",
        "convolution(p0, p1), dim_labels=b0f_0io->b0f, window={size=3}",
        "",
    ),
    (
        "f32[?] s32[1,0] f32[3,0]",
        "scatter(p0, p1, p2), update_window_dims={0}, inserted_window_dims={}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=0, to_apply=add",
        "",
    ),
    (
        "f32[?] s32[1,0] f32[?,0]",
        "scatter(p0, p1, p2), update_window_dims={0}, inserted_window_dims={}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=0, to_apply=add",
        "f32[?]{0}",
    ),
)  # fmt: skip


def text_of(operands: str, call: str) -> str:
    lines = [f"p{k} = {shape} parameter({k})" for k, shape in enumerate(operands.split())]
    add = "add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT s = f32[] add(x, y) }"
    both = "both { x = f32[] parameter(0) y = f32[] parameter(1) "
    both += "ROOT t = (f32[], f32[]) tuple(x, y) }"
    return "\n".join(["HloModule m", add, both, "ENTRY e {", *lines, f"ROOT it = {call}", "}", ""])


def shape_in(printed: str) -> str:
    """The shape of the entry's root."""
    found = re.search(r"ROOT %it = (.*?) [a-z\-]+\(", printed)
    assert found, printed
    return found[1]


@pytest.mark.parametrize(("operands", "call", "expected"), ROWS)
def test_shape_that_nobody_wrote(operands: str, call: str, expected: str) -> None:
    if not expected:
        with pytest.raises(HloError, match="error"):
            parse(text_of(operands, call))
        return
    module = parse(text_of(operands, call))
    assert shape_in(module.to_text(PrintOptions.xla_default())) == expected


@pytest.mark.oracle
def test_expectations_are_the_oracles(xla: Oracle) -> None:
    wrong = []
    for operands, call, expected in ROWS:
        printed = xla.to_string(text_of(operands, call))
        if (shape_in(printed) if printed else "") != expected:
            wrong.append((operands, call, printed))
    assert not wrong
