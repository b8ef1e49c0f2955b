"""StableHLO, read and written by jaxlib in a process of its own.

    HloModuleProto --written--> StableHLO: text, or MLIR bytecode --proto_of--> HloModuleProto

XLA ends its process over some of what it is given: damaged bytecode; modules with attributes of
calls that are no dictionary of MLIR, or with layouts that are none.
"""

from __future__ import annotations

import sys

from hlo.errors import HloError
from hlo.tools.jax import jax_door
from hlo.tools.jax.jax_engine import run_child


def written(proto: bytes, form: str) -> bytes:
    """form: "text" or "bytecode". Raises HloError "oracle" where XLA refuses or dies."""
    return _asked(form, proto, "XLA does not write this module as StableHLO")


def proto_of(program: bytes) -> bytes:
    """Of text, bytecode or a portable artifact, StableHLO or MHLO. Raises HloError "oracle" where
    XLA refuses or dies.
    """
    return _asked("proto", program, "StableHLO is not read")


def _asked(wanted: str, data: bytes, refused: str) -> bytes:
    jax_door.check_available()
    done = run_child("hlo.tools.jax.stablehlo_process", wanted, data=data)
    if done.returncode == 0:
        return done.stdout
    said = f"{refused}: the process of XLA ended with code {done.returncode}"
    if done.returncode == 1:
        said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2][:600]
    raise HloError("oracle", said)


def _child(wanted: str) -> None:
    data = sys.stdin.buffer.read()
    try:
        if wanted == "proto":
            made = jax_door.module_proto_of_mlir(data)
        else:
            made = jax_door.stablehlo_of_module_proto(data)
            made = jax_door.mlir_text(made).encode() if wanted == "text" else made
    except HloError as refused:
        sys.exit(refused.message)
    sys.stdout.buffer.write(made)


if __name__ == "__main__":
    _child(*sys.argv[1:])
