"""JAX behind one door: the one file that imports it, when asked, and knows its private names.

Supported are SUPPORTED minor releases of jax and jaxlib; a name that a release has elsewhere or not
at all is looked for here and nowhere else, and is a clear error where it is missing.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from importlib import metadata
from typing import Any

import numpy as np

from hlo.errors import HloError
from hlo.process.once import once
from hlo.runtime.native_calls import Foreign

SUPPORTED = ((0, 7), (0, 10))  # the least and the greatest minor release
EXTRA = "pip install 'hlo[jax]'"
HANDLER_MODULES = ("jaxlib.lapack", "jaxlib.cpu_sparse")
TYPED = 1  # the version of XLA's custom calls that are the FFI
BREAKPOINTS = ("jax._src.debugger.core", "_breakpoint_callback")  # module, name
# Where a private name is found: in the first of these modules that has it.
INDEX_MAPS: dict[str, tuple[str, ...]] = {
    "hlo_module_from_text": ("jaxlib._hlo", "jaxlib._jax", "jaxlib.xla_extension"),
    "XlaComputation": ("jaxlib._hlo", "jaxlib._jax", "jaxlib.xla_extension"),
    "mlir": ("jaxlib._jax", "jaxlib.xla_extension"),
    "DeviceList": ("jaxlib._jax", "jaxlib.xla_client", "jaxlib.xla_extension"),
    "CompileOptions": ("jaxlib.xla_client", "jaxlib._jax"),
    "make_ir_context": ("jax._src.interpreters.mlir",),
    "ir": ("jax._src.lib.mlir", "jaxlib.mlir"),
    "custom_call_targets": ("jaxlib.xla_client",),
    "trace_context": ("jax._src.config",),
    "Tracer": ("jax.core",),
    "ArrayImpl": ("jax._src.array",),
    "batched_device_put": ("jaxlib._jax", "jaxlib.xla_client", "jaxlib.xla_extension"),
    "collect_garbage": ("jaxlib._jax", "jaxlib.xla_client", "jaxlib.xla_extension"),
    "_lapack": ("jaxlib.lapack",),
    "enable_x64": ("jax._src.config",),
}


@once
def check_available() -> None:
    """HloError code "unsupported" unless a release of JAX that this file knows is installed."""
    expected = f"{_version_text(SUPPORTED[0])} to {_version_text(SUPPORTED[1])}"
    for name in ("jax", "jaxlib"):
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            raise HloError(
                "unsupported", f"{name} is not installed, expected {expected}", help=EXTRA
            ) from None
        if not SUPPORTED[0] <= _minor(found) <= SUPPORTED[1]:
            raise HloError("unsupported", f"{name} is {found}, expected {expected}", help=EXTRA)


def _minor(version: str) -> tuple[int, int]:
    parts = version.split(".")
    numbers = [int(part) if part.isdigit() else 0 for part in parts[:2]]
    return (numbers[0], numbers[1] if len(numbers) > 1 else 0)


def _version_text(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


@once
def jax() -> Any:
    """The package, without its types."""
    check_available()
    return importlib.import_module("jax")


@once
def private(name: str) -> Any:
    """A private name of JAX, from where this release has it."""
    jax()
    for place in INDEX_MAPS[name]:
        try:
            module = importlib.import_module(place)
        except ImportError:
            continue
        if hasattr(module, name):
            return getattr(module, name)
    version = metadata.version("jax")
    raise HloError("unsupported", f"jax {version} has no {name} in {' or '.join(INDEX_MAPS[name])}")


def public(name: str) -> Any:
    """A module of JAX by its full name."""
    jax()
    return importlib.import_module(name)


def single_device(value: Any) -> bool:
    """Whether a jax array lies on one CPU device."""
    devices = value.devices()
    return len(devices) == 1 and next(iter(devices)).platform == "cpu"


def runs_eagerly() -> bool:
    """Whether jax.disable_jit asks for op by op, in Python."""
    return bool(jax().config.jax_disable_jit)


def array_type(*, as_results: bool) -> Foreign:
    """jax arrays, as native calls know them. as_results: results are to become such, too."""
    return Foreign(private("ArrayImpl"), "aval", "dtype", "weak_type", is_aligned=as_results)


def placing(
    dims: tuple[int, ...], dtype: np.dtype, *, is_weak: bool
) -> Callable[[np.ndarray], Any]:
    """What makes jax arrays of one type over the memory of NumPy arrays, which it keeps alive.

    Memory that begins no line of 64 bytes is copied. It goes around what the public ways ask of
    types and devices in each call: 3 us for 17 and more (docs/jax.md).
    """
    device = jax().local_devices(backend="cpu")[0]
    aval = jax().core.ShapedArray(dims, dtype, weak_type=is_weak)
    sharding = jax().sharding.SingleDeviceSharding(device)
    put, devices = private("batched_device_put"), [device]
    return lambda array: put(aval, sharding, [array], devices, False)


@once
def forget_deleted() -> Callable[[], object]:
    """What ends the references of deleted jax arrays, which else are ended some time later."""
    made: Callable[[], object] = private("collect_garbage")
    return made


def ffi_handlers() -> dict[str, Any]:
    """The CPU's handlers of XLA's FFI that JAX has, by target: capsules, or dicts of them by stage.

    Those of jaxlib's own modules are there before JAX asks for them; LAPACK's routines, which they
    call, have to be found first.
    """
    found: dict[str, Any] = {}
    for name in HANDLER_MODULES:
        module = public(name)
        library = getattr(module, "_lapack", None)
        if library is not None:
            library.initialize()
        rows = module.registrations().get("cpu", ())
        found |= {target: handler for target, handler, version in rows if version == TYPED}
    return found | dict(private("custom_call_targets")("cpu"))


def is_breakpoint(callback: object) -> bool:
    """Whether a function that a lowering carries is that of jax.debug.breakpoint: it is a local
    one, in what the function holds.
    """
    waiting, seen = [callback], set()
    while waiting:
        function = waiting.pop()
        if getattr(function, "__module__", "") == BREAKPOINTS[0] and BREAKPOINTS[1] in getattr(
            function, "__qualname__", ""
        ):
            return True
        seen.add(id(function))
        held = [*(getattr(function, "__closure__", None) or ()), *getattr(function, "args", ())]
        held += getattr(function, "__dict__", {}).values()
        slots = [name for name in getattr(function, "__slots__", ()) if name != "__weakref__"]
        held += [getattr(function, name, None) for name in slots]
        values = [getattr(function, "func", None), *(_content(thing) for thing in held)]
        waiting += [v for v in values if callable(v) and id(v) not in seen]
    return False


def _content(thing: Any) -> Any:
    """What a cell of a closure holds; the thing itself where it is none."""
    try:
        return thing.cell_contents if hasattr(thing, "cell_contents") else thing
    except ValueError:  # an empty cell
        return None


def key_kind(dtype: Any) -> Any:
    """Which random numbers the keys of an element type are for."""
    return dtype._impl


def _told(what: str, call: Callable[[], Any]) -> Any:
    """What a call gives; an error of MLIR or XLA as ours."""
    try:
        return call()
    except (RuntimeError, ValueError) as refused:  # jaxlib's own errors are such
        said = " ".join(str(refused).split()) or type(refused).__name__
        raise HloError("oracle", f"{what}: {said[:600]}") from None


def module_proto_of_mlir(program: bytes) -> bytes:
    """The HloModuleProto of StableHLO or MHLO: text, bytecode, or a portable artifact."""
    convert = private("mlir").mlir_module_to_xla_computation

    def converted() -> Any:
        return convert(program, use_tuple_args=False, return_tuple=False)

    computation = _told("StableHLO is not read", converted)
    return bytes(computation.as_serialized_hlo_module_proto())


def stablehlo_of_module_proto(proto: bytes) -> bytes:
    """StableHLO as MLIR bytecode, of a HloModuleProto."""
    convert = private("mlir").hlo_to_stablehlo
    return bytes(_told("XLA does not write this module as StableHLO", lambda: convert(proto)))


def mlir_text(bytecode: bytes) -> str:
    """The text of MLIR bytecode."""
    ir = private("ir")
    with private("make_ir_context")():
        try:
            return str(ir.Module.parse(bytecode))
        except ir.MLIRError as refused:
            said = " ".join(str(refused).split())
            raise HloError("oracle", f"MLIR does not read this: {said[:600]}") from None
