"""Programs of JAX: functions, and what JAX makes of them, as modules.

    f, arguments --lowered--> Lowering: a module, and how its parameters and results are f's

Everything private that this asks of JAX's objects stands here and in hlo/tools/jax/jax_door.py.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from hlo.errors import HloError
from hlo.formats.callbacks import dropped, enter_callbacks
from hlo.formats.message import Message
from hlo.formats.module_text import module_of
from hlo.formats.wire import decode
from hlo.ir.module import Module
from hlo.ops.custom_targets import TARGETS
from hlo.runtime.ffi import register_ffi
from hlo.tools.jax import jax_door


class Result(Struct, frozen=True):
    """A result leaf as JAX has it: its element type (a key's too), and whether that is weak.

    dtype None: a token.
    """

    dtype: Any
    is_weak: bool


class Lowering(Struct, frozen=True):
    """A module with its function's calling convention.

    constants: arrays that the function holds, its first parameters. tokens: of ordered effects;
    they stand before all other parameters and results. kept: which of the arguments' leaves are
    parameters. donated: which of these may be given away. tree: of the results. callbacks: targets
    of custom calls that are functions of this process. keeps: what has to live as long.
    writes_references: whether what JAX's references (jax.Ref) hold comes after the other results.
    """

    module: Module
    tokens: int
    constants: tuple[np.ndarray, ...]
    kept: tuple[int, ...]
    donated: frozenset[int]
    results: tuple[Result, ...]
    tree: Any
    callbacks: tuple[str, ...]
    keeps: object
    writes_references: bool


def from_jax(f: Any, *arguments: Any, **keywords: Any) -> Module:
    """The module of a function and arguments: arrays, numbers, or jax.ShapeDtypeStruct for shapes.

    f: a function, jitted or not; or a Lowered, an Exported, an XlaComputation, without arguments.
    Every leaf of the arguments is a parameter, used or not (of what is jitted already: those that
    JAX keeps). Raises HloError where JAX is not installed, or the program needs several devices;
    what JAX raises for the function itself it raises.

    >>> import jax.numpy as jnp
    >>> module = hlo.from_jax(lambda x, y: jnp.sin(x) @ y, np.ones((2, 3)), np.ones((3, 4)))
    >>> [p.shape.dims for p in module.entry.parameters]
    [(2, 3), (3, 4)]
    """
    jax_door.check_available()
    if not callable(f) or _is_lowered(f):
        if arguments or keywords:
            raise HloError("arguments", f"from_jax: a {type(f).__name__} takes no arguments")
        return module_of_jax(f)
    jitted = f if is_jitted(f) else jax_door.jax().jit(f, keep_unused=True)
    return lowered(jitted.trace(*arguments, **keywords)).module


def is_jitted(f: Any) -> bool:
    """Whether a function is one that jax.jit gave."""
    return hasattr(f, "trace") and hasattr(f, "lower")


def _is_lowered(value: Any) -> bool:
    return hasattr(value, "compiler_ir") or hasattr(value, "mlir_module_serialized")


def module_of_jax(value: Any) -> Module:
    """The module of what JAX has made: a Lowered, an Exported, an XlaComputation."""
    if hasattr(value, "mlir_module_serialized"):
        if value.nr_devices != 1:
            raise _several(value.nr_devices)
        _check_sizes(value.in_avals)
        proto = jax_door.module_proto_of_mlir(value.mlir_module_serialized)
        return module_of(decode(proto, "HloModuleProto"), value.fun_name)
    if hasattr(value, "as_serialized_hlo_module_proto"):
        return module_of(_message(value), "XlaComputation")
    if hasattr(value, "compiler_ir"):
        return _lowering(value, value.out_tree, (), ()).module
    if is_jitted(value) or callable(value):
        raise HloError(
            "arguments",
            "a function of JAX has no shapes yet, expected a module or what JAX has lowered",
            help="hlo.from_jax(f, *arguments), or hlo.jit(f), which compiles when it is called",
        )
    raise HloError(
        "arguments",
        f"a {type(value).__name__}, expected a module, or a Lowered, Exported or XlaComputation",
    )


def _check_sizes(arguments: Sequence[Any]) -> None:
    """HloError for sizes that are letters, jax.export.symbolic_shape's."""
    for number, argument in enumerate(arguments):
        if not all(isinstance(size, int) for size in argument.shape):
            raise HloError(
                "unsupported",
                f"an Exported whose argument {number} is {argument}, expected sizes in numbers",
                help="export it for the sizes that it is to run with",
            )


def _several(count: int) -> HloError:
    message = f"a program for {count} devices, expected 1: compiled code runs on one device"
    return HloError("unsupported", message)


def _message(computation: Any) -> Message:
    return decode(computation.as_serialized_hlo_module_proto(), "HloModuleProto")


def lowered(traced: Any) -> Lowering:
    """The lowering of what `jitted.trace(...)` gave."""
    jax = jax_door.jax()
    made = traced.lower(lowering_platforms=("cpu",))
    outputs = jax.tree_util.tree_leaves(traced.out_info)
    arguments = jax.tree_util.tree_leaves(made.args_info)
    return _lowering(made, made.out_tree, outputs, [a.donated for a in arguments])


def _lowering(made: Any, tree: Any, outputs: Sequence[Any], donated: Sequence[bool]) -> Lowering:
    """The lowering of a Lowered, whose private parts all releases of SUPPORTED have alike."""
    inner = made._lowering
    said = inner.compile_args
    if said["num_devices"] != 1:
        raise _several(said["num_devices"])
    module = module_of(_message(made.compiler_ir(dialect="hlo")), str(inner._name))
    enter_handlers(module)
    kept = tuple(sorted(said["kept_var_idx"]))
    constants = tuple(np.asarray(c) for c in getattr(inner, "const_args", ()))
    kept = tuple(k - len(constants) for k in kept if k >= len(constants))
    return Lowering(
        module,
        len(said["ordered_effects"]),
        constants,
        kept,
        frozenset(k for k in kept if k < len(donated) and donated[k]),
        tuple(map(_result, outputs)),
        tree,
        enter_callbacks(module, _without_breakpoints(said["host_callbacks"]), gives_tuples=True),
        (made, said["keepalive"]),
        said.get("mut") is not None,
    )


def _result(leaf: Any) -> Result:
    return Result(getattr(leaf, "dtype", None), bool(getattr(leaf, "weak_type", False)))


def _without_breakpoints(callbacks: Sequence[Any]) -> list[Any]:
    """The functions, but for those of jax.debug.breakpoint, which looks for its caller's frames."""
    kept = [dropped if jax_door.is_breakpoint(function) else function for function in callbacks]
    if dropped in kept:
        what = "jax.debug.breakpoint is dropped: the debugger has no frames of compiled code"
        warnings.warn(what, stacklevel=2)
    return kept


def enter_handlers(module: Module) -> None:
    """Enter the handlers that JAX knows for targets of which we have no function."""
    targets = {
        str(i.get("custom_call_target"))
        for c in module.computations
        for i in c.instructions
        if i.opcode == "custom-call"
    }
    missing = targets - TARGETS.keys()
    if missing:
        known = jax_door.ffi_handlers()
        for name in missing & known.keys():
            register_ffi(name, known[name])
