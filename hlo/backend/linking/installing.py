"""Installing: object code and its link table to an executable of this process.

    LinkTable, objects, module's signature --link--> Executable
    module, key --cached_program--> Executable, where an earlier compilation was kept

Imports none of the stages that make code, so that a kept program costs little more than its parse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from hlo.backend.ir.ir_module import ENTRY, FILL
from hlo.backend.linking import call_record as linking
from hlo.backend.linking import compilation_cache, native
from hlo.backend.linking.identity import identity
from hlo.backend.linking.jit import Code
from hlo.backend.linking.link_table import LinkTable
from hlo.backend.planning.team import Team
from hlo.ir.module import Module
from hlo.ir.shape import ProgramShape, Shape
from hlo.machine import Machine
from hlo.ops.custom_targets import REGISTERED
from hlo.runtime.executable import Executable, Host
from hlo.runtime.native_calls import Signature
from hlo.runtime.threads import thread_count

# Programs from this estimate on are not tried: what they work on is in no core's cache.
UNTRIED_US = 2_000.0


class HandlerRecords(Struct, frozen=True):
    """What the code calls handlers of XLA's FFI by. table: the records' addresses by host step, 0
    where Python runs it. keeps: what they point at.
    """

    table: np.ndarray
    keeps: object


def program_key(
    module: Module,
    *,
    passes: str = "default",
    mode: str = "strict",
    threads: int | None = None,
    machine: Machine | None = None,
) -> str:
    """The name under which what this module compiles to is kept on disk, before any pass runs."""
    made_for = machine.identity if machine else ""
    options = (passes, mode, str(thread_count(threads)), made_for, identity())
    # their targets have no kernels
    return compilation_cache.key(module, *options, *sorted(REGISTERED))


def cached_program(module: Module, key: str) -> Executable | None:
    """The executable of the compilation that was kept under this key, in any process."""
    found = compilation_cache.load(key)
    return None if found is None else link(module, found.table, found.bodies)


def link(
    module: Module,
    table: LinkTable,
    bodies: Sequence[bytes],
    host: Host | None = None,
    counters: np.ndarray | None = None,
    result: Shape | None = None,
    handlers: HandlerRecords | None = None,
    labels: Mapping[str, str] | None = None,
) -> Executable:
    """The executable: code in this process, constants, memory. counters: a timed program's.

    host: for steps in Python; handlers: of XLA's FFI, which the code calls.
    labels: what profilers call its functions, by symbol.

    result: the shape and layouts of what callers get; the header's if not given.
    """
    shape = result or result_shape(module)
    signature = Signature(module.entry.parameters, shape, _donated_leaves(module))
    pool = native.pool() if table.team is Team.WOKEN else None
    if pool is not None:
        pool.grow(table.threads)
    if table.team is Team.AWAKE:
        native.runs().share(table.threads)
    if table.watched:
        native.runs()  # its code calls them
    code = Code(bodies, labels)
    code.run_once(FILL)
    entry, calls = code.find(ENTRY), None
    if not entry:
        entry, calls = native.runs().run_listed, _listed_calls(table, code)
    records = 0 if handlers is None else handlers.table.ctypes.data
    layout = table.frame_layout(counters, records, calls)
    call = native.native_call()
    fast = None
    if call is not None:
        waker = 0 if pool is None else pool.waker
        fast = linking.fast_call(
            call, signature, layout, entry, table.cost_us, waker=waker, watched=table.watched,
            tries=_is_tried(table),
        )  # fmt: skip
    return Executable(
        signature,
        layout,
        entry,
        memory=table.memory,
        host=host,
        fast_call=fast,
        stops=native.runs().enter if table.watched else None,
        keeps=(code, table, counters, handlers, calls),
    )


def _is_tried(table: LinkTable) -> bool:
    """Whether runs show who best runs the program's loops."""
    return table.team is not Team.ALONE and table.cost_us < UNTRIED_US


def _listed_calls(table: LinkTable, code: Code) -> np.ndarray:
    """The calls of a listed program as the process's own function reads them (ListedCall)."""
    words = [len(table.calls)]
    for symbol, slot, units in table.calls:
        words += (code.address(symbol), slot, units)
    return np.array(words, np.uint64)


def _donated_leaves(module: Module) -> dict[int, int]:
    """Result leaf -> argument leaf, of programs whose header names any."""
    if not module.attributes.get("input_output_alias"):
        return {}
    from hlo.backend.planning import donation

    return donation.donated_leaves(module)


def result_shape(module: Module) -> Shape:
    """The entry's result with the layouts that the header asks for."""
    layout = module.attributes.get("entry_computation_layout")
    if isinstance(layout, ProgramShape):
        return layout.result
    return module.entry.root.shape.without_layout()
