"""Programs that were compiled ahead of time, driven from C: one executable of many programs.

    AheadOfTime ... --Harness--> executable --run(number, arrays)--> arrays

The harness is C (ahead_harness.c); the table of programs is written from their headers' constants.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hlo.backend.ahead.ahead_of_time import AheadOfTime
from hlo.backend.ahead.interface import Interface
from hlo.backend.linking.installing import result_shape
from hlo.ops.extents import filled_to

SOURCE = Path(__file__).with_suffix(".c")
COMPILER = "gcc"
IS_THERE = bool(shutil.which(COMPILER))
STRICT = ("-O1", "-g", "-Wall", "-Wextra", "-pedantic", "-Werror", "-std=c11")
TIMEOUT_S = 600


class Harness:
    """An executable in a folder. compiler: with its flags; launcher: what runs the executable."""

    def __init__(
        self,
        folder: Path,
        programs: Sequence[AheadOfTime],
        *,
        compiler: Sequence[str] = (COMPILER, "-fsanitize=address,undefined"),
        launcher: Sequence[str] = (),
        libraries: Sequence[str] = (),
    ) -> None:
        self.interfaces = [p.interface for p in programs]
        self.launcher = launcher
        self.file = folder / "harness"
        for made in programs:
            (folder / f"{made.name}.o").write_bytes(made.object)
            (folder / f"{made.name}.h").write_text(made.header)
        (folder / "programs.c").write_text(table(self.interfaces))
        objects = [str(folder / f"{made.name}.o") for made in programs]
        sources = [str(SOURCE), str(folder / "programs.c")]
        headers = [f"-I{SOURCE.parent}", f"-I{folder}"]
        subprocess.run(
            [*compiler, *STRICT, *headers, *sources, *objects, *libraries, "-o", str(self.file)],
            check=True,
        )

    def run(self, jobs: Sequence[tuple[int, Sequence[np.ndarray]]]) -> list[list[np.ndarray]]:
        """The outputs of programs by number; AssertionError where one gives an error."""
        found = []
        for number, (status, arrays) in zip(jobs, self.statuses(jobs), strict=True):
            assert status == 0, f"program {number[0]}: status {status}"
            found.append(arrays)
        return found

    def statuses(
        self, jobs: Sequence[tuple[int, Sequence[np.ndarray]]]
    ) -> list[tuple[int, list[np.ndarray]]]:
        """What the programs gave, and their outputs."""
        given = b"".join(
            struct.pack("<Q", number) + b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)
            for number, arrays in jobs
        )
        done = subprocess.run(
            [*self.launcher, str(self.file)],
            input=given, capture_output=True, check=False, timeout=TIMEOUT_S,
        )  # fmt: skip
        assert done.returncode == 0, (done.returncode, done.stderr.decode()[-4000:])
        found, at = [], 0
        for number, _ in jobs:
            (status,) = struct.unpack_from("<q", done.stdout, at)
            at += 8
            parts = []
            for leaf in self.interfaces[number].results:
                parts.append(done.stdout[at : at + leaf.bytes])
                at += leaf.bytes
            found.append((status, shaped(self.interfaces[number], parts)))
        return found


def shaped(made: Interface, parts: Sequence[bytes]) -> list[np.ndarray]:
    """The bytes of results as arrays, without those of tokens."""
    return [
        np.frombuffer(data, leaf.shape.dtype.numpy).reshape(leaf.shape.dims)
        for leaf, data in zip(made.results, parts, strict=True)
        if leaf.is_array
    ]


def table(interfaces: Sequence[Interface]) -> str:
    """The table of programs in C, from their headers."""
    lines = ['#include "ahead_harness.h"', *(f'#include "{i.name}.h"' for i in interfaces)]
    rows = []
    for made in interfaces:
        prefix = made.name.upper()
        for what, leaves in (("INPUT", made.arguments), ("OUTPUT", made.results)):
            sizes = ", ".join(f"{prefix}_{what}_{n}_BYTES" for n in range(len(leaves))) or "0"
            lines.append(f"static const size_t {made.name}_{what}[] = {{{sizes}}};")
        rows.append(
            f"    {{{made.name}, {prefix}_INPUTS, {prefix}_OUTPUTS, {prefix}_ARENA_BYTES, "
            f"{made.name}_INPUT, {made.name}_OUTPUT}},"
        )
        # The typed call compiles, and errors have texts.
        lines.append(f"int (*{made.name}_typed)() = (int (*)()){made.name}_call;")
        lines.append(f"const char *(*{made.name}_text)(int) = {made.name}_error_text;")
    return "\n".join([*lines, "const struct program programs[] = {", *rows, "};", ""])


def given_arrays(made: AheadOfTime, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Arguments as C gives them: arrays in the room of their bounds, then sizes."""
    leaves = made.interface.arguments
    found = [
        filled_to(np.asarray(a), leaf.shape.dims) for a, leaf in zip(arrays, leaves, strict=False)
    ]
    for leaf in leaves[len(arrays) :]:
        name, _, dimension = leaf.name.rpartition("_size_")
        number = next(n for n, other in enumerate(leaves) if other.name == name)
        found.append(np.array(np.shape(arrays[number])[int(dimension)], np.int32))
    return found


def cut_arrays(made: AheadOfTime, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Results in their sizes, without these, their dimensions in the order of the module's."""
    leaves = [leaf for leaf in made.interface.results if leaf.is_array]
    found = dict(zip((leaf.name for leaf in leaves), arrays, strict=True))
    shapes = [s for s in result_shape(made.module).leaves() if s.is_array]
    for leaf, shape in zip(leaves, shapes, strict=False):
        if shape.layout is not None:
            order = np.argsort(shape.layout.minor_to_major[::-1])
            found[leaf.name] = found[leaf.name].transpose(order)
    for leaf in leaves:
        name, is_size, dimension = leaf.name.rpartition("_size_")
        if is_size:
            whole = (np.s_[:],) * int(dimension)
            found[name] = found[name][(*whole, np.s_[: int(found.pop(leaf.name))])]
    return list(found.values())
