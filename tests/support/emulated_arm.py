"""Programs compiled for 64-bit Arm and run by QEMU, where that and a compiler for Arm's C are.

module, arguments, machine --run--> result leaves
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from msgspec.structs import replace

from hlo.backend.compilation import Compilation
from hlo.backend.entry.llvm_ir import emit
from hlo.backend.ir.ir_module import LAPACK
from hlo.backend.linking import toolchain
from hlo.backend.linking.installing import result_shape
from hlo.backend.linking.link_table import LinkTable
from hlo.ir.module import Module
from hlo.ir.shape import stored
from hlo.machine import Machine
from hlo.runtime.native_calls import flattened

DRIVER = Path(__file__).with_suffix(".c")
COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
IS_THERE = bool(shutil.which(COMPILER) and shutil.which(EMULATOR))
TIMEOUT_S = 120


@cache
def _driver() -> tuple[TemporaryDirectory[str], Path]:
    """The driver's object file, in a folder that lives as long as this process."""
    folder = TemporaryDirectory()
    path = Path(folder.name) / "driver.o"
    subprocess.run([COMPILER, "-O1", "-c", str(DRIVER), "-o", str(path)], check=True)
    return folder, path


def run(
    module: Module,
    arguments: Sequence[object],
    machine: Machine,
    mode: str = "strict",
    passes: str = "default",
) -> list[np.ndarray] | None:
    """The arrays of the result; None for a program that calls the host or LAPACK, or whose results
    lie in its arguments' memory.
    """
    if module.attributes.get("input_output_alias"):
        return None
    made = Compilation(module, passes=passes, mode=mode, threads=1, machine=machine)
    flushed = made.target.isa.float_mode if made.is_fast else None
    modules = emit(made.program, flushed=flushed, workers=1)  # The driver calls an entry.
    if made.program.hosts or any(LAPACK in m.text for m in modules):
        return None
    table = made.link_table
    objects = [toolchain.object_code(replace(m, machine=machine)) for m in modules]
    shapes = [stored(leaf) for leaf in result_shape(module).leaves()]
    results = [np.full(s.size_bytes, 0x55, np.uint8) for s in shapes]
    given = _executed(objects, b"".join(_job(table, [*flattened(tuple(arguments))], results)))
    ends = np.cumsum([r.nbytes for r in results]).tolist()
    parts = (given[end - r.nbytes : end] for end, r in zip(ends, results, strict=True))
    pairs = zip(parts, shapes, strict=True)
    return [np.frombuffer(d, s.dtype.numpy).reshape(s.dims) for d, s in pairs if s.is_array]


def _job(table: LinkTable, arguments: list[object], results: list[np.ndarray]) -> Iterator[bytes]:
    """What the driver reads."""
    layout = table.frame_layout()
    blocks = [
        *_blocks(table.constants, table.fixed, is_result=False),
        *_blocks(arguments, table.arguments, is_result=False),
        *_blocks(results, table.results, is_result=True),
    ]
    counts = (len(layout.head), len(layout.arena_slots), len(blocks))
    yield struct.pack("<5Q", layout.slots, layout.arena_bytes, *counts)
    yield struct.pack(f"<{len(layout.head)}Q", *layout.head)
    yield np.stack([layout.arena_slots, layout.arena_offsets], 1).astype("<u8").tobytes()
    yield from blocks


def _blocks(
    arrays: Sequence[object], places: Sequence[tuple[int, int]], *, is_result: bool
) -> Iterator[bytes]:
    for number, array in enumerate(arrays):
        slots = [slot for slot, held in places if held == number]
        data = b"" if array is None else np.ascontiguousarray(array).tobytes()
        head = struct.pack("<3Q", len(slots), len(data), is_result)
        yield head + data + struct.pack(f"<{len(slots)}Q", *slots)


def _executed(objects: Sequence[bytes], job: bytes) -> bytes:
    _, driver = _driver()
    with TemporaryDirectory() as name:
        folder = Path(name)
        for number, data in enumerate(objects):
            (folder / f"{number}.o").write_bytes(data)
        files = [str(folder / f"{number}.o") for number in range(len(objects))]
        program = str(folder / "program")
        link = [COMPILER, "-static", str(driver), *files, "-lm", "-o", program]
        subprocess.run(link, check=True)
        done = subprocess.run(
            [EMULATOR, "-cpu", "max", program],
            input=job, capture_output=True, check=True, timeout=TIMEOUT_S,
        )  # fmt: skip
    return done.stdout
