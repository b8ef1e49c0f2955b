"""Aligning: an array's own address where it begins a cache line, else that of a copy."""

from __future__ import annotations

from hlo.backend.planning.program import AlignStep


def aligned_address(name: str, source: str, spare: str, step: AlignStep) -> list[str]:
    """Lines that define %name; the source's bytes are copied to the spare where they have to be."""
    copy, there = f"{name}.copy", f"{name}.there"
    return [
        f"  %{name}.number = ptrtoint ptr {source} to i64",
        f"  %{name}.beyond = and i64 %{name}.number, {step.line_bytes - 1}",
        f"  %{name}.begins = icmp eq i64 %{name}.beyond, 0",
        f"  %{name} = select i1 %{name}.begins, ptr {source}, ptr {spare}",
        f"  br i1 %{name}.begins, label %{there}, label %{copy}",
        f"{copy}:",
        f"  call void @llvm.memcpy.p0.p0.i64(ptr {spare}, ptr {source}, i64 {step.size}, i1 false)",
        f"  br label %{there}",
        f"{there}:",
    ]
