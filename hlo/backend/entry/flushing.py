"""Flushing: a run in which denormals are zeros, and the caller's floating-point mode after it."""

from __future__ import annotations

FLUSH_BITS = 0x8040  # MXCSR: flush results to zero, denormals are zeros
CALLED = ("llvm.x86.sse.stmxcsr", "llvm.x86.sse.ldmxcsr")


def around(run: str) -> list[str]:
    """The body of a function that runs another of a frame in this mode and gives its status."""
    return [
        "  %old = alloca i32",
        "  %new = alloca i32",
        "  call void @llvm.x86.sse.stmxcsr(ptr %old)",
        "  %bits = load i32, ptr %old",
        f"  %flush = or i32 %bits, {FLUSH_BITS}",
        "  store i32 %flush, ptr %new",
        "  call void @llvm.x86.sse.ldmxcsr(ptr %new)",
        f"  %status = call i32 @{run}(ptr %frame)",
        "  call void @llvm.x86.sse.ldmxcsr(ptr %old)",
        "  ret i32 %status",
    ]
