"""The oracle: jaxlib 0.10.2's HLO parser and printer, in a child process that may abort.

With `devices`, also XLA:CPU on several devices of that process.

The only file of the tests that knows jaxlib's private names.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import pickle
import struct
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

VERSION = "0.10.2"
ABORTED = "aborted"  # the answer for who died of the question
FORMS = ("default", "short_parsable", "canonical", "fingerprint")


@functools.cache
def available() -> bool:
    """Whether the exact version that decides is installed."""
    try:
        return importlib.metadata.version("jaxlib") == VERSION
    except importlib.metadata.PackageNotFoundError:
        return False


@dataclass(frozen=True)
class Verdict:
    """What XLA's parser says: accepted, or its message; `aborted`: the process died."""

    accepted: bool
    message: str = ""
    aborted: bool = False


class Oracle:
    """A server process, started when first asked. It goes on after each abort (`_serve`)."""

    def __init__(self, devices: int = 1) -> None:
        self._devices = devices
        self._process: subprocess.Popen[bytes] | None = None
        self.aborts = 0

    def verdict(self, text: str) -> Verdict:
        answer = self._ask(("accepts", text))
        if answer is None:
            return Verdict(False, "aborted", aborted=True)
        return Verdict(*answer)

    def accepts(self, text: str) -> bool:
        return self.verdict(text).accepted

    def to_string(self, text: str, form: str = "default", **options: object) -> str | None:
        """The text that XLA prints; None when it rejects the input or dies of it."""
        answer = self._ask(("print", text, form, options))
        return answer if answer is None else answer[0]

    def all_forms(self, text: str) -> dict[str, str] | None:
        """The four forms of a text that XLA accepts, from one parse."""
        answer = self._ask(("forms", text))
        return answer if answer is None else answer[0]

    def message(self, text: str) -> bytes | None:
        """The HloModuleProto that XLA writes of a text; None when it rejects or dies of it."""
        answer = self._ask(("message", text))
        return answer if answer is None else answer[0]

    def cost(self, text: str) -> tuple[int, int, int] | None:
        """Operations, transcendentals and bytes by XLA's cost analysis; None as above."""
        answer = self._ask(("cost", text))
        return answer if answer is None else answer[0]

    def run_devices(
        self, text: str, arguments: list[list[Any]], replicas: int, partitions: int
    ) -> list[list[Any]] | str | None:
        """Output leaves of each device, or XLA's message; None where its process dies."""
        answer = self._ask(("devices", text, arguments, replicas, partitions))
        return answer if answer is None else answer[0]  # type: ignore[no-any-return]  # as sent

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def _ask(self, request: tuple[object, ...]) -> Any:
        process = self._running()
        try:
            _send(process.stdin, request)
            answer = _receive(process.stdout)
        except (EOFError, BrokenPipeError):
            self.close()
            answer = ABORTED
        if answer != ABORTED:
            return answer
        self.aborts += 1
        return None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={
                    **os.environ,
                    "XLA_FLAGS": f"--xla_force_host_platform_device_count={self._devices}",
                },
            )
        return self._process


def _send(stream: Any, message: object) -> None:
    data = pickle.dumps(message)
    stream.write(struct.pack("<Q", len(data)) + data)
    stream.flush()


def _receive(stream: Any) -> Any:
    head = stream.read(8)
    if len(head) < 8:
        raise EOFError
    (size,) = struct.unpack("<Q", head)
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return pickle.loads(data)


def _run_devices(text: str, arguments: list[list[Any]], replicas: int, partitions: int) -> Any:
    """In the server: every device's output leaves. Scalars go in with one dimension."""
    import jax
    import numpy as np
    from jaxlib import _hlo, _jax, xla_client

    jax.config.update("jax_enable_x64", True)  # the library's form
    devices = jax.devices("cpu")[: replicas * partitions]
    proto = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    mlir = _jax.mlir.xla_computation_to_mlir_module(_hlo.XlaComputation(proto))
    options = xla_client.CompileOptions()
    build = options.executable_build_options
    options.num_replicas = build.num_replicas = replicas
    options.num_partitions = build.num_partitions = partitions
    build.use_spmd_partitioning = partitions > 1
    places = np.arange(len(devices)).reshape(replicas, partitions)
    options.device_assignment = xla_client.DeviceAssignment.create(places)
    executable = devices[0].client.compile_and_load(
        mlir, xla_client.DeviceList(tuple(devices)), options
    )
    mesh = jax.sharding.Mesh(np.array(devices), ("d",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))
    placed = []
    for column in zip(*arguments, strict=True):
        parts = [jax.device_put(np.atleast_1d(a), d) for a, d in zip(column, devices, strict=True)]
        shape = (len(devices) * parts[0].shape[0], *parts[0].shape[1:])
        placed.append(jax.make_array_from_single_device_arrays(shape, sharding, parts))
    outputs = executable.execute_sharded(placed).disassemble_into_single_device_arrays()
    return [[np.asarray(leaf[k]) for leaf in outputs] for k in range(len(devices))]


def _text_of(module: Any, form: str, options: dict[str, object]) -> str:
    from jaxlib import _hlo  # only the server loads it

    made = _hlo.HloPrintOptions() if form == "default" else getattr(_hlo.HloPrintOptions, form)()
    for key, value in options.items():
        setattr(made, key, value)
    return module.to_string(made)


def _of_module(module: Any, request: Any) -> Any:
    if request[0] == "message":
        return module.as_serialized_hlo_module_proto()
    if request[0] == "cost":
        from jax.extend.backend import get_backend
        from jaxlib import _jax

        found = _jax.hlo_module_cost_analysis(get_backend("cpu"), module)
        return tuple(int(found.get(k, 0)) for k in ("flops", "transcendentals", "bytes accessed"))
    if request[0] == "forms":
        return {form: _text_of(module, form, {}) for form in FORMS}
    return _text_of(module, request[2], request[3])


def _serve() -> None:
    """Answers requests until its input ends, in a child: after an abort another one takes over,
    without what importing jaxlib takes.
    """
    from jaxlib import _hlo  # noqa: F401  # only the server loads it, before it forks

    while True:
        child = os.fork()
        if child == 0:
            _answer_all()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status == 0:
            return
        _send(sys.stdout.buffer, ABORTED)


def _answer_all() -> None:
    from jaxlib import _hlo

    def answer(request: Any) -> Any:
        if request[0] == "devices":
            try:
                return (_run_devices(*request[1:]),)
            except Exception as error:
                return (str(error),)
        try:
            module = _hlo.hlo_module_from_text(request[1])
        except Exception as error:
            return (False, str(error)) if request[0] == "accepts" else (None,)
        if request[0] == "accepts":
            return (True, "")
        try:
            return (_of_module(module, request),)
        except UnicodeDecodeError:  # raw bytes of a name, which the binding cannot hand over
            return (None,)

    source, sink = sys.stdin.buffer, sys.stdout.buffer
    while True:
        try:
            request = _receive(source)
        except EOFError:
            return
        _send(sink, answer(request))


if __name__ == "__main__":
    _serve()
