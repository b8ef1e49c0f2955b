"""Linking handlers of XLA's FFI: the records that native code calls them by.

Program, handlers --handler_records--> an address for each host step, 0 where Python runs it
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlo.backend.entry import handler_ir
from hlo.backend.entry.layouts import Handler
from hlo.backend.ir.ir_module import IrModule
from hlo.backend.linking.installing import HandlerRecords
from hlo.backend.linking.native import address_of, shared_code
from hlo.backend.planning.program import HostStep
from hlo.errors import HloError
from hlo.process.once import once
from hlo.runtime.ffi import failing, handlers_of, waiting
from hlo.runtime.ffi_calls import MOST_BYTES


@once
def _entry() -> int:
    """The native function that calls handlers."""
    symbols = (handler_ir.CALL_HANDLER.symbol,)
    code = shared_code("handlers", lambda: IrModule(handler_ir.text(), symbols))
    return code.address(handler_ir.CALL_HANDLER.symbol)


def handler_records(steps: Sequence[HostStep]) -> HandlerRecords:
    """The records of the steps that call handlers.

    Raises HloError where a handler does not take its attributes, or has more buffers than a call
    takes.
    """
    table, keeps = np.zeros(len(steps), np.int64), []
    for step in steps:
        if step.is_handler:
            record, kept = _record(step)
            table[step.number] = record.ctypes.data
            keeps.append((record, kept))
    return HandlerRecords(table, keeps)


def _record(step: HostStep) -> tuple[np.ndarray, object]:
    handlers = handlers_of(step.instruction)
    template = handlers.template(step.instruction)
    if template is None:
        what = f"{step.instruction.name}: a call with more buffers than fit {MOST_BYTES} bytes"
        raise HloError("unsupported", what, step.instruction.span)
    wait, failed = waiting(), failing(handlers)
    record = np.zeros(Handler.words, np.int64)
    record[Handler.entry.word] = _entry()
    record[Handler.template.word] = template.memory.ctypes.data
    record[Handler.bytes.word] = template.memory.size
    for (field, count), rows in (
        ((Handler.pointers, Handler.pointer_count), template.pointers),
        ((Handler.copies, Handler.copy_count), template.copies),
        ((Handler.buffers, Handler.buffer_count), template.buffers),
    ):
        record[field.word], record[count.word] = rows.ctypes.data, len(rows)
    for field, address in zip(Handler.stages, handlers.addresses(), strict=True):
        record[field.word] = address
    record[Handler.wait.word] = address_of(wait)
    record[Handler.failed.word] = address_of(failed)
    return record, (handlers, template, failed)
