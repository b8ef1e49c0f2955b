"""The loader of object files: code, constants, variables, calls near and far, what it refuses."""

from __future__ import annotations

import ctypes
import gc

import numpy as np
import pytest

from hlo.backend.entry.llvm_ir import IrModule
from hlo.backend.linking import elf, toolchain
from hlo.backend.linking.jit import Engine, address_of
from tests.support.memory_map import allowed

pytestmark = pytest.mark.skipif(not elf.is_supported(), reason="x86-64 Linux")

CONSTANTS = """
@table = private constant [4 x i64] [i64 3, i64 5, i64 7, i64 11], align 8
@entries = internal constant [2 x ptr] [ptr @one, ptr @two], align 8
@count = global i64 40
@room = internal global [8192 x i8] zeroinitializer, align 64
declare i64 @labs(i64)
declare i64 @other(i64)

define i64 @one(i64 %x) {
  %at = getelementptr i64, ptr @table, i64 %x
  %v = load i64, ptr %at
  ret i64 %v
}
define i64 @two(i64 %x) {
  %v = call i64 @labs(i64 %x)
  ret i64 %v
}
define i64 @through(i64 %n, i64 %x) {
  %at = getelementptr ptr, ptr @entries, i64 %n
  %f = load ptr, ptr %at
  %v = call i64 %f(i64 %x)
  ret i64 %v
}
define i64 @counted() {
  %old = load i64, ptr @count
  %new = add i64 %old, 1
  store i64 %new, ptr @count
  %far = getelementptr i8, ptr @room, i64 8000
  store i64 %new, ptr %far
  ret i64 %new
}
define i64 @twice(i64 %x) {
  %a = call i64 @other(i64 %x)
  ret i64 %a
}
define ptr @address() {
  ret ptr @other
}
define double @scaled(double %x) {
  %y = fmul double %x, 1.25
  ret double %y
}
"""
OTHER = "define i64 @other(i64 %x) {\n  %y = mul i64 %x, 2\n  ret i64 %y\n}\n"


def image(*texts: str, is_glue: bool = False) -> elf.Image:
    bodies = [toolchain.object_code(IrModule(text, (), is_glue=is_glue)) for text in texts]
    return elf.Image(bodies, address_of)


def call(linked: elf.Image, name: str, *arguments: int) -> int:
    types = [ctypes.c_int64] * len(arguments)
    return int(ctypes.CFUNCTYPE(ctypes.c_int64, *types)(linked.address(name))(*arguments))


@pytest.mark.parametrize("is_glue", [False, True])
def test_code_constants_variables_and_calls(*, is_glue: bool) -> None:
    linked = image(CONSTANTS, OTHER, is_glue=is_glue)
    assert [call(linked, "one", n) for n in range(4)] == [3, 5, 7, 11]
    assert call(linked, "through", 0, 2) == 7
    assert call(linked, "through", 1, -9) == 9
    assert [call(linked, "counted"), call(linked, "counted")] == [41, 42]
    assert ctypes.c_int64.from_address(linked.address("count")).value == 42
    assert call(linked, "twice", 21) == 42
    assert call(linked, "address") == linked.address("other")
    scaled = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(linked.address("scaled"))
    assert scaled(4.0) == 5.0


def test_code_is_not_writable_and_variables_do_not_run() -> None:
    linked = image(CONSTANTS, OTHER)
    assert allowed(linked.address("one")) == "r-x"
    assert allowed(linked.address("count")) == "rw-"
    linked.seal()
    assert call(linked, "one", 2) == 7
    assert allowed(linked.address("count")) == "r--"


def test_memory_is_given_back() -> None:
    linked = image(OTHER)
    assert allowed(linked.base) == "r-x"
    ended = linked._end
    del linked
    gc.collect()
    assert not ended.alive


def test_unknown_functions_are_named() -> None:
    with pytest.raises(OSError, match="no_such_function"):
        image("declare i64 @no_such_function()\ndefine i64 @f() {\n"
              "  %x = call i64 @no_such_function()\n  ret i64 %x\n}\n")  # fmt: skip


def test_relocations_of_an_unknown_kind_and_too_far_are_refused() -> None:
    body = toolchain.object_code(IrModule(CONSTANTS, ()))
    read = elf.ObjectFile(body)
    section = next(s for s in read.sections if s.type == elf.RELA and s.size)
    rows = np.frombuffer(body, elf.RELOCATION, section.size // elf.RELOCATION.itemsize,
                         section.offset).copy()  # fmt: skip
    other = toolchain.object_code(IrModule(OTHER, ()))
    fields = {"kind": (99, "relocation 99"), "addend": (1 << 40, "beyond 32 bits")}
    for field, (value, said) in fields.items():
        changed = rows.copy()
        changed[field] = value
        end = section.offset + section.size
        with pytest.raises(ValueError, match=said):
            elf.Image([body[: section.offset] + changed.tobytes() + body[end:], other], address_of)


def test_engine_loads_objects_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other systems use, with the code model that it needs."""
    monkeypatch.setattr(toolchain, "MODEL", {})
    monkeypatch.setattr(toolchain, "_machines", {})
    linked = Engine([toolchain.object_code(IrModule(OTHER, ()))])
    double = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(linked.address("other"))
    assert double(21) == 42
