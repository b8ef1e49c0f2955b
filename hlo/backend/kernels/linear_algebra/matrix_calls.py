"""Instructions on dense matrices and the kernels that compute them: opcodes and LAPACK's names.

Values lie row-major whatever layout a LAPACK call names, as everywhere in the backend.
"""

from __future__ import annotations

from collections.abc import Callable

from hlo.analysis.while_loops.loop_state import element_index
from hlo.backend.ir.kernel import Kernel, KernelSequence
from hlo.backend.isa.target import Target
from hlo.backend.kernels.linear_algebra import lapack_symbols
from hlo.backend.kernels.linear_algebra.cholesky import cholesky_kernel, factor_kernel
from hlo.backend.kernels.linear_algebra.cholesky_form import factor_of
from hlo.backend.kernels.linear_algebra.jacobi_lanes import (
    eigenvalues_kernel,
    singular_values_kernel,
)
from hlo.backend.kernels.linear_algebra.lapack_call import LETTERS, LapackCall
from hlo.backend.kernels.linear_algebra.lapack_routines import DIRECT, ROUTINES
from hlo.backend.kernels.linear_algebra.lu import lu_kernel
from hlo.backend.kernels.linear_algebra.lu_groups import lu_groups
from hlo.backend.kernels.linear_algebra.lu_lanes import lu_lanes_kernel
from hlo.backend.kernels.linear_algebra.qr import q_kernel, qr_kernel
from hlo.backend.kernels.linear_algebra.qr_lanes import q_lanes_kernel, qr_lanes_kernel
from hlo.backend.kernels.linear_algebra.triangular import solve_kernel, triangular_kernel
from hlo.backend.kernels.linear_algebra.triangular_form import system_of
from hlo.errors import Violation
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.ops.lapack import FAMILIES, LIBRARY_ROUTINES, Config, attributes
from hlo.ops.table import attribute

Made = Kernel | KernelSequence
Family = Callable[[Instruction, Target], Made | None]
LapackFamily = Callable[[Instruction, Config, Target], Made | None]


def matrix_kernel(instruction: Instruction, target: Target) -> Made | None:
    """The kernel of a factorisation or a solution; None: left to the reference."""
    if instruction.opcode != "custom-call":
        return OPCODES[instruction.opcode](instruction, target)
    letter, name = _routine(instruction)
    try:
        config = attributes(str(instruction.attributes.get("backend_config", "")))
    except Violation:
        return None  # as below
    if not _has_type(instruction, letter):
        return None
    if not _has_signature(instruction, name, is_real=letter in "sd"):
        return None  # the reference says what is wrong with it
    own = LAPACK[name](instruction, config, target) if name in LAPACK else None
    if own is not None:
        return own
    letters, rank, steps = ROUTINES.get(name, ("", 0, None))
    if steps is None or letter not in letters:
        return None
    call = LapackCall(instruction, letter, config, target, rank, is_direct=name in DIRECT)
    return call.written(steps)


def _routine(instruction: Instruction) -> tuple[str, str]:
    """The letter and the name of the routine that a custom call is; of XLA's own targets where a
    routine gives their results, else no names."""
    target = str(attribute(instruction, "custom_call_target"))
    if target not in LIBRARY_ROUTINES:
        short = target.removeprefix("lapack_").removesuffix("_ffi")
        return short[:1], short[1:]
    letter = next((k for k, v in LETTERS.items() if _are_of(instruction, v)), "")
    name = LIBRARY_ROUTINES[target]
    if name == "orgqr":
        name = name if letter in ("s", "d") else "ungqr"
        if not _is_tall(instruction):
            return "", ""
    return (letter, name) if lapack_symbols.has_routine(letter + name) else ("", "")


def _are_of(instruction: Instruction, dtype: DType) -> bool:
    """Whether operands and results are arrays of this type."""
    results = instruction.shape.elements if instruction.shape.is_tuple else (instruction.shape,)
    shapes = (*(o.shape for o in instruction.operands), *results)
    return all(s.is_array and s.dtype is dtype for s in shapes)


def _is_tall(instruction: Instruction) -> bool:
    """Whether a matrix of reflectors has no more of them than columns, and of these than rows."""
    shapes = [o.shape for o in instruction.operands]
    if len(shapes) != 2 or shapes[0].rank < 2 or not shapes[1].rank:
        return False
    rows, columns = shapes[0].dims[-2:]
    return shapes[1].dims[-1] <= columns <= rows and instruction.shape.dims == shapes[0].dims


def _has_type(instruction: Instruction, letter: str) -> bool:
    """Whether the first operand's elements are what the routine's letter says."""
    operands = instruction.operands
    return bool(operands) and operands[0].shape.dtype is LETTERS.get(letter)


def _has_signature(instruction: Instruction, name: str, *, is_real: bool) -> bool:
    """Whether operands and results are as many as the routine's, for equal batches.

    The code that is made relies on it; sizes of the problem itself are checked where they are used.
    """
    trailing = TRAILING.get(name)
    operands = [o.shape for o in instruction.operands]
    results = instruction.shape.elements if instruction.shape.is_tuple else (instruction.shape,)
    if (
        trailing is None
        or len(operands) != len(trailing)
        or len(results) != _count(name, is_real=is_real)
    ):
        return False
    if not all(s.is_array for s in (*operands, *results)) or operands[0].rank < trailing[0]:
        return False
    batch = operands[0].dims[: operands[0].rank - trailing[0]]
    ranks = all(s.rank == len(batch) + t for s, t in zip(operands, trailing, strict=True))
    if not ranks or any(s.dims[: len(batch)] != batch for s in (*operands, *results)):
        return False
    like = {"potrf": operands[0], "trsm": operands[-1]}.get(name)
    if like is None:
        return True
    counts = all(r.dims == batch and r.dtype is dt.S32 for r in results[1:])
    return results[0].dims == like.dims and results[0].dtype is like.dtype and counts


def _count(name: str, *, is_real: bool) -> int:
    """How many results a routine has; a real matrix has two arrays of eigenvalues."""
    return RESULTS[name] + (is_real and name in ("geev", "gees"))


def _is_square(shape: Shape) -> bool:
    return shape.dims[-2] == shape.dims[-1]


def _potrf(instruction: Instruction, config: Config, target: Target) -> Made | None:
    lower = config.get("uplo") == "L"
    if not _is_square(instruction.operands[0].shape):
        return None
    factor = factor_of(instruction.operands[0].shape, lower=lower, reports=True)
    return factor_kernel(factor, target)


def _trsm(instruction: Instruction, config: Config, target: Target) -> Kernel | None:
    a, b = (o.shape for o in instruction.operands)
    on_left = config.get("side") == "L"
    if not _is_square(a) or b.dims[-2 if on_left else -1] != a.dims[-1] or b.dtype is not a.dtype:
        return None
    system = system_of(
        a,
        b,
        on_left=on_left,
        lower=config.get("uplo") == "L",
        is_unit=config.get("diag") == "U",
        transpose=str(config.get("trans_x")),
    )
    return solve_kernel(system, target)


def _getrf(instruction: Instruction, _: Config, target: Target) -> Made | None:
    a = instruction.operands[0].shape
    factors, pivots, failures = instruction.shape.elements
    batch, least = a.dims[:-2], min(a.dims[-2:])
    fits = factors.dims == a.dims and factors.dtype is a.dtype
    fits &= pivots.dims == (*batch, least) and failures.dims == batch
    if not fits or pivots.dtype is not dt.S32 or failures.dtype is not dt.S32:
        return None
    return lu_lanes_kernel(a, target) or lu_groups(a, target) or lu_kernel(a, target)


def _geqrf(instruction: Instruction, _: Config, target: Target) -> Kernel | None:
    a = instruction.operands[0].shape
    factors, t = instruction.shape.elements
    fits = factors.dims == a.dims and t.dims == (*a.dims[:-2], min(a.dims[-2:]))
    fits &= factors.dtype is a.dtype and t.dtype is a.dtype
    return qr_lanes_kernel(a, target) or qr_kernel(a, target) if fits else None


def _orgqr(instruction: Instruction, _: Config, target: Target) -> Kernel | None:
    a, t = (o.shape for o in instruction.operands)
    is_alike = instruction.shape.dims == a.dims and instruction.shape.dtype is a.dtype
    if not is_alike or t.dtype is not a.dtype:
        return None
    count = t.dims[-1]
    return q_lanes_kernel(a, count, target) or q_kernel(a, count, target)


def _syevd(instruction: Instruction, config: Config, target: Target) -> Kernel | None:
    a, (vectors, values, failures) = instruction.operands[0].shape, instruction.shape.elements
    fits = _is_square(a) and values.dims == a.dims[:-1] and failures.dims == a.dims[:-2]
    fits &= values.dtype is a.dtype and failures.dtype is dt.S32 and vectors.dims == a.dims
    if not fits or not _reads_only(instruction, {1, 2}):
        return None
    return eigenvalues_kernel(a, lower=config.get("uplo") == "L", target=target)


def _gesdd(instruction: Instruction, _: Config, target: Target) -> Kernel | None:
    a, results = instruction.operands[0].shape, instruction.shape.elements
    values, failures = results[1], results[4]
    fits = values.dims == (*a.dims[:-2], min(a.dims[-2:])) and failures.dims == a.dims[:-2]
    fits &= values.dtype is a.dtype and failures.dtype is dt.S32
    if not fits or not _reads_only(instruction, {1, 4}):
        return None
    return singular_values_kernel(a, target)


def _reads_only(instruction: Instruction, wanted: set[int]) -> bool:
    """Whether no other results of the call are read."""
    return not instruction.is_root and all(
        user.opcode == "get-tuple-element" and element_index(user) in wanted
        for user in instruction.users
    )


TRAILING = {name: trailing for _, name, _, trailing in FAMILIES}
RESULTS = {
    "getrf": 3, "potrf": 2, "geqrf": 2, "geqp3": 3, "orgqr": 1, "ungqr": 1, "ormqr": 1, "unmqr": 1,
    "trsm": 1, "gesdd": 5, "gesvd": 5, "syevd": 3, "heevd": 3, "geev": 4, "gees": 5, "gehrd": 3,
    "sytrd": 5, "hetrd": 5, "gtsv": 5,
}  # fmt: skip
OPCODES: dict[str, Family] = {
    "cholesky": cholesky_kernel,
    "triangular-solve": triangular_kernel,
}
LAPACK: dict[str, LapackFamily] = {
    "getrf": _getrf, "potrf": _potrf, "trsm": _trsm, "geqrf": _geqrf, "orgqr": _orgqr,
    "syevd": _syevd, "gesdd": _gesdd,
}  # fmt: skip
