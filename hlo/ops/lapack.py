"""The LAPACK targets that JAX emits on CPU, through SciPy's wrappers (an optional package).

Each function below handles one matrix; `_batched` runs it over the leading dimensions and stacks
its results. Values are logical: that LAPACK stores matrices by columns shows nowhere here.
Source: docs/control.md 5.2.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from types import ModuleType
from typing import Any

import numpy as np

from hlo.errors import Violation
from hlo.ops.custom_targets import TARGETS, CustomCall
from hlo.ops.lapack_library import one_thread, works_alone
from hlo.ops.lapack_workspace import work_size
from hlo.ops.linear_algebra import substituted

Array = np.ndarray
Config = dict[str, object]
Single = Callable[..., tuple[object, ...]]
Routine = Callable[..., tuple[Any, ...]]  # SciPy has no types

TYPES = {"s": np.float32, "d": np.float64, "c": np.complex64, "z": np.complex128}
REAL, COMPLEX = "sd", "cz"
_DIGITS = re.compile("[0-9]{1,19}")


def attributes(backend_config: str) -> Config:
    """The values of an MLIR dictionary `{uplo = 76 : ui8, left = true}`; ui8 are ASCII codes.

    Raises Violation where one is no number of 64 bits, nor a truth.
    """
    found: Config = {}
    for name, value, kind in re.findall(r"(\w+) = ([-\"\w]+)(?: : (\w+))?", backend_config):
        if value in ("true", "false"):
            found[name] = value == "true"
            continue
        most = 0xFF if kind == "ui8" else (1 << 63) - 1
        if not (_DIGITS.fullmatch(value) and int(value) <= most):
            expected = f"{name} from 0 to {most}, or a truth"
            raise Violation("attribute-value", "backend_config", f"{name} = {value[:40]}", expected)
        found[name] = chr(int(value)) if kind == "ui8" else int(value)
    return found


def check_library() -> None:
    """A Violation where SciPy is missing."""
    _lapack()


def routine(letter: str, name: str) -> Routine:
    """SciPy's wrapper of LAPACK's `name` for a type; an error where SciPy is missing."""
    found = getattr(_lapack(), letter + name, None)
    if found is None:
        raise Violation("unsupported", "custom_call_target", letter + name, "a routine of SciPy's")
    return found  # type: ignore[no-any-return]  # as above


def _lapack() -> ModuleType:
    try:
        from scipy.linalg import lapack  # type: ignore[import-untyped]  # optional: only needed here
    except ImportError:
        raise Violation(
            "unsupported", "custom_call_target", "a LAPACK routine", "SciPy to be installed",
            help="pip install scipy",
        ) from None  # fmt: skip
    return lapack  # type: ignore[no-any-return]  # as above


def _batched(letter: str, single: Single, trailing: tuple[int, ...]) -> Callable[..., object]:
    """A target: `single(letter, config, *operands)` for each element of the batch.

    trailing: how many dimensions of each operand belong to one problem.
    """

    def target(*operands: Array, call: CustomCall) -> object:
        config = attributes(call.backend_config)
        batch = operands[0].shape[: operands[0].ndim - trailing[0]]
        results = call.shape.elements if call.shape.is_tuple else (call.shape,)
        outputs = tuple(np.zeros(s.dims, s.dtype.numpy) for s in results)
        if all(o.size for o in operands):
            check_library()
            with one_thread() if works_alone(operands[0].shape, trailing[0]) else nullcontext():
                for index in np.ndindex(*batch):
                    parts = single(letter, config, *(o[index] for o in operands))
                    for output, part in zip(outputs, parts, strict=True):
                        if part is not None:
                            output[index] = part
        return outputs if call.shape.is_tuple else outputs[0]

    return target


def _getrf(letter: str, config: Config, a: Array) -> tuple[object, ...]:
    """P A = L U; pivots count from 1."""
    lu, pivots, info = routine(letter, "getrf")(a)
    return lu, pivots + 1, info


def _potrf(letter: str, config: Config, a: Array) -> tuple[object, ...]:
    """A = L L^H or U^H U in one triangle; the other keeps the input."""
    lower = config.get("uplo") == "L"
    factor, info = routine(letter, "potrf")(a, lower=lower, clean=False)
    return factor, info


def _geqrf(letter: str, config: Config, a: Array) -> tuple[object, ...]:
    """R on and above the diagonal, Householder vectors below, and taus."""
    qr, tau, _, _ = routine(letter, "geqrf")(a, lwork=work_size(letter, "geqrf", *a.shape))
    return qr, tau


def _geqp3(letter: str, config: Config, a: Array, chosen: Array) -> tuple[object, ...]:
    """A[:, jpvt] = Q R; columns chosen beforehand (not 0) come first and are not exchanged.

    SciPy's wrapper takes all columns as free: those chosen are factored here, the rest by LAPACK.
    """
    order, fixed = _chosen_first(chosen)
    if not fixed:
        room = work_size(letter, "geqp3", *a.shape)
        qr, pivots, tau, _, _ = routine(letter, "geqp3")(a, lwork=room)
        return qr, pivots, tau
    moved = np.asfortranarray(a[:, order])
    reflectors = min(fixed, a.shape[0])
    head, tau, *_ = routine(letter, "geqrf")(np.asfortranarray(moved[:, :fixed]))
    config = {"left": True, "transpose": True}
    (rest,) = _ormqr(letter, config, head, tau, np.asfortranarray(moved[:, fixed:]))
    qr = np.concatenate([head, np.asarray(rest)], axis=1)
    if fixed < len(order) and reflectors < a.shape[0]:
        lower, pivots, more, _, _ = routine(letter, "geqp3")(
            np.asfortranarray(qr[reflectors:, fixed:])
        )
        free = pivots - 1
        qr[:reflectors, fixed:] = qr[:reflectors, fixed:][:, free]
        qr[reflectors:, fixed:] = lower
        order[fixed:] = order[fixed:][free]
        tau = np.concatenate([tau, more])
    return qr, (order + 1).astype(chosen.dtype), tau


def _chosen_first(chosen: Array) -> tuple[Array, int]:
    """LAPACK's order of the columns before it factors: each chosen one changes places."""
    order, fixed = np.arange(chosen.size), 0
    for column in np.flatnonzero(chosen):
        order[fixed], order[column] = order[column], order[fixed]
        fixed += 1
    return order, fixed


def _orgqr(letter: str, config: Config, a: Array, tau: Array) -> tuple[object, ...]:
    """The first columns of H_1 .. H_k."""
    name = "orgqr" if letter in REAL else "ungqr"
    return (routine(letter, name)(a, tau, lwork=work_size(letter, "orgqr", *a.shape))[0],)


def _ormqr(letter: str, config: Config, a: Array, tau: Array, c: Array) -> tuple[object, ...]:
    """Q C, Q^H C, C Q or C Q^H."""
    name = "ormqr" if letter in REAL else "unmqr"
    turned = "T" if letter in REAL else "C"
    side = "L" if config.get("left") else "R"
    reflectors = np.asfortranarray(a[:, : tau.size])
    product, _, _ = routine(letter, name)(
        side,
        turned if config.get("transpose") else "N",
        reflectors,
        tau,
        c,
        lwork=work_size(letter, "ormqr", *c.shape),
    )
    return (product,)


def _trsm(letter: str, config: Config, a: Array, b: Array) -> tuple[object, ...]:
    """X with op(A) X = B or X op(A) = B."""
    wide = np.complex128 if letter in COMPLEX else np.float64
    matrix, right, lower = a.astype(wide), b.astype(wide), config.get("uplo") == "L"
    if config.get("trans_x") != "N":
        matrix, lower = matrix.T, not lower
        matrix = np.conj(matrix) if config.get("trans_x") == "C" else matrix
    left = config.get("side") == "L"
    if not left:
        matrix, right, lower = matrix.T, right.T, not lower
    unit = config.get("diag") == "U"
    with np.errstate(all="ignore"):
        x = substituted(matrix, right, lower=lower, unit_diagonal=unit)
        return ((x if left else x.T).astype(a.dtype),)


def _svd(name: str) -> Single:
    def single(letter: str, config: Config, a: Array) -> tuple[object, ...]:
        """A = U diag(s) V^H, s descending; nothing but s in mode N."""
        if np.isnan(a).any():
            return None, None, None, None, -4
        mode = config.get("mode")
        room = work_size(letter, name, *a.shape, vectors=mode != "N")
        u, s, vt, info = routine(letter, name)(
            a, compute_uv=mode != "N", full_matrices=mode == "A", lwork=room
        )
        return (None, s, None, None, info) if mode == "N" else (None, s, u, vt, info)

    return single


def _eigh(letter: str, config: Config, a: Array) -> tuple[object, ...]:
    """Eigenvalues ascending, eigenvectors in columns; one triangle is read."""
    if np.isnan(a).any():
        return np.nan, np.nan, 0
    name = "syevd" if letter in REAL else "heevd"
    vectors = config.get("mode") == "V"
    room = work_size(letter, name, *a.shape, vectors=vectors)
    w, v, info = routine(letter, name)(
        a, compute_v=vectors, lower=config.get("uplo") == "L", lwork=room
    )
    return (v if vectors else None), w, info


def _geev(letter: str, config: Config, a: Array) -> tuple[object, ...]:
    """Eigenvalues and left and right eigenvectors, complex in any case."""
    count = 5 if letter in REAL else 4
    if np.isnan(a).any():
        return (*[None] * (count - 1), -4)
    left, right = (config.get(f"compute_{side}") == "V" for side in ("left", "right"))
    room = work_size(letter, "geev", *a.shape)
    *values, vl, vr, info = routine(letter, "geev")(
        a, compute_vl=left, compute_vr=right, lwork=room
    )
    if letter in REAL:
        vl, vr = (_paired(values[1], v) if on else None for v, on in ((vl, left), (vr, right)))
    else:
        vl, vr = vl if left else None, vr if right else None
    return (*values, vl, vr, info)


def _paired(imaginary: Array, vectors: Array) -> Array:
    """Complex eigenvectors from LAPACK's real pairs (re, im) of neighbouring columns."""
    result = vectors.astype(np.result_type(vectors.dtype, np.complex64))
    column = 0
    while column < vectors.shape[1]:
        if imaginary[column] == 0:
            column += 1
            continue
        # a failed iteration may leave half a pair at the end
        pair = slice(column, min(column + 2, vectors.shape[1]))
        real, imag = vectors[:, column], vectors[:, min(column + 1, vectors.shape[1] - 1)]
        result.real[:, pair] = real[:, None]
        result.imag[:, pair] = np.stack([imag, -imag], 1)[:, : pair.stop - column]
        column += 2
    return result


def _gees(letter: str, config: Config, a: Array) -> tuple[object, ...]:
    """Schur form, Schur vectors, eigenvalues."""
    vectors = config.get("mode") == "V"
    form, sdim, *values, vs, _, info = routine(letter, "gees")(
        lambda *_: None, a, compute_v=vectors, sort_t=0, lwork=work_size(letter, "gees", *a.shape)
    )
    return (form, vs if vectors else None, *values, sdim, info)


def _gehrd(letter: str, config: Config, a: Array) -> tuple[object, ...]:
    """Hessenberg form, reflectors below, taus; low and high count from 1."""
    low, high = config.get("low", 1), config.get("high", a.shape[0])
    assert isinstance(low, int), "an integer"
    assert isinstance(high, int), "an integer"
    room = work_size(letter, "gehrd", *a.shape)
    form, tau, info = routine(letter, "gehrd")(a, lo=low - 1, hi=high - 1, lwork=room)
    return form, tau, info


def _sytrd(letter: str, config: Config, a: Array) -> tuple[object, ...]:
    """Tridiagonal form: diagonal, off-diagonal, taus; reflectors in the triangle."""
    name = "sytrd" if letter in REAL else "hetrd"
    form, diagonal, off, tau, info = routine(letter, name)(
        a, lower=config.get("uplo") == "L", lwork=work_size(letter, "sytrd", *a.shape)
    )
    return form, diagonal, off, tau, info


def _gtsv(
    letter: str,
    config: Config,
    lower: Array,
    diagonal: Array,
    upper: Array,
    b: Array,
) -> tuple[object, ...]:
    """X of a tridiagonal system; lower[0] and upper[n-1] are ignored."""
    *_, x, info = routine(letter, "gtsv")(lower[1:], diagonal, upper[:-1], b)
    return None, None, None, (b if info else x), info


def _perturbed(
    letter: str,
    config: Config,
    lower: Array,
    diagonal: Array,
    upper: Array,
    b: Array,
) -> tuple[object, ...]:
    """The same solution, zero pivots replaced by eps times the largest element."""
    matrix = np.diag(diagonal) + np.diag(lower[1:], -1) + np.diag(upper[:-1], 1)
    tiny = np.finfo(matrix.dtype).eps * max(float(np.max(np.abs(matrix))), 1e-30)
    factor, pivots, _ = routine(letter, "getrf")(matrix)
    zero = np.diagonal(factor) == 0
    factor[zero.nonzero()[0], zero.nonzero()[0]] = tiny
    return (routine(letter, "getrs")(factor, pivots, b)[0],)


FAMILIES: tuple[tuple[str, str, Single, tuple[int, ...]], ...] = (
    ("sdcz", "getrf", _getrf, (2,)),
    ("sdcz", "potrf", _potrf, (2,)),
    ("sdcz", "geqrf", _geqrf, (2,)),
    ("sdcz", "geqp3", _geqp3, (2, 1)),
    ("sd", "orgqr", _orgqr, (2, 1)),
    ("cz", "ungqr", _orgqr, (2, 1)),
    ("sd", "ormqr", _ormqr, (2, 1, 2)),
    ("cz", "unmqr", _ormqr, (2, 1, 2)),
    ("sdcz", "trsm", _trsm, (2, 2)),
    ("sdcz", "gesdd", _svd("gesdd"), (2,)),
    ("sdcz", "gesvd", _svd("gesvd"), (2,)),
    ("sd", "syevd", _eigh, (2,)),
    ("cz", "heevd", _eigh, (2,)),
    ("sdcz", "geev", _geev, (2,)),
    ("sdcz", "gees", _gees, (2,)),
    ("sdcz", "gehrd", _gehrd, (2,)),
    ("sd", "sytrd", _sytrd, (2,)),
    ("cz", "hetrd", _sytrd, (2,)),
    ("sdcz", "gtsv", _gtsv, (1, 1, 1, 2)),
)
_BATCHED = {
    f"lapack_{letter}{name}_ffi": _batched(letter, single, trailing)
    for letters, name, single, trailing in FAMILIES
    for letter in letters
}
# Targets of XLA's own that a routine answers, where there is a LAPACK. Source: docs/control.md 5.2.
LIBRARY_ROUTINES = {"Qr": "geqrf", "ProductOfElementaryHouseholderReflectors": "orgqr"}
MATRIX_TARGETS = frozenset((*_BATCHED, *LIBRARY_ROUTINES))
for _name, _function in _BATCHED.items():
    TARGETS.enter(_name, _function)


def _tridiagonal_perturbed(*operands: Array, call: CustomCall) -> object:
    letter = next(k for k, t in TYPES.items() if t == operands[0].dtype)
    return _batched(letter, _perturbed, (1, 1, 1, 2))(*operands, call=call)


TARGETS.enter("tridiagonal_solve_perturbed_ffi", _tridiagonal_perturbed)
