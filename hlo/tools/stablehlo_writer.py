"""StableHLO of a module, written by jaxlib in a process of its own.

    HloModuleProto --written--> StableHLO: text, or MLIR bytecode

XLA's writer ends its process over some modules: attributes of calls that are no dictionary of
MLIR, layouts that are none.
"""

from __future__ import annotations

import sys

from hlo.errors import HloError
from hlo.tools import jax_door
from hlo.tools.jax_engine import run_child

REFUSED = "XLA does not write this module as StableHLO"


def written(proto: bytes, form: str) -> bytes:
    """form: "text" or "bytecode". Raises HloError "oracle" where XLA refuses or dies."""
    jax_door.check_available()
    done = run_child("hlo.tools.stablehlo_writer", form, data=proto)
    if done.returncode == 0:
        return done.stdout
    said = f"{REFUSED}: its process ended with code {done.returncode}"
    if done.returncode == 1:
        said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2][:600]
    raise HloError("oracle", said)


def _child(form: str) -> None:
    try:
        made = jax_door.stablehlo_of_module_proto(sys.stdin.buffer.read())
        text = jax_door.mlir_text(made) if form == "text" else ""
    except HloError as refused:
        sys.exit(refused.message)
    sys.stdout.buffer.write(text.encode() if form == "text" else made)


if __name__ == "__main__":
    _child(*sys.argv[1:])
