"""Objects of ELF as one: who knows whom, and what is left out."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hlo.backend.ahead.merging import merged
from hlo.backend.ir.ir_module import IrModule
from hlo.backend.linking import toolchain
from hlo.machine import NAMED
from tests.support.ahead_harness import IS_THERE

MACHINE = NAMED["x86-64-v2"]
ONE = """@counter = hidden global i32 3
@table = internal constant [4 x i32] [i32 1, i32 2, i32 3, i32 4]
declare hidden i32 @inner(ptr)
declare i32 @abs(i32)
declare i32 @never(i32)
define i32 @outer(i32 %x) section ".text.outer" {
  %a = call i32 @inner(ptr @counter)
  %p = getelementptr i32, ptr @table, i32 %x
  %b = load i32, ptr %p
  %c = sub i32 %b, %a
  %d = call i32 @abs(i32 %c)
  ret i32 %d
}
define hidden i32 @unused(i32 %x) section ".text.unused" {
  %a = call i32 @never(i32 %x)
  ret i32 %a
}
"""
# The same name for another function of its own, and a constant that is not the first one's.
OTHER = """@table = internal constant [2 x i32] [i32 10, i32 20]
@shared = linkonce_odr hidden global i32 5
@mine = thread_local(initialexec) global i32 7
define internal i32 @helper(i32 %x) noinline section ".text.helper" {
  %p = getelementptr i32, ptr @table, i32 %x
  %a = load i32, ptr %p
  ret i32 %a
}
define hidden i32 @inner(ptr %p) section ".text.inner" {
  %x = load i32, ptr %p
  %i = sub i32 %x, 2
  %a = call i32 @helper(i32 %i)
  %b = load i32, ptr @shared
  %c = load i32, ptr @mine
  %d = add i32 %a, %b
  %e = add i32 %d, %c
  ret i32 %e
}
"""
MAIN = """int outer(int); int shared = 6;
int main(void) { return outer(3); }
"""


def objects() -> list[bytes]:
    found = []
    for text in (ONE, OTHER):
        with toolchain.machine(made_for=MACHINE, is_ahead=True) as target:
            module = toolchain.parsed(IrModule(text, (), machine=MACHINE))
            found.append(bytes(target.emit_object(module)))
    return found


def symbols(file: Path, *flags: str) -> dict[str, str]:
    done = subprocess.run(["nm", *flags, file], capture_output=True, text=True, check=True)
    return {line.split()[-1]: line.split()[-2] for line in done.stdout.splitlines()}


@pytest.mark.skipif(not IS_THERE, reason="there is no gcc")
def test_objects_as_one(tmp_path: Path) -> None:
    whole = merged(objects(), ("outer",))
    assert whole == merged(objects(), ("outer",))
    # Merging what was merged changes nothing but places.
    for body in (whole, merged([whole], ("outer",))):
        file = tmp_path / "whole.o"
        file.write_bytes(body)
        assert symbols(file, "-u") == {"abs": "U"}
        known = symbols(file, "-g")
        assert known == {"abs": "U", "outer": "T", "shared": "V"}
        names = symbols(file)
        assert "unused" not in names
        assert (names["inner"], names["counter"], names["mine"]) == ("t", "d", "d")
        (tmp_path / "main.c").write_text(MAIN)
        subprocess.run(["gcc", "main.c", "whole.o", "-o", "main"], cwd=tmp_path, check=True)
        # abs(4 - (20 + 6 + 7)), with the word of whoever links.
        assert subprocess.run([tmp_path / "main"], check=False).returncode == 29
        strict = ["ld", "-r", "--fatal-warnings", "whole.o", "-o", "again.o"]
        subprocess.run(strict, cwd=tmp_path, check=True)
