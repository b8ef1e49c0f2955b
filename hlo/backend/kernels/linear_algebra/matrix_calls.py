"""Instructions on dense matrices and the kernels that compute them: opcodes and LAPACK's names.

Values lie row-major whatever layout a LAPACK call names, as everywhere in the backend.
"""

from __future__ import annotations

from collections.abc import Callable

from hlo.backend.codegen.target import Target
from hlo.backend.kernels.kernel import Kernel
from hlo.backend.kernels.linear_algebra.factorisation import (
    cholesky_kernel,
    factor_kernel,
    factor_of,
)
from hlo.backend.kernels.linear_algebra.lapack_call import LETTERS, LapackCall
from hlo.backend.kernels.linear_algebra.lapack_routines import ROUTINES
from hlo.backend.kernels.linear_algebra.triangular import solve_kernel, system_of, triangular_kernel
from hlo.ir.instruction import Instruction
from hlo.ops.custom_call import REGISTERED
from hlo.ops.lapack import Config, attributes
from hlo.ops.table import attribute

Family = Callable[[Instruction, Target], Kernel | None]
LapackFamily = Callable[[Instruction, Config, Target], Kernel | None]


def matrix_kernel(instruction: Instruction, target: Target) -> Kernel | None:
    """The kernel of a factorisation or a solution; None: left to the reference."""
    if instruction.opcode != "custom-call":
        return OPCODES[instruction.opcode](instruction, target)
    target_name = str(attribute(instruction, "custom_call_target"))
    short = target_name.removeprefix("lapack_").removesuffix("_ffi")
    letter, name = short[:1], short[1:]
    config = attributes(str(attribute(instruction, "backend_config")))
    if target_name in REGISTERED or not _has_type(instruction, letter):
        return None
    if name in LAPACK:
        return LAPACK[name](instruction, config, target)
    letters, rank, steps = ROUTINES.get(name, ("", 0, None))
    if steps is None or letter not in letters:
        return None
    return LapackCall(instruction, letter, config, target, rank).written(steps)


def _has_type(instruction: Instruction, letter: str) -> bool:
    """Whether the first operand's elements are what the routine's letter says."""
    operands = instruction.operands
    return bool(operands) and operands[0].shape.dtype is LETTERS.get(letter)


def _potrf(instruction: Instruction, config: Config, target: Target) -> Kernel | None:
    lower = config.get("uplo") == "L"
    factor = factor_of(instruction.operands[0].shape, lower=lower, reports=True)
    return factor_kernel(factor, target)


def _trsm(instruction: Instruction, config: Config, target: Target) -> Kernel | None:
    a, b = (o.shape for o in instruction.operands)
    system = system_of(
        a,
        b,
        on_left=config.get("side") == "L",
        lower=config.get("uplo") == "L",
        is_unit=config.get("diag") == "U",
        transpose=str(config.get("trans_x")),
    )
    return solve_kernel(system, target)


OPCODES: dict[str, Family] = {
    "cholesky": cholesky_kernel,
    "triangular-solve": triangular_kernel,
}
LAPACK: dict[str, LapackFamily] = {"potrf": _potrf, "trsm": _trsm}
