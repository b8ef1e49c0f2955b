"""Copies in loops are cut where other kernels work with less, and only copies."""

from __future__ import annotations

from hlo.backend.entry import even_copies
from hlo.backend.ir.functions import Function
from tests.support.llvm_text import function_of

COPY = """define void @copy(ptr %buffers, i64 %begin, i64 %end) {
entry:
  %v1 = load ptr, ptr %buffers, align 8
  %v2 = load <32 x i16>, ptr %v1, align 1
  %v3 = getelementptr inbounds i16, ptr %v1, i64 64
  store <32 x i16> %v2, ptr %v3, align 1
  ret void
}
"""


def even(texts: list[str]) -> list[str]:
    functions = [f for f in map(function_of, texts) if isinstance(f, Function)]
    return [function.text for function in even_copies.even(functions)]


def add(lanes: int) -> str:
    return f"""define void @add(ptr %x, i64 %begin, i64 %end) {{
  %v1 = load <{lanes} x i16>, ptr %x, align 1
  %v2 = add <{lanes} x i16> %v1, %v1
  store <{lanes} x i16> %v2, ptr %x, align 1
  ret void
}}
"""


def test_copies_take_what_others_take() -> None:
    copy, other = even([COPY, add(16)])
    assert other == add(16)
    assert copy.count("load <16 x i16>") == 2
    assert copy.count("store <16 x i16>") == 2
    assert "getelementptr inbounds i16, ptr %v3, i64 16" in copy
    assert "<32 x i16>" not in copy


def test_copies_stay_whole_where_nothing_is_gained() -> None:
    assert even([COPY]) == [COPY]
    assert even([COPY, add(32)]) == [COPY, add(32)]
    assert even([COPY, add(4)]) == [COPY, add(4)]  # too many pieces
