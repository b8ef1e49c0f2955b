"""StableHLO and MHLO, text and bytecode, by way of jaxlib (the extra `jax`)."""

from __future__ import annotations

from hlo.formats.message import Message
from hlo.formats.module_message import module_message
from hlo.formats.wire import decode, encode
from hlo.ir.module import Module
from hlo.verifier.verify import verify


def message_of_mlir(program: bytes) -> Message:
    """The HloModuleProto of a program: text, bytecode, or a portable artifact. Raises HloError
    where XLA does not read it.
    """
    from hlo.tools.jax.stablehlo_process import proto_of  # few commands start processes

    return decode(proto_of(program), "HloModuleProto")


def stablehlo_text(module: Module) -> str:
    """A module as StableHLO's text."""
    return _written(module, "text").decode()


def stablehlo_bytecode(module: Module) -> bytes:
    """A module as MLIR bytecode of StableHLO."""
    return _written(module, "bytecode")


def _written(module: Module, form: str) -> bytes:
    """Raises HloError where it does not verify, or where XLA does not write it."""
    from hlo.tools.jax.stablehlo_process import written  # few commands start processes

    verify(module)
    return written(encode(module_message(module)), form)
