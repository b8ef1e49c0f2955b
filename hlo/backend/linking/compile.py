"""Code generation: modules of IR to object code, from the caches where it is already there.

    IrModule ... --objects--> object file ...

Kernels are vector IR and see no middle-end; LLVM generates code at level 2, on all processors.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

from hlo import cache as disk
from hlo.backend.ir.ir_module import IrModule
from hlo.backend.linking.compilation_cache import sources_digest
from hlo.backend.linking.identity import identity
from hlo.backend.linking.workers import Workers
from hlo.process.once import lock

# Folders of this package with all that writes the process's own functions.
OWN_ROOMS = (
    "backend", "backend/entry", "backend/ir", "backend/isa", "backend/linking", "backend/planning",
    "ir", "process", "runtime",
)  # fmt: skip
REMEMBERED_BYTES = 64 * 1024 * 1024

_memory: OrderedDict[str, bytes] = OrderedDict()
_lock = lock()  # programs may be compiled on several threads


def objects(
    modules: Sequence[IrModule], *, cache: bool = True, workers: Workers | None = None
) -> list[bytes]:
    """One object file per module. cache: use this process's memory of objects and the disk's, which
    library functions always come from. workers: who make others besides, which are made then, too.
    """
    names = [_name(m) if cache or m.is_library else str(n) for n, m in enumerate(modules)]
    kept = {n for n, m in zip(names, modules, strict=True) if cache or m.is_library}
    found = {name: _cached_object(name) for name in kept}
    missing = {n: m for n, m in zip(names, modules, strict=True) if found.get(n) is None}
    made = generated(list(missing.values()), workers) if missing or workers else []
    for name, body in zip(missing, made, strict=True):
        found[name] = body
        if name in kept:
            disk.store(name, body)
            _remember(name, body)
    return [found[name] or b"" for name in names]


def _name(module: IrModule) -> str:
    machine = module.machine.identity if module.machine else ""
    facts = (str(module.optimised), str(module.is_glue), machine, module.text)
    return disk.key(identity(), *facts)


def own_object(name: str, made: Callable[[], IrModule]) -> bytes:
    """The object file of a module that is the same for all programs. It is kept under its name and
    the sources that write it, so that a second process does not wait for its text.
    """
    key = disk.key(identity(), sources_digest(*OWN_ROOMS), name)
    body = _cached_object(key)
    if body is None:
        (body,) = generated([made()])
        disk.store(key, body)
        _remember(key, body)
    return body


def generated(modules: Sequence[IrModule], workers: Workers | None = None) -> list[bytes]:
    """One object file per module, from LLVM: its library is loaded at the first."""
    from hlo.backend.linking import toolchain

    return toolchain.object_codes(modules, workers)


def _cached_object(name: str) -> bytes | None:
    with _lock:
        body = _memory.get(name)
        if body is not None:
            _memory.move_to_end(name)
            return body
    body = disk.load(name)
    if body is not None:
        _remember(name, body)
    return body


def _remember(name: str, body: bytes) -> None:
    with _lock:
        _memory[name] = body
        while sum(map(len, _memory.values())) > REMEMBERED_BYTES and len(_memory) > 1:
            _memory.popitem(last=False)
