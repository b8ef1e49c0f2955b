"""StableHLO and MHLO, text and bytecode, by way of jaxlib (the extra `jax`)."""

from __future__ import annotations

from hlo.formats.message import Message
from hlo.formats.module_message import module_message
from hlo.formats.wire import decode, encode
from hlo.ir.module import Module
from hlo.tools import jax_door


def message_of_mlir(program: str | bytes) -> Message:
    """The HloModuleProto of a program."""
    return decode(jax_door.module_proto_of_mlir(program), "HloModuleProto")


def stablehlo_text(module: Module) -> str:
    """A module as StableHLO's text."""
    return jax_door.mlir_text(stablehlo_bytecode(module))


def stablehlo_bytecode(module: Module) -> bytes:
    """A module as MLIR bytecode of StableHLO."""
    return jax_door.stablehlo_of_module_proto(encode(module_message(module)))
