"""Programs for processors that nobody has here, on an emulated machine without a system.

    AheadOfTime ... --BareHarness--> kernel, image of a disc --statuses(jobs)--> statuses, arrays

Bochs (https://bochs.sourceforge.io) emulates AVX-512, AMX and the dot products of AVX-VNNI's kin,
which QEMU does not. `HLO_BOCHS` is the folder in which it was built:

    ./configure --enable-x86-64 --enable-avx --enable-evex --enable-amx --with-nogui
        --enable-handlers-chaining --enable-long-phy-address && make

Its sources of August 2026 have two errors, to be mended first: `assign_srcs` (cpu/decoder) refuses
gathers and scatters whose indices are in the upper 16 registers (after the index has its fifth bit,
that bit of vvv is to be forgotten), and `DPBDSS`, `DPBDSU` and `DPBDUS` (cpu/avx/amx.cc) take
signed bytes as unsigned. The disc is made by Debian's xorriso, isolinux and syslinux-common.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hlo.backend.ahead.ahead_of_time import AheadOfTime
from tests.support.ahead_harness import SOURCE, STRICT, shaped, table

FOLDER = Path(__file__).with_name("bare")
BOCHS = Path(os.environ.get("HLO_BOCHS", "/nowhere"))
LOADERS = (Path("/usr/lib/ISOLINUX"), Path("/usr/lib/syslinux/modules/bios"))
LOADED = ("isolinux.bin", "ldlinux.c32", "libcom32.c32", "mboot.c32")
# A machine's processor in Bochs, and what it has besides.
MODELS = {
    "alderlake": ("arrow_lake", ""),
    "arrowlake": ("arrow_lake", ""),
    "lunarlake": ("arrow_lake", ""),
    "sapphirerapids": ("sapphire_rapids", ""),
    "graniterapids": ("sapphire_rapids", "amx_fp16"),
}
MENU = "default l\nprompt 0\ntimeout 1\nlabel l\n kernel mboot.c32\n append /kernel\n"
FREE = ("-ffreestanding", "-fno-builtin", "-fno-pic", "-fno-stack-protector", "-mno-red-zone")
LOOPS = "-fno-tree-loop-distribute-patterns"  # memcpy's loop is no call of memcpy
TIMEOUT_S = 1800


def missing() -> str:
    """What is not there of what this takes, or nothing."""
    wanted = {BOCHS / "bochs": (BOCHS / "bochs").is_file()}
    wanted |= {Path(name): bool(shutil.which(name)) for name in ("gcc", "ld", "xorriso")}
    wanted |= {Path(name): any((f / name).is_file() for f in LOADERS) for name in LOADED}
    return ", ".join(str(name) for name, is_there in wanted.items() if not is_there)


class BareHarness:
    """Programs in a folder, for one machine of MODELS."""

    def __init__(self, folder: Path, programs: Sequence[AheadOfTime], machine: str) -> None:
        self.folder, self.model = folder, MODELS[machine]
        self.interfaces = [p.interface for p in programs]
        for made in programs:
            (folder / f"{made.name}.o").write_bytes(made.object)
            (folder / f"{made.name}.h").write_text(made.header)
        (folder / "programs.c").write_text(table(self.interfaces))
        headers = (f"-I{SOURCE.parent}", f"-I{folder}")
        for source in (FOLDER / "boot.S", FOLDER / "main.c", folder / "programs.c"):
            made_file = str(folder / f"{source.stem}.bare.o")
            flags = () if source.suffix == ".S" else (*STRICT, *FREE, LOOPS)
            self._run("gcc", *flags, *headers, "-c", str(source), "-o", made_file)
        self.objects = [f"{name}.bare.o" for name in ("boot", "main", "programs")]
        self.objects += [f"{made.name}.o" for made in programs]

    def statuses(
        self, jobs: Sequence[tuple[int, Sequence[np.ndarray]]]
    ) -> list[tuple[int, list[np.ndarray]]]:
        """What the programs gave, and their outputs, all in one run of the machine."""
        given = b"".join(
            struct.pack("<Q", number) + b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)
            for number, arrays in jobs
        )
        done, at, found = self._emulated(given), 0, []
        for number, _ in jobs:
            (status,) = struct.unpack_from("<q", done, at)
            at += 8
            parts = []
            for leaf in self.interfaces[number].results:
                parts.append(done[at : at + leaf.bytes])
                at += leaf.bytes
            found.append((status, shaped(self.interfaces[number], parts)))
        return found

    def _emulated(self, jobs: bytes) -> bytes:
        self._disc(jobs)
        model, features = self.model
        more = f', add_features="{features}"' if features else ""
        (self.folder / "bochsrc").write_text(
            f"""megs: 1024
cpu: model={model}, count=1, ips=100000000, reset_on_triple_fault=0{more}
romimage: file={BOCHS}/bios/BIOS-bochs-latest
vgaromimage: file={BOCHS}/bios/VGABIOS-lgpl/VGABIOS-lgpl-latest.bin
ata0-master: type=cdrom, path=disc.iso, status=inserted
boot: cdrom
port_e9_hack: enabled=1
display_library: nogui
clock: sync=none
log: bochs.log
panic: action=fatal
"""
        )
        command = [str(BOCHS / "bochs"), "-q", "-f", "bochsrc"]
        environment = {**os.environ, "BXSHARE": str(BOCHS / "bios")}
        run = subprocess.run(
            command, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL,
            capture_output=True, check=False, timeout=TIMEOUT_S,
        )  # fmt: skip
        _, begin, rest = run.stdout.partition(b"\nbegin ")
        digits, ended, _ = rest.partition(b" end\n")
        assert begin, run.stdout[-2000:]
        assert ended, rest[-200:]
        return bytes.fromhex(digits.decode())

    def _disc(self, jobs: bytes) -> None:
        """A disc that boots a kernel of the programs and their jobs."""
        (self.folder / "jobs.bin").write_bytes(jobs)
        text = ".section .rodata\n.balign 64\n.global bare_jobs, bare_jobs_end\nbare_jobs:\n"
        text += '.incbin "jobs.bin"\nbare_jobs_end:\n.section .note.GNU-stack, "", @progbits\n'
        (self.folder / "jobs.S").write_text(text)
        self._run("gcc", "-c", "jobs.S", "-o", "jobs.o")
        root = self.folder / "disc"
        root.mkdir(exist_ok=True)
        flags = ("-n", "-static", "-z", "max-page-size=4096", "--no-warn-rwx-segments")
        script = ("-T", str(FOLDER / "link.ld"))
        self._run("ld", *flags, *script, "-o", "disc/kernel", "jobs.o", *self.objects)
        for name in LOADED:
            (file,) = (f / name for f in LOADERS if (f / name).is_file())
            shutil.copy(file, root / name)
        (root / "isolinux.cfg").write_text(MENU)
        boot = ("-b", "isolinux.bin", "-c", "boot.cat", "-no-emul-boot", "-boot-load-size", "4")
        image = ("-boot-info-table", "-o", "disc.iso", "disc")
        self._run("xorriso", "-as", "mkisofs", "-quiet", *boot, *image)

    def _run(self, *command: str) -> None:
        subprocess.run(command, cwd=self.folder, check=True, capture_output=True)
