"""The public functions, each as the first thing that a process does, on many threads at once.

python -m tests.support.first_use NAME     prints what the calls gave; they must be the same
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

THREADS = 4  # each compiles, which is most of what a case takes; a race has two
TEXT = """HloModule m, entry_computation_layout={(f32[8,8]{1,0})->f32[8]{0}}

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY e {
  p = f32[8,8]{1,0} parameter(0)
  z = f32[] constant(0)
  w = f32[8,8]{1,0} constant({...})
  d = f32[8,8]{1,0} dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  q = f32[8,8]{1,0} exponential(d), metadata={op_name="jit(f)/exp" source_line=3}
  v = f32[8,8]{1,0} sort(q), dimensions={1}, to_apply=less
  ROOT r = f32[8]{0} reduce(v, z), dimensions={1}, to_apply=sum
}
"""
LESS = """less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT l = pred[] compare(a, b), direction=LT
}

"""


def _text() -> str:
    return TEXT.replace("ENTRY", f"{LESS}ENTRY", 1)


def _parsed() -> object:
    import hlo

    return hlo.parse(_text())


def _array() -> object:
    import numpy as np

    return np.linspace(-0.5, 0.5, 64, dtype=np.float32).reshape(8, 8)


def _builder() -> object:
    import hlo

    builder = hlo.Builder("m")
    p = builder.parameter("p", hlo.parse_shape("f32[4]"))
    return str(builder.build(builder.add(p, p)))


def _filled() -> object:
    import hlo

    return str(hlo.fill_elided(hlo.parse(_text()), seed=3))


def _compiled(**options: object) -> object:
    import hlo

    made = hlo.compile(hlo.parse(_text()), **options)(_array())
    return [made.tolist(), type(made).__name__]


def _evaluated() -> object:
    import hlo

    return hlo.evaluate(hlo.parse(_text()), _array()).tolist()


def _devices() -> object:
    import hlo

    module = hlo.parse(_text())
    return [r.tolist() for r in hlo.evaluate_devices(module, [[_array()]] * 2, replicas=2)]


def _printed() -> object:
    import hlo
    from hlo.driver import to_text

    return to_text(hlo.parse(_text()), hlo.PrintOptions())


def _literal() -> object:
    import hlo

    return str(hlo.Literal.of(_array()).shape)


def _shape() -> object:
    import hlo

    return str(hlo.Shape.array(hlo.parse_shape("f32[2]").dtype, (2, 3)))


def _dlpack() -> object:
    import hlo

    return str(type(hlo.to_dlpack(_array())))


def _custom_call() -> object:
    import hlo

    name = f"t{threading.get_ident()}"
    hlo.register_custom_call(name, lambda *arrays: arrays[0])
    return "registered"


def _refused() -> object:
    import hlo

    try:
        hlo.parse(_text().replace("compare(a, b)", "compare(a, zz)"))
    except hlo.HloErrors as errors:
        return str(errors)
    return "not refused"


def _verified() -> object:
    import hlo

    try:
        hlo.verify(hlo.parse(_text().replace("f32[8]{0} reduce", "f32[9]{0} reduce")))
    except hlo.HloErrors as errors:
        return str(errors)
    return "not refused"


def _tools() -> object:
    from hlo.driver import emit_stage, lint, tokens_text

    module = _parsed()
    found = [str(w) for w in lint(module)]  # type: ignore[arg-type]  # a module
    return [found, tokens_text(_text()), emit_stage(module, "program")]  # type: ignore[arg-type]


def _of(name: str, *arguments: object) -> object:
    import hlo

    return str(getattr(hlo, name)(*arguments))


AXPY = Path(__file__).parents[2] / "examples" / "axpy.hlo"


def _hlo() -> Any:
    return __import__("hlo")


def _add_one(x: Any) -> Any:
    return x + 1


def _from_jax() -> object:
    """Without JAX, the error that says so."""
    return _told(lambda: str(_hlo().from_jax(_add_one, 1.0).entry.root.shape))


def _jitted() -> object:
    return _told(lambda: float(_hlo().jit(_add_one)(1.0)))


def _no_handler() -> object:
    return _told(lambda: _hlo().register_ffi("x", "no handler"))


def _told(call: Callable[[], object]) -> object:
    try:
        return call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _limits() -> object:
    from hlo.backend.profiling.limits import Limits

    return Limits(1, 1e10, 1e10, 1e11)


CASES: dict[str, Callable[[], object]] = {
    "Builder": _builder,
    "Dynamic": lambda: _of("Dynamic", _array(), {0: 8}),
    "HloError": lambda: _of("HloError", "code", "message"),
    "HloErrors": _refused,
    "HostChannel": lambda: type(__import__("hlo").HostChannel()).__name__,
    "Literal": _literal,
    "PrintOptions": _printed,
    "Shape": _shape,
    "compile": _compiled,
    "compile-again": lambda: _compiled(threads=2, cache=False),
    "cost": lambda: _hlo().cost(_parsed(), _limits()),
    "clone_module": lambda: str(_hlo().clone_module(_parsed())),
    "compare": lambda: _hlo().compare(_parsed(), _array()).verdict,
    "lint": lambda: _hlo().lint(_parsed()),
    "memory": lambda: _hlo().memory(_parsed()).peak_bytes,
    "nans": lambda: _hlo().nans(_parsed(), _array()),
    "profile": lambda: len(_hlo().profile(_parsed(), _array()).rows) > 0,
    "diff": lambda: __import__("hlo").diff(_parsed(), _parsed()),
    "evaluate": _evaluated,
    "evaluate_devices": _devices,
    "fill_elided": _filled,
    "optimize": lambda: str(__import__("hlo").optimize(_parsed())),
    "parse": lambda: str(_parsed()),
    "parse_shape": lambda: _of("parse_shape", "(f32[2,3]{0,1}, s32[])"),
    "print_module": lambda: _of("print_module", _parsed()),
    "register_custom_call": _custom_call,
    "bind": lambda: __import__("hlo").bind(_parsed(), {}),
    "query": lambda: __import__("hlo").query(_parsed(), "add where rank == 0"),
    "stats": lambda: __import__("hlo").stats(_parsed()),
    "to_dlpack": _dlpack,
    "verify": _verified,
    "from_jax": _from_jax,
    "jit": _jitted,
    "read": lambda: str(_hlo().read(str(AXPY))),
    "register_ffi": _no_handler,
    "compile_ahead": lambda: len(_hlo().compile_ahead(_parsed()).object),
    "write": lambda: len(_hlo().write(_hlo().read(str(AXPY)), "pb")),
    "tools": _tools,
}


def together(call: Callable[[], object], threads: int = THREADS) -> list[str]:
    """What the call gave on each of so many threads that start it at the same time."""
    barrier = threading.Barrier(threads)
    found: list[str] = []

    def run() -> None:
        barrier.wait()
        try:
            found.append(repr(call()))
        except BaseException as error:
            found.append(f"{type(error).__name__}: {error}")

    workers = [threading.Thread(target=run) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return found


if __name__ == "__main__":
    sys.setswitchinterval(1e-6)
    sys.stdout.write("\n".join(sorted(set(together(CASES[sys.argv[1]])))))
