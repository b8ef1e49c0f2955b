"""MemoryReport: what a program's memory holds at the moment when it holds most."""

from __future__ import annotations

from msgspec import Struct

from hlo.errors import HloError
from hlo.process.memory import memory_error


class BufferRow(Struct, frozen=True):
    """One buffer of the arena: the instruction that made it, its HLO line and text line."""

    name: str
    shape: str
    opcode: str
    size_bytes: int
    line: str
    start: int
    end: int


class MemoryReport(Struct, frozen=True):
    """Sizes in bytes; `peak`: the arena's buffers at the fullest moment, largest first.

    spare_bytes: room for copies of arguments that do not begin a cache line. scratch_bytes: what
    kernels work in, of all threads.
    """

    arena_bytes: int
    argument_bytes: int
    result_bytes: int
    constant_bytes: int
    peak_bytes: int
    peak: tuple[BufferRow, ...]
    spare_bytes: int = 0
    scratch_bytes: int = 0

    @property
    def temporary_bytes(self) -> int:
        """What a run needs beside arguments, results and constants."""
        return self.arena_bytes + self.scratch_bytes

    @property
    def run_bytes(self) -> int:
        """What a run takes beside arguments and constants."""
        return self.temporary_bytes + self.spare_bytes + self.result_bytes

    def too_large(self) -> HloError:
        """The error for a run whose memory cannot be had."""
        size = max(self.run_bytes, 1)
        what = "the program's results and temporaries take"
        if self.peak:
            row = self.peak[0]
            what = f"the largest of the program's temporaries is {row.name} = {row.shape} "
            what += f"{row.opcode} ({row.line or 'no line'}), {row.size_bytes} bytes; a run takes"
        return memory_error(size, what)

    def __str__(self) -> str:
        rows = [
            f"arguments {self.argument_bytes:>14,} bytes",
            f"results   {self.result_bytes:>14,} bytes",
            f"constants {self.constant_bytes:>14,} bytes",
            f"arena     {self.arena_bytes:>14,} bytes, {self.peak_bytes:,} in use at the peak:",
        ]
        for row in self.peak:
            rows.append(
                f"  {row.size_bytes:>14,}  {row.name} = {row.shape} {row.opcode}  {row.line}"
            )
        if self.scratch_bytes:
            rows.append(f"scratch   {self.scratch_bytes:>14,} bytes, of all threads")
        if self.spare_bytes:
            rows.append(f"copies    {self.spare_bytes:>14,} bytes, of arguments not aligned")
        return "\n".join(rows) + "\n"
