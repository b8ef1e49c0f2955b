"""LLVM by the functions of its library: what it makes, and what it says of what it cannot."""

from __future__ import annotations

import ctypes
import gc

import llvmlite.binding as llvmlite  # type: ignore[import-untyped]  # noqa: TID251  # compared with
import pytest

from hlo.backend.linking import llvm, toolchain
from hlo.backend.linking.options import MODEL

FUNCTION = "define i32 @{name}(i32 %a) {{\n  %b = add i32 %a, {by}\n  ret i32 %b\n}}\n"


def module(name: str = "f", by: int = 1, context: llvm.Context | None = None) -> llvm.Module:
    return llvm.Module(FUNCTION.format(name=name, by=by), context or llvm.Context())


def test_what_llvmlite_says_of_this_machine() -> None:
    toolchain.initialise()
    assert llvm.process_triple() == llvmlite.get_process_triple()
    assert llvm.processor_name() == llvmlite.get_host_cpu_name()
    assert llvm.processor_features() == dict(llvmlite.get_host_cpu_features())


@pytest.mark.parametrize("name", llvm._FUNCTIONS)
def test_functions_are_declared_as_llvmlite_does(name: str) -> None:
    """As many arguments, each as large: a pointer is one, whatever it is called. What llvmlite does
    not declare gives a number of C's, which nobody reads where there is none.
    """
    theirs = getattr(llvmlite.ffi.lib, f"LLVMPY_{name}")
    result, *arguments = llvm._FUNCTIONS[name]
    if theirs.argtypes is not None:
        assert [*map(ctypes.sizeof, arguments)] == [*map(ctypes.sizeof, theirs.argtypes)]
    if result is not None:
        assert ctypes.sizeof(result) == ctypes.sizeof(theirs.restype)


def test_code_is_what_llvmlite_makes() -> None:
    with toolchain.machine() as machine:
        made = module()
        made.set_triple(llvm.process_triple())
        made.verify()
        body = machine.emit_object(made)
        assert "f:" in machine.emit_assembly(made)
        layout = machine.data_layout()
    target = llvmlite.Target.from_triple(llvm.process_triple()).create_target_machine(
        features=toolchain.feature_text(), opt=2, jit=True, **MODEL
    )
    theirs = llvmlite.parse_assembly(FUNCTION.format(name="f", by=1))
    theirs.triple = llvm.process_triple()
    assert body == target.emit_object(theirs)
    assert layout == str(target.target_data)


@pytest.mark.parametrize("function", ["LLVMPY_ContextCreate", "LLVMPY_ParseAssembly"])
def test_an_interrupt_before_there_is_a_module_is_all_that_is_said(
    function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`-W error` makes a failure of what `__del__` raises, which Python else prints."""

    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    class Library:
        def __getattr__(self, name: str) -> object:
            return interrupted if name == function else getattr(library, name)

    library = llvm._library()
    monkeypatch.setattr(llvm, "_library", Library)
    with pytest.raises(KeyboardInterrupt):
        module()
    gc.collect()


def test_modules_of_one_context_become_one() -> None:
    context = llvm.Context()
    first, second = module("f", 1, context), module("g", 2, context)
    del context
    first.link_in(second)
    assert "@f(" in str(first)
    assert "@g(" in str(first)
    again = llvm.Context()
    one, other = module("f", 1, again), module("f", 2, again)
    with pytest.raises(RuntimeError, match="symbol multiply defined"):
        one.link_in(other)


def test_the_middle_end_runs() -> None:
    made = llvm.Module(
        "define i32 @f(i32 %a) {\n  %b = add i32 %a, 1\n  %c = sub i32 %b, 1\n  ret i32 %c\n}\n",
        llvm.Context(),
    )
    with toolchain.machine() as machine:
        made.optimise(machine, unrolls=False)
    assert "ret i32 %a" in str(made)


def test_what_is_wrong_is_said() -> None:
    toolchain.initialise()
    with pytest.raises(RuntimeError, match=r"parsing error\n.*expected"):
        llvm.Module("define i32 @f( {", llvm.Context())
    with pytest.raises(RuntimeError, match="nowhere"):
        llvm.check_triple("nowhere-at-all")
    with pytest.raises(RuntimeError, match="nowhere"):
        llvm.TargetMachine("nowhere-at-all", "", level=2, is_jit=True)
    broken = llvm.Module(
        "define i32 @f() {\nentry:\n  br label %b\nb:\n  ret i32 %c\nd:\n"
        "  %c = add i32 1, 1\n  br label %b\n}\n",
        llvm.Context(),
    )
    with pytest.raises(RuntimeError, match="does not dominate"):
        broken.verify()
