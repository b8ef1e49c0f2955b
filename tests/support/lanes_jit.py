"""Lane code under test: IR emitted for one vector, put in a loop, compiled and called on arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import lru_cache

import llvmlite.binding as llvm  # noqa: TID251  # compiles lane code outside of the backend
import numpy as np

from hlo.backend.ir.functions import Function
from hlo.backend.ir.records import Arithmetic
from hlo.backend.ir.writer import Value, Writer, scalar_of, vector_of
from hlo.backend.isa.target import Target
from hlo.backend.linking.toolchain import host_machine
from hlo.machine import described

Body = Callable[[Writer, Target, list[Value]], list[Value]]
_NUMPY = {
    "float": np.float32, "double": np.float64, "i8": np.uint8, "i16": np.uint16,
    "i32": np.uint32, "i64": np.uint64, "i1": np.uint8,
}  # fmt: skip
_alive: list[object] = []


def plain_target() -> Target:
    """The same machine without AVX-512, as far as emitters know."""
    host = host_machine()
    kept = {f for f in host.features if not f.startswith("avx512") and f != "f16c"}
    return Target(described(host.triple, frozenset(kept)))


def lanes_function(
    body: Body, operands: Sequence[str], results: Sequence[str], *, lanes: int, target: Target
) -> Callable[..., list[np.ndarray]]:
    """A function from arrays (scalar types `operands`) to arrays; lengths a multiple of `lanes`."""
    text = _text(body, operands, results, lanes=lanes, target=target)
    address = compile_text(text, "test")
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(address)

    def run(*arrays: np.ndarray) -> list[np.ndarray]:
        count = len(arrays[0])
        padded = -(-count // lanes) * lanes
        inputs = []
        for array, scalar in zip(arrays, operands, strict=True):
            stored = np.zeros(padded, _NUMPY[scalar])
            stored[:count] = np.ascontiguousarray(array).view(_NUMPY[scalar])
            inputs.append(stored)
        outputs = [np.zeros(padded, _NUMPY[scalar]) for scalar in results]
        table = (ctypes.c_void_p * (len(inputs) + len(outputs)))(
            *(a.ctypes.data for a in (*inputs, *outputs))
        )
        call(ctypes.addressof(table), padded // lanes)
        return [output[:count] for output in outputs]

    return run


def compile_text(text: str, symbol: str) -> int:
    """The address of a function of a module given as text."""
    return compile_texts(text, [symbol])[0]


def compile_texts(text: str, symbols: Sequence[str]) -> list[int]:
    """The addresses of functions of a module given as text."""
    engine = _engine(text)
    return [engine.get_function_address(symbol) for symbol in symbols]


@lru_cache(maxsize=256)
def _engine(text: str) -> llvm.ExecutionEngine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(text)
    module.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2
    )
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    _alive.append(engine)
    return engine


COUNT = Value("%n", "i64")


def module_text(w: Writer, body: str) -> str:
    return "\n".join([*w.declarations.values(), *(x.text for x in w.globals.values()), body])


def _text(
    body: Body, operands: Sequence[str], results: Sequence[str], *, lanes: int, target: Target
) -> str:
    w = Writer()
    i, following, more = Value("%i", "i64"), Value("%next", "i64"), Value("%more", "i1")
    w.branch("loop")
    w.label("loop")
    w.phi("i64", (w.int(0), "0"), (following, "latch"), name=i.text)
    start = w.binary("mul", i, w.int(lanes))
    loaded = []
    for k, scalar in enumerate(operands):
        loaded.append(_load(w, _base(w, k), start, scalar, lanes))
    values = body(w, target, loaded)
    for k, (value, scalar) in enumerate(zip(values, results, strict=True)):
        _store(w, value, _base(w, len(operands) + k), start, scalar)
    w.branch("latch")
    w.label("latch")
    w.append(Arithmetic("%next", "i64", "add", (i, w.int(1))))
    w.append(Arithmetic("%more", "i1", "icmp slt", (following, COUNT)))
    w.branch_if(more, "loop", "done")
    w.label("done")
    w.ret()
    function = Function(
        parameters=(Value("%buffers", "ptr"), COUNT), records=w.records, symbol="test"
    )
    return module_text(w, function.text)


def _base(w: Writer, k: int) -> Value:
    slot = w.address(Value("%buffers", "ptr"), w.int(k), "ptr")
    return w.load(slot, "ptr", 8)


def _load(w: Writer, base: Value, start: Value, scalar: str, lanes: int) -> Value:
    stored = "i8" if scalar == "i1" else scalar
    value = w.load(w.address(base, start, stored), vector_of(stored, lanes))
    return w.cast("trunc", value, vector_of("i1", lanes)) if scalar == "i1" else value


def _store(w: Writer, value: Value, base: Value, start: Value, scalar: str) -> None:
    assert scalar_of(value.type) == scalar, f"{value.typed} is not {scalar}"
    if scalar == "i1":
        value = w.cast("zext", value, vector_of("i8", value.lanes))
    w.store(value, w.address(base, start, scalar_of(value.type)))
