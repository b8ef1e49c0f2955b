"""Generation: a program's modules of IR as one object file, assembly or IR text.

    IrModules, exported names, Machine --joined--> one module of LLVM --> bytes, texts

All but the exported names is the object's own, so that programs with equal kernels can be linked
together. Constants are put into the object's bytes: LLVM never reads them as text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TypeVar

import llvmlite.binding as llvm  # type: ignore[import-untyped]  # it has no types

from hlo.backend.entry import copying_ir, exact_ir, wide_ir
from hlo.backend.entry.c_call_ir import ALIGNMENT
from hlo.backend.ir.ir_module import LAPACK, IrModule
from hlo.backend.ir.procedure import Unit
from hlo.backend.linking import toolchain
from hlo.machine import Machine

T = TypeVar("T")
FORTRAN = "fortran"  # LAPACK's routines have the names that compilers of Fortran give them
TEXT_BYTES = 4096  # constants up to this size stand in the IR, and are seen in all of its forms
_MARK_BYTES = 32


def constants_text(data: bytes) -> str:
    """The global variable of all constants, for its module; empty where there are none."""
    if not data:
        return ""
    if len(data) <= TEXT_BYTES:
        body = "".join(f"\\{byte:02X}" for byte in data)
        return f'internal constant [{len(data)} x i8] c"{body}", align {ALIGNMENT}'
    mark = "".join(f"\\{byte:02X}" for byte in _mark(data))
    rest = len(data) - _MARK_BYTES
    kind = f"<{{ [{_MARK_BYTES} x i8], [{rest} x i8] }}>"
    value = f'<{{ [{_MARK_BYTES} x i8] c"{mark}", [{rest} x i8] zeroinitializer }}>'
    # Nothing is reduced: these are not the bytes that the program will have.
    return f"internal externally_initialized constant {kind} {value}, align {ALIGNMENT}"


def object_code(modules: Sequence[IrModule], exported: Sequence[str], machine: Machine) -> bytes:
    """The object file, without the bytes of long constants."""
    return _joined(modules, exported, machine, lambda target, ref: bytes(target.emit_object(ref)))


def placed(body: bytes, constants: bytes) -> bytes:
    """The object with the bytes of its constants."""
    if len(constants) <= TEXT_BYTES:
        return body
    at = body.find(_mark(constants))
    assert at >= 0, "the object has a place for its constants"
    return b"".join((body[:at], constants, body[at + len(constants) :]))


def lacking(body: bytes, machine: Machine, *, copies: bool) -> IrModule | None:
    """What an object would call of the C library, as a module of our own, with what that would call
    in turn. copies: memcpy and memset too.

    Names are looked for as they end in the table of names; one too many takes memory only.
    """
    found: IrModule | None = None
    while (names := _called(body, copies=copies)) and (not found or found.symbols != names):
        found = _defined(names, machine)
        body += object_code((found,), names, machine)
    return found


def _called(body: bytes, *, copies: bool) -> tuple[str, ...]:
    """What we have that an object names."""
    names = (*exact_ir.NAMES, *wide_ir.NAMES, *(copying_ir.NAMES if copies else ()))
    return tuple(name for name in names if any(form in body for form in _forms(name)))


def _defined(names: Sequence[str], machine: Machine) -> IrModule:
    """Functions of ours by their names."""
    unit = Unit()
    exact_ir.define(unit, [name for name in names if name in exact_ir.NAMES])
    wide_ir.define(unit, [name for name in names if name in wide_ir.NAMES])
    copied = [name for name in names if name in copying_ir.NAMES]
    copying_ir.define(unit, copied, f"i{8 * machine.address_bytes}")
    return IrModule(unit.text(), tuple(names), machine=machine)


def _forms(name: str) -> tuple[bytes, bytes]:
    """A name as it stands in an object: with a zero behind it, or in WebAssembly behind the module
    that functions come from and its length.
    """
    data = name.encode()
    return data + b"\0", b"\x03env" + bytes((len(data),)) + data


def assembly(modules: Sequence[IrModule], exported: Sequence[str], machine: Machine) -> str:
    """The target's assembly text."""
    return _joined(modules, exported, machine, lambda target, ref: str(target.emit_assembly(ref)))


def llvm_text(modules: Sequence[IrModule], exported: Sequence[str], machine: Machine) -> str:
    """The IR, behind the middle-end where it is used."""
    return _joined(modules, exported, machine, lambda _, ref: str(ref))


def _mark(data: bytes) -> bytes:
    """What stands where constants will be: no other part of an object has these bytes."""
    return hashlib.sha256(b"hlo constants" + data).digest()


def _joined(
    modules: Sequence[IrModule],
    exported: Sequence[str],
    machine: Machine,
    use: Callable[[llvm.TargetMachine, llvm.ModuleRef], T],
) -> T:
    """What `use` makes of all modules as one, with a target machine."""
    with toolchain.machine(made_for=machine, is_ahead=True) as target:
        context = llvm.create_context()
        first, *others = (toolchain.parsed(m, is_checked=False, context=context) for m in modules)
        for other in others:
            first.link_in(other)
        _own(first, frozenset(exported))
        return use(target, first)


def _own(ref: llvm.ModuleRef, exported: frozenset[str]) -> None:
    """What is defined is known inside only, and throws nothing: there is nothing to unwind."""
    for value in (*ref.functions, *ref.global_variables):
        if value.is_declaration:
            if value.name.startswith(LAPACK):
                value.name = value.name.removeprefix(LAPACK) + "_"
            continue
        if value.name not in exported and value.linkage is llvm.Linkage.external:
            value.linkage = llvm.Linkage.internal
        if value.is_function:
            value.add_function_attribute("nounwind")
