"""The call of a handler of XLA's FFI as LLVM IR: a call frame made of its template, on the stack.

    hlo_call_handler(Handler, row) -> 0, or HANDLER: its error is told to Python

The template is constant; what a call fills in are pointers within it and the addresses of buffers,
which stand in the row. The handler runs stage by stage; a future that it leaves is waited for.
"""

from __future__ import annotations

from hlo.backend.entry.layouts import CallFrame, Handler
from hlo.backend.entry.process import HANDLER
from hlo.backend.ir.interface import MEMCPY, NULL, prototype
from hlo.backend.ir.procedure import Procedure, Unit
from hlo.backend.ir.words import Word
from hlo.runtime.ffi_calls import EXECUTE_STAGE, MOST_BYTES

CALL_HANDLER = prototype("i32", "hlo_call_handler", "ptr", "ptr")


def text() -> str:
    """The function."""
    unit = Unit()
    unit.define(CALL_HANDLER, _call_handler)
    return unit.text()


def called(p: Procedure, handlers: Word, number: int, row: Word) -> Word:
    """The status of a program's call of one of its handlers, on the addresses of a row."""
    handler = handlers.get("ptr", number)
    return p.call_address("i32", handler.load(Handler.entry), handler, row)


def _call_handler(p: Procedure, handler: Word, row: Word) -> None:
    frame = p.stack(f"[{MOST_BYTES} x i8]", 16)
    failed = p.join("ptr")
    _fill(p, handler, row, frame)
    arguments, results = frame.load(CallFrame.arguments), frame.load(CallFrame.results)
    for stage, field in enumerate(Handler.stages, 1):
        is_run = stage == EXECUTE_STAGE
        function = handler.load(field)
        with p.when(function.ne(NULL)):
            frame.store(CallFrame.stage, p.word(stage, "i32"))
            frame.store(CallFrame.arguments, arguments if is_run else 0)
            frame.store(CallFrame.results, results if is_run else 0)
            error = p.call_address("ptr", function, frame)
            failed.go_if(error.ne(NULL), error)
            future = frame.load(CallFrame.future)
            with p.when(future.ne(NULL)):
                frame.store(CallFrame.future, NULL)
                late = p.call_address("ptr", handler.load(Handler.wait), future)
                failed.go_if(late.ne(NULL), late)
    p.ret(p.word(0, "i32"))
    failed.here()
    (error,) = failed.words
    p.call_address("void", handler.load(Handler.failed), error)
    p.ret(p.word(HANDLER, "i32"))


def _fill(p: Procedure, handler: Word, row: Word, frame: Word) -> None:
    """The frame of this call: the template, pointers within it, what results begin with, and the
    addresses of buffers.
    """
    p.call(MEMCPY, frame, handler.load(Handler.template), handler.load(Handler.bytes), 0)
    pointers, buffers = handler.load(Handler.pointers), handler.load(Handler.buffers)
    with p.counted(handler.load(Handler.pointer_count)) as k:
        pair = pointers.item("[2 x i64]", k)
        frame.item("i8", pair.get("i64")).put(frame.item("i8", pair.get("i64", 1)))
    copies = handler.load(Handler.copies)
    with p.counted(handler.load(Handler.copy_count)) as k:
        copy = copies.item("[3 x i64]", k)
        target, source = row.get("ptr", copy.get("i64")), row.get("ptr", copy.get("i64", 1))
        p.call(MEMCPY, target, source, copy.get("i64", 2), 0)
    with p.counted(handler.load(Handler.buffer_count)) as k:
        pair = buffers.item("[2 x i64]", k)
        frame.item("i8", pair.get("i64")).put(row.get("ptr", pair.get("i64", 1)))
