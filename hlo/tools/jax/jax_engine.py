"""The real XLA:CPU through jaxlib, by the door to JAX, and only when asked.

XLA aborts its process on some bad
input, so a comparison runs in a child process (`run_in_child`); timing needs one process for both
sides and uses `JaxProgram` directly.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hlo.errors import HloError
from hlo.ir.graph import clone_module
from hlo.ir.module import Module
from hlo.tools.cases.arrays import load_npz
from hlo.tools.files.input_size import limited
from hlo.tools.files.npz import write_npz
from hlo.tools.files.reading import read_text, write_text
from hlo.tools.jax import jax_door

CHILD_TIMEOUT_S = 600
REFUSED = "XLA does not run this module"


class JaxProgram:
    """A module compiled by XLA:CPU; inputs and outputs are leaves, tuples flattened in order.

    Raises HloError "oracle" where XLA refuses the text.
    """

    def __init__(self, text: str) -> None:
        jax = jax_door.jax()
        jax.config.update("jax_enable_x64", True)
        jax.config.update("jax_platforms", "cpu")
        self._jax = jax
        device = jax.devices("cpu")[0]
        jax_door.private("_lapack").initialize()
        try:
            parsed = jax_door.private("hlo_module_from_text")(text)
            proto = parsed.as_serialized_hlo_module_proto()
            computation = jax_door.private("XlaComputation")(proto)
            mlir = jax_door.private("mlir").xla_computation_to_mlir_module(computation)
            devices = jax_door.private("DeviceList")((device,))
            compiled = time.perf_counter()
            self._executable = device.client.compile_and_load(
                mlir, devices, jax_door.private("CompileOptions")()
            )
        except (RuntimeError, ValueError) as refused:  # jaxlib's own errors are such
            said = " ".join(str(refused).split()) or type(refused).__name__
            raise HloError("oracle", f"{REFUSED}: {said[:600]}") from None
        self.compile_seconds = time.perf_counter() - compiled

    def place(self, arrays: Sequence[np.ndarray]) -> list[Any]:
        """The arrays on XLA's device."""
        placed = [self._jax.device_put(a) for a in arrays]
        self._jax.block_until_ready(placed)
        return placed

    def __call__(self, placed: Sequence[Any]) -> list[Any]:
        """Run once and wait; the outputs on the device."""
        outputs = self._executable.execute_sharded(list(placed))
        arrays = [a[0] for a in outputs.disassemble_into_single_device_arrays()]
        self._jax.block_until_ready(arrays)
        return arrays

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Arrays in, arrays out."""
        return [np.asarray(a) for a in self(self.place(arrays))]

    def temporary_bytes(self) -> int:
        """XLA's own statistic of temporary memory."""
        return int(self._executable.get_compiled_memory_stats().temp_size_in_bytes)


DONATING = ("input_output_alias", "buffer_donor")


def without_donation(module: Module) -> Module:
    """A copy whose arguments outlive a call, as XLA must have them that is called many times."""
    kept = clone_module(module)
    kept.attributes = {k: v for k, v in module.attributes.items() if k not in DONATING}
    return kept


def run_in_child(text: str, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Run a module's text in a spawned process; HloError "oracle" where XLA refuses or dies."""
    jax_door.check_available()
    with tempfile.TemporaryDirectory(prefix="hlo-jax-") as folder:
        program, given, made = (
            str(Path(folder, name)) for name in ("hlo", "given.npz", "made.npz")
        )
        write_text(program, text)
        _write(given, arrays)
        done = run_child("hlo.tools.jax.jax_engine", program, given, made)
        if done.returncode != 0 or not Path(made).exists():
            lines = [line for line in done.stderr.decode(errors="replace").splitlines() if line]
            said = lines[-1] if lines else f"its process ended with code {done.returncode}"
            raise HloError("oracle", f"{REFUSED}: {said[:600].removeprefix(f'{REFUSED}: ')}")
        return _read(made)


def run_child(name: str, *words: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run a module of this package in a process of its own, which gets data as standard input and
    may die. HloError "oracle" where it takes longer than CHILD_TIMEOUT_S.

    The child finds the package, which is not in the folder that it happens to run in (-P), and XLA
    is quiet.
    """
    given, own = os.environ.get("PYTHONPATH"), str(Path(__file__).parents[2])
    path = os.pathsep.join([own, given] if given else [own])
    command = [sys.executable, "-P", "-m", name, *words]
    environment = {**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "2"}
    try:
        return subprocess.run(
            command, input=data, capture_output=True, timeout=CHILD_TIMEOUT_S, check=False,
            env=environment,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        said = f"XLA took longer than {CHILD_TIMEOUT_S} s, expected an answer by then"
        raise HloError("oracle", said) from None


def _write(path: str, arrays: Sequence[np.ndarray]) -> None:
    write_npz(path, {str(number): array for number, array in enumerate(arrays)})


def _read(path: str) -> list[np.ndarray]:
    with limited(None):  # of our own making
        return list(load_npz(path).values())


def _child(program: str, given: str, made: str) -> None:
    with limited(None):
        text = read_text(program)
    try:
        outputs = JaxProgram(text).run(_read(given))
    except HloError as refused:
        sys.exit(refused.message)
    _write(made, outputs)


if __name__ == "__main__":
    _child(*sys.argv[1:])
