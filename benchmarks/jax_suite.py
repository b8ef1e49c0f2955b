"""JAX's own tests as a client: every program that they run on XLA:CPU, run by this package too.

    python -m benchmarks.jax_suite FOLDER lax_test.py fft_test.py ...

FOLDER: `tests` of JAX's repository at the installed release. JAX's backend is entered in one place:
what it compiles is compiled here as well, and the first run of each program is compared, with the
arguments that the test has. What differs or is refused is printed with its test, and kept as HLO
text under --keep; *rounding*: results move as far when inputs move by their last bit. One process
for each test file; JAX's tests draw cases: JAX_NUM_GENERATED_CASES.
"""

from __future__ import annotations

import argparse
import collections
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from hlo import driver
from hlo.formats.callbacks import enter_callbacks
from hlo.formats.jax_program import enter_handlers
from hlo.formats.module_text import module_of
from hlo.formats.stablehlo import message_of_mlir
from hlo.ir.module import Module
from hlo.tools.comparison.verdicts import nudged_noise

# How far apart results may be, of the largest finite one: both sides round, in orders of their own.
BOUNDS = {"float64": 1e-7, "complex128": 1e-7, "float32": 2e-3, "complex64": 2e-3,
          "float16": 2e-2, "bfloat16": 6e-2}  # fmt: skip
NUDGE_FACTOR = 8.0  # a program rounds at every step, not only at its inputs
NARROW = 0.3
FILE = "HLO_JAX_SUITE"  # the environment's name of where rows go, and texts beside it


def main() -> None:
    """Run test files, a process each, and print the table of what became of their programs."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("files", nargs="+")
    options.add_argument("--keep", type=Path, default=Path("jax_suite"))
    options.add_argument("--select", default="", help="pytest's -k")
    options.add_argument("--seconds", type=int, default=1800, help="of each file")
    chosen = options.parse_args()
    chosen.keep.mkdir(parents=True, exist_ok=True)
    for name in chosen.files:
        rows = chosen.keep / f"{Path(name).stem}.jsonl"
        rows.unlink(missing_ok=True)
        environment = {"JAX_NUM_GENERATED_CASES": "1", "JAX_ENABLE_CHECKS": "0", **os.environ}
        environment[FILE] = str(rows.resolve())
        command = [sys.executable, "-m", "pytest", "-q", "-x", "--maxfail=100000", "--tb=no"]
        command += ["-p", "benchmarks.jax_suite", "-p", "no:cacheprovider", "-p", "no:randomly"]
        command += ["-c", os.devnull, "--rootdir", str(chosen.folder), "-k", chosen.select]
        start = time.monotonic()
        try:
            subprocess.run(
                [*command, str(chosen.folder / name)],
                env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                timeout=chosen.seconds, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            print(f"{name}: stopped after {chosen.seconds} s")
        report(name, rows, time.monotonic() - start)


def report(name: str, rows: Path, seconds: float) -> None:
    """A line of counts, and a line for each program that is not as XLA's."""
    lines = rows.read_text().splitlines() if rows.exists() else []
    found = [json.loads(line) for line in lines]
    counts = collections.Counter(row["verdict"] for row in found)
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    print(f"{name:<36}{len(found):>6} programs in {seconds:.0f} s: {told or 'none'}", flush=True)
    for row in found:
        if row["verdict"] not in ("agree", "several devices", "rounding"):
            print(f"  {row['verdict']:<9} {row['text']} {row['test']}: {row['what'][:300]}")


# -- inside pytest --------------------------------------------------------------------------------


class Recorder:
    """What XLA compiles in this process, compared when it runs first."""

    def __init__(self, rows: Path) -> None:
        self._rows = rows
        self._texts = rows.with_suffix("")
        self._programs: dict[int, tuple[Any, bytes, tuple[Any, ...]]] = {}
        self._count = 0

    def install(self) -> None:
        """Stand between JAX and its backend: where it compiles, and where it runs."""
        from jax._src import compiler, pjit
        from jax._src.interpreters import pxla

        compile_program, run = compiler.backend_compile_and_load, pxla.ExecuteReplicated.__call__

        def compiled(backend: Any, module: Any, devices: Any, options: Any, callbacks: Any) -> Any:
            made = compile_program(backend, module, devices, options, callbacks)
            if backend.platform == "cpu":
                self._programs[id(made)] = made, _bytecode(module), tuple(callbacks or ())
            return made

        def called(replicated: Any, *arguments: Any) -> Any:
            known = self._programs.pop(id(replicated.xla_executable), None)
            if known is None or replicated.mut:
                return run(replicated, *arguments)
            inputs = [_copy(x) for k, x in enumerate(arguments) if k in replicated.kept_var_idx]
            tokens = len(replicated.ordered_effects)
            results = run(replicated, *arguments)
            devices = len(known[0].local_devices())
            self._judge(known, tokens, inputs, results, devices)
            return results

        compiler.backend_compile_and_load = compiled
        pxla.ExecuteReplicated.__call__ = called
        pjit._get_fastpath_data = lambda *a, **k: None

    def _judge(
        self, known: Any, tokens: int, inputs: list[Any], results: Any, devices: int
    ) -> None:
        """Run the program by this package and write a row."""
        self._count += 1
        _, bytecode, callbacks = known
        verdict, what, text = "several devices", "", ""
        if devices == 1:
            try:
                module = read(bytecode)
                text = driver.to_text(module)
                given = [*[None] * tokens, *inputs]
                made, wanted = ours(module, callbacks, given), [_copy(r) for r in results]
                what = difference(made[tokens:], wanted)
                verdict = "differs" if what else "agree"
                if what and not callbacks:
                    moved = movements(partial(rerun, module), given, made)
                    excused = not difference(made[tokens:], wanted, moved[tokens:])
                    verdict = "rounding" if excused else verdict
            except Exception as error:  # of any kind: the client's test goes on
                verdict, what = "refused", f"{type(error).__name__}: {error}"
        name = f"{self._count}.hlo" if verdict in ("differs", "refused", "rounding") else ""
        if name:
            self._texts.mkdir(exist_ok=True)
            (self._texts / name).write_text(text or "")
            (self._texts / f"{self._count}.mlir").write_bytes(bytecode)
            if arrays := [x for x in inputs if x is not None]:
                np.savez(self._texts / f"{self._count}.npz", *arrays)
        test = os.environ.get("PYTEST_CURRENT_TEST", "").split("::")[-1].split(" ")[0]
        row = {"verdict": verdict, "what": what, "test": test, "text": name}
        with self._rows.open("a") as file:
            file.write(json.dumps(row) + "\n")


def _bytecode(module: Any) -> bytes:
    held = io.BytesIO()
    module.operation.write_bytecode(held)
    return held.getvalue()


def _copy(value: Any) -> np.ndarray | None:
    """An argument before it may be donated, or a result; None for a token."""
    import jax
    from jax._src import core

    if isinstance(value, core.Token):
        return None
    if not hasattr(value, "dtype"):
        return np.asarray(value)
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    if value.dtype == jax.dtypes.float0:
        return np.zeros(value.shape, np.bool_)
    return np.array(value)


def read(bytecode: bytes) -> Module:
    """The program as a module."""
    return module_of(message_of_mlir(bytecode), "test")


def ours(module: Module, callbacks: Any, inputs: list[Any]) -> tuple[Any, ...]:
    """The program's results here."""
    enter_handlers(module)
    enter_callbacks(module, callbacks, gives_tuples=True)
    return rerun(module, *inputs)


def rerun(module: Module, *inputs: Any) -> tuple[Any, ...]:
    """The same, of a module whose functions are entered."""
    types = [p.shape.dtype.numpy for p in module.entry.parameters]
    values = [None if v is None else np.asarray(v, t) for v, t in zip(inputs, types, strict=True)]
    made = driver.compile(module)(*values)
    return made if isinstance(made, tuple) else (made,)


def movements(run: Callable[..., Any], values: Sequence[Any], made: Any) -> list[float]:
    """How far each result moves, at most and where it stays finite, with the inputs' last bits."""
    noise = nudged_noise(run, tuple(values), made)
    return [float(np.max(leaf, where=np.isfinite(leaf), initial=0.0)) for leaf in noise]


def difference(made: Any, wanted: Any, moved: Sequence[float] = ()) -> str:
    """What is not as it has to be; nothing where results agree. moved: how far results move when
    inputs move by their last bit, which they may differ besides, NUDGE_FACTOR times.
    """
    if len(made) != len(wanted):
        return f"{len(made)} results, expected {len(wanted)}"
    for number, (a, b) in enumerate(zip(made, wanted, strict=True)):
        if b is None and a is None:  # tokens
            continue
        if b is None or a is None:
            return f"result {number}: one of two is a token"
        if b.dtype.kind == "V" and b.dtype.names:  # float0
            continue
        a = np.asarray(a)
        if a.shape != b.shape or (a.dtype != b.dtype and b.dtype.itemsize != a.dtype.itemsize):
            return f"result {number}: {a.dtype}{a.shape}, expected {b.dtype}{b.shape}"
        told = _apart(a, b, NUDGE_FACTOR * moved[number] if moved else 0.0)
        if told:
            return f"result {number}, {b.dtype.name}{list(b.shape)}: {told}"
    return ""


def _apart(a: np.ndarray, b: np.ndarray, more: float) -> str:
    name = b.dtype.name
    is_inexact = b.dtype.kind in "fc" or name.startswith(("bfloat", "float"))
    if not is_inexact:
        count = int((a.view(b.dtype) != b).sum())
        return f"{count} of {b.size} differ" if count else ""
    wide = np.complex128 if b.dtype.kind == "c" else np.float64
    x, y = a.astype(wide), b.astype(wide)
    known = np.isfinite(y)
    with np.errstate(all="ignore"):
        if (np.isnan(x) != np.isnan(y)).any():
            return f"{int((np.isnan(x) != np.isnan(y)).sum())} NaNs of {b.size} elsewhere"
        if (known != np.isfinite(x)).any() or (b.dtype.kind != "c" and (x != y)[np.isinf(y)].any()):
            return "infinities elsewhere"
        bound = BOUNDS.get(name, NARROW) * max(1e-30, np.abs(y[known]).max(initial=0.0))
        bound += more
        apart = np.abs(x - y)[known].max(initial=0.0)
    return f"{apart:.3g} apart, expected {bound:.3g} at most" if apart > bound else ""


if FILE in os.environ:
    assert ml_dtypes, "NumPy knows the narrow types"
    Recorder(Path(os.environ[FILE])).install()


if __name__ == "__main__":
    main()
