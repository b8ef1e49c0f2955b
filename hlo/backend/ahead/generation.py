"""Generation: a program's modules of IR as one object file, assembly or IR text.

    Parts, exported names, Machine --joined--> one module of LLVM --> bytes, texts

Parts for several machines are functions of one module, each with the features that it may use. All
but the exported names is the object's own, so that programs with equal kernels can be linked
together. Constants are put into the object's bytes: LLVM never reads them as text.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import llvmlite.binding as llvmlite  # type: ignore[import-untyped]  # it has no types
from msgspec import Struct
from msgspec.structs import replace

from hlo.backend.ahead.merging import merged
from hlo.backend.entry import copying_ir, float_libcalls_ir, int128_libcalls_ir
from hlo.backend.ir.grouping import expected_us
from hlo.backend.ir.ir_module import LAPACK, IrModule
from hlo.backend.ir.procedure import Unit
from hlo.backend.linking import llvm, toolchain
from hlo.backend.linking.options import CODEGEN_LEVEL
from hlo.backend.linking.workers import in_parallel
from hlo.hashing import hasher
from hlo.machine import ALIGNMENT, Machine

T = TypeVar("T")
_HEADS = re.compile(r"^(define [^@\n]*@([\w.$-]+)\(.*) \{$", re.MULTILINE)
_DATA = re.compile(r"^@([\w.$-]+) = (?!private|internal|linkonce|external )", re.MULTILINE)
# Of a module that is worth an object of its own: what each costs takes LLVM as long as 100 lines.
UNIT_LINES = 100
_MERGED = ("x86_64", "aarch64", "riscv64")


class Part(Struct, frozen=True):
    """Modules that know each other by symbols, and what others may know of them. label: behind the
    names of what is its own; features: those that its functions may use beside the machine's.
    is_small: whether little code is worth more than fast code. is_library: whether calls of it
    appear when LLVM makes code of the others.
    """

    modules: tuple[IrModule, ...]
    exported: tuple[str, ...]
    label: str = ""
    features: str = ""
    is_small: bool = False
    is_library: bool = False


_OTHER_FORMS = ("macosx", "darwin", "ios", "windows")  # systems whose objects are not of ELF
FORTRAN = "fortran"  # LAPACK's routines have the names that compilers of Fortran give them
TEXT_BYTES = 4096  # constants up to this size stand in the IR, and are seen in all of its forms
_MARK_BYTES = 32


def constants_text(data: bytes) -> str:
    """The global variable of all constants, for its module; empty where there are none."""
    if not data:
        return ""
    if len(data) <= TEXT_BYTES:
        body = "".join(f"\\{byte:02X}" for byte in data)
        return f'constant [{len(data)} x i8] c"{body}", align {ALIGNMENT}'
    mark = "".join(f"\\{byte:02X}" for byte in _mark(data))
    rest = len(data) - _MARK_BYTES
    kind = f"<{{ [{_MARK_BYTES} x i8], [{rest} x i8] }}>"
    value = f'<{{ [{_MARK_BYTES} x i8] c"{mark}", [{rest} x i8] zeroinitializer }}>'
    # Nothing is reduced: these are not the bytes that the program will have.
    return f"externally_initialized constant {kind} {value}, align {ALIGNMENT}"


def object_code(parts: Sequence[Part], exported: Sequence[str], machine: Machine) -> bytes:
    """The object file, without the bytes of long constants.

    Where objects can be merged, each module is compiled by itself, several at a time; elsewhere all
    as one.
    """
    if not _is_merged(machine):
        return _joined(parts, exported, machine, lambda target, ref: target.emit_object(ref))
    units = [(part, unit) for part in parts for unit in _units(part)]
    shared = frozenset(name for part in parts for name in part.exported).difference(exported)

    def made(number: int) -> bytes:
        part, unit = units[number]
        with toolchain.machine(_level(unit[0]), machine, is_ahead=True) as target:
            ref = _linked(part, unit, machine, llvm.Context())
            _hide(ref, _names_of(part) - set(part.exported), shared, part.label)
            return target.emit_object(ref)

    costs = [sum(map(expected_us, unit)) for _, unit in units]
    bodies = in_parallel(made, costs)
    if len(parts) == 1:
        return merged(bodies, exported)
    owners = [part for part, _ in units]
    each = [
        merged([b for b, o in zip(bodies, owners, strict=True) if o is part], part.exported)
        for part in parts
    ]
    return merged(each, exported)


def _units(part: Part) -> list[list[IrModule]]:
    """A part's modules as they are compiled: long ones each by itself, short ones with another."""
    units: list[list[IrModule]] = []
    for level in sorted({_level(m) for m in part.modules}):
        own = sorted((m for m in part.modules if _level(m) == level), key=_lines, reverse=True)
        many = [[m] for m in own if _lines(m) > UNIT_LINES] or [[]]
        many[-1] += [m for m in own if _lines(m) <= UNIT_LINES]
        units += many
    return units


def _level(module: IrModule) -> int:
    """At which code is generated: as in process, but where little of it is wanted."""
    return CODEGEN_LEVEL if module.is_small else toolchain.level_of(module)


def _lines(module: IrModule) -> int:
    return module.text.count("\n")


def extended(
    body: bytes,
    parts: Sequence[Part],
    library: Part,
    exported: Sequence[str],
    machine: Machine,
) -> bytes:
    """The object of the parts with one more, whose functions it calls."""
    if not _is_merged(machine):
        return object_code((*parts, library), exported, machine)
    more = object_code((library,), library.exported, machine)
    return merged([body, more], exported)


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
        alone = replace(library(found), is_library=False)
        body += object_code((alone,), names, machine)
    return found


def library(module: IrModule) -> Part:
    """A module of functions that LLVM's code of others calls, as a part."""
    return Part((module,), module.symbols, is_small=True, is_library=True)


def _called(body: bytes, *, copies: bool) -> tuple[str, ...]:
    """What we have that an object names."""
    names = (
        *float_libcalls_ir.NAMES,
        *int128_libcalls_ir.NAMES,
        *(copying_ir.NAMES if copies else ()),
    )
    return tuple(name for name in names if any(form in body for form in _forms(name)))


def _defined(names: Sequence[str], machine: Machine) -> IrModule:
    """Functions of ours by their names."""
    unit = Unit()
    float_libcalls_ir.define(unit, [name for name in names if name in float_libcalls_ir.NAMES])
    int128_libcalls_ir.define(unit, [name for name in names if name in int128_libcalls_ir.NAMES])
    copied = [name for name in names if name in copying_ir.NAMES]
    copying_ir.define(unit, copied, f"i{8 * machine.address_bytes}")
    return IrModule(unit.text(), tuple(names), machine=machine)


def _forms(name: str) -> tuple[bytes, bytes]:
    """A name as it stands in an object: with a zero behind it, or in WebAssembly behind the module
    that functions come from and its length.
    """
    data = name.encode()
    return data + b"\0", b"\x03env" + bytes((len(data),)) + data


def assembly(parts: Sequence[Part], exported: Sequence[str], machine: Machine) -> str:
    """The target's assembly text."""
    return _joined(parts, exported, machine, lambda target, ref: target.emit_assembly(ref))


def llvm_text(parts: Sequence[Part], exported: Sequence[str], machine: Machine) -> str:
    """The IR, behind the middle-end where it is used."""
    return _joined(parts, exported, machine, lambda _, ref: str(ref))


def _mark(data: bytes) -> bytes:
    """What stands where constants will be: no other part of an object has these bytes."""
    return hasher(b"hlo constants" + data).digest()


def _joined(
    parts: Sequence[Part],
    exported: Sequence[str],
    machine: Machine,
    use: Callable[[llvm.TargetMachine, llvm.Module], T],
) -> T:
    """What `use` makes of all parts as one module, with a target machine."""
    with toolchain.machine(made_for=machine, is_ahead=True) as target:
        context = llvm.Context()
        own = [_part(part, machine, context) for part in parts if not part.is_library]
        libraries = [_part(part, machine, context) for part in parts if part.is_library]
        first, *others = own
        for other in others:
            first.link_in(other)
        _own(first, frozenset(exported))
        _drop_unused(first, target)
        for library in libraries:
            first.link_in(library)
        _own(first, frozenset(exported))
        return use(target, first)


def _drop_unused(ref: llvm.Module, target: llvm.TargetMachine) -> None:
    """Without what nothing asks for, and equal constants once."""
    tuning = llvmlite.create_pipeline_tuning_options(speed_level=0)
    machine = ctypes.cast(target.pointer, llvmlite.ffi.LLVMTargetMachineRef)
    passes = llvmlite.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.add_constant_merge_pass()
    passes.run(_lent(ref), llvmlite.create_pass_builder(machine, tuning))


def _lent(ref: llvm.Module) -> Any:
    """llvmlite's own object of the module, which stays ours: for as long as that is there."""
    lent = llvmlite.ModuleRef(ctypes.cast(ref.pointer, llvmlite.ffi.LLVMModuleRef), None)
    lent._owned = True
    return lent


def _values(ref: llvm.Module) -> list[Any]:
    """The module's functions and global variables, while it is there."""
    lent = _lent(ref)
    return [*lent.functions, *lent.global_variables]


def _part(part: Part, machine: Machine, context: llvm.Context) -> llvm.Module:
    """A part as one module."""
    first = _linked(part, part.modules, machine, context)
    _own(first, frozenset(part.exported), part.label)
    return first


def _linked(
    part: Part, modules: Sequence[IrModule], machine: Machine, context: llvm.Context
) -> llvm.Module:
    """Some of a part's modules as one."""
    texts = [replace(m, text=_placed(m.text, part, machine)) for m in modules]
    first, *others = (toolchain.parsed(m, is_checked=False, context=context) for m in texts)
    for other in others:
        first.link_in(other)
    return first


def _placed(text: str, part: Part, machine: Machine) -> str:
    """A module's text: each function with its features, and in a section of its own where linkers
    may drop sections."""
    label = f".{part.label}" if part.label else ""
    section = f' section ".text.\\2{label}"' if _has_elf(machine) else ""
    features = f' "target-features"="{part.features}"' if part.features else ""
    size = " optsize" if part.is_small else ""
    return _HEADS.sub(rf"\1{size}{features}{section} {{", text)


def _has_elf(machine: Machine) -> bool:
    """Whether objects are of the form that has a section for each function."""
    return machine.system not in _OTHER_FORMS and not machine.architecture.startswith("wasm")


def _is_merged(machine: Machine) -> bool:
    """Whether objects are of the form that merging.py reads."""
    return _has_elf(machine) and machine.architecture in _MERGED


def _names_of(part: Part) -> set[str]:
    """The names by which a part's modules know each other."""
    texts = [module.text for module in part.modules]
    functions = {head[1] for text in texts for head in _HEADS.findall(text)}
    return functions | {name for text in texts for name in _DATA.findall(text)}


def _hide(ref: llvm.Module, own: set[str], shared: frozenset[str], label: str) -> None:
    """What a part's modules and all parts know by names is known in the object only."""
    for value in _values(ref):
        name = value.name
        if name.startswith(LAPACK) and value.is_declaration:
            value.name = name.removeprefix(LAPACK) + "_"
        if value.is_function and not value.is_declaration:
            value.add_function_attribute("nounwind")
        if value.linkage is not llvmlite.Linkage.external:
            continue
        if name in own or name in shared:
            value.visibility = "hidden"
        if name in own and label:
            value.name = f"{name}.{label}"


def _own(ref: llvm.Module, exported: frozenset[str], label: str = "") -> None:
    """What is defined is known inside only, and throws nothing: there is nothing to unwind."""
    for value in _values(ref):
        if value.is_declaration:
            if value.name.startswith(LAPACK):
                value.name = value.name.removeprefix(LAPACK) + "_"
            continue
        if value.name not in exported and value.linkage is llvmlite.Linkage.external:
            value.linkage = llvmlite.Linkage.internal
            if label:
                value.name = f"{value.name}.{label}"
        if value.is_function:
            value.add_function_attribute("nounwind")
