"""Modules of kernels: a group of them, and what they need beside them, as LLVM's text."""

from __future__ import annotations

from msgspec.structs import replace

from hlo.backend.ir.definitions import Definitions
from hlo.backend.ir.ir_module import IrModule
from hlo.backend.ir.kernel import Kernel, is_straight


def kernel_module(
    group: dict[str, Kernel], *, optimised: bool = False, is_glue: bool = False
) -> IrModule:
    """The kernels of a group and what they need beside them, once each."""
    together = Definitions()
    for name, kernel in group.items():
        together.place(name, kernel)
    together.drop_declared(group)
    orders: list[str] = []
    if optimised:
        from hlo.backend.entry.byte_orders import hide

        orders = [x.text for x in hide(together)]
    text = "\n".join([*orders, *together.lines(), ""])
    return IrModule(text, tuple(group), optimised, is_glue)


def library_module(named: tuple[str, Kernel]) -> IrModule:
    """A function that programs of a process share, by its name, as a module."""
    return replace(kernel_module(dict([named])), is_library=True)


def module_alone(name: str, kernel: Kernel, *, is_brief: bool = False) -> IrModule:
    """A kernel as a module of its own, compiled as it is in a program that runs here. is_brief: as
    one that takes little of a run (planning/brevity.py).
    """
    group = {name: kernel}
    is_glue = bool(plain_code(group, frozenset(group) if is_brief else frozenset()))
    return kernel_module(group, optimised=kernel.needs_middle_end, is_glue=is_glue)


def plain_code(kernels: dict[str, Kernel], brief: frozenset[str] | None) -> dict[str, Kernel]:
    """The kernels that plain code serves. brief: those that take little of a run, of code that is
    wanted soon: a few lines that run once are among them too. None: code is for a file.
    """
    return {
        name: kernel
        for name, kernel in kernels.items()
        if not kernel.needs_middle_end
        and (kernel.is_glue or (brief is not None and (name in brief or is_straight(kernel))))
    }
