"""LAPACK's routines as JAX's custom calls name them: the steps of one problem.

Results and their meaning are those of hlo/ops/lapack.py, bit for bit: both call SciPy's library
with the same workspace. Arguments stand in the order of LAPACK's reference.
"""

from __future__ import annotations

from collections.abc import Callable

from hlo.backend.ir.writer import Value
from hlo.backend.kernels.linear_algebra.lapack_call import NULL, LapackCall
from hlo.errors import HloError
from hlo.ir import dtype as dt
from hlo.ops.lapack_workspace import integer_work_size, real_work_size, work_size

Steps = Callable[[LapackCall], None]


def _work(call: LapackCall, name: str, m: int, n: int, *, vectors: bool = True) -> list[Value]:
    """work, lwork"""
    size = work_size(call.letter, name, m, n, vectors=vectors)
    return [call.scratch(size, call.dtype), call.number(size)]


def _sizes(call: LapackCall, *numbers: int) -> list[Value]:
    return [call.number(n) for n in numbers]


def _info(call: LapackCall, number: int) -> Value:
    return call.result(number, (), dt.S32)


def _square(call: LapackCall) -> int:
    m, n = call.matrix_dims(0)
    if m != n:
        raise HloError("unsupported", f"a matrix of {m} rows and {n} columns, expected a square")
    return n


def _getrf(call: LapackCall) -> None:
    m, n = call.matrix_dims(0)
    a, pivots = call.matrix(0), call.result(1, (min(m, n),), dt.S32)
    call.call("getrf", *_sizes(call, m, n), a, call.number(m), pivots, _info(call, 2))
    call.give(0, a, m, n)


def _geqrf(call: LapackCall) -> None:
    m, n = call.matrix_dims(0)
    a, tau, info = call.matrix(0), call.result(1, (min(m, n),)), call.scratch(1, dt.S32)
    work = _work(call, "geqrf", m, n)
    call.call("geqrf", *_sizes(call, m, n), a, call.number(m), tau, *work, info)
    call.give(0, a, m, n)


def _geqp3(call: LapackCall) -> None:
    m, n = call.matrix_dims(0)
    a, tau = call.matrix(0), call.result(2, (min(m, n),))
    columns = call.vector(1, n, dt.S32)
    work = _work(call, "geqp3", m, n)
    if not call.is_real:
        work.append(call.scratch(2 * n, call.real))
    info = call.scratch(1, dt.S32)
    call.call("geqp3", *_sizes(call, m, n), a, call.number(m), columns, tau, *work, info)
    call.copy(1, columns, n, dt.S32)
    call.give(0, a, m, n)


def _orgqr(call: LapackCall) -> None:
    m, n = call.matrix_dims(0)
    count = call.operands[1].dims[-1]
    if not count <= n <= m:
        raise HloError("unsupported", f"{count} reflectors of {m} x {n}, expected a tall matrix")
    a, tau = call.matrix(0), call.vector(1, count)
    work, info = _work(call, "orgqr", m, n), call.scratch(1, dt.S32)
    name = "orgqr" if call.is_real else "ungqr"
    call.call(name, *_sizes(call, m, n, count), a, call.number(m), tau, *work, info)
    call.give(0, a, m, n)


def _ormqr(call: LapackCall) -> None:
    (m, n), (rows, columns) = call.matrix_dims(2), call.matrix_dims(0)
    count, left = call.operands[1].dims[-1], bool(call.config.get("left"))
    if rows != (m if left else n) or count > min(rows, columns):
        raise HloError("unsupported", f"reflectors of {rows} rows for a matrix of {m} x {n}")
    a, tau, c = call.matrix(0), call.vector(1, count), call.matrix(2)
    work, info = _work(call, "ormqr", m, n), call.scratch(1, dt.S32)
    turned = "T" if call.is_real else "C"
    sides = (
        call.choice("L" if left else "R"),
        call.choice(turned if call.config.get("transpose") else "N"),
    )
    name = "ormqr" if call.is_real else "unmqr"
    sizes = _sizes(call, m, n, count)
    call.call(name, *sides, *sizes, a, call.number(rows), tau, c, call.number(m), *work, info)
    call.give(0, c, m, n)


def _svd(call: LapackCall) -> None:
    m, n = call.matrix_dims(0)
    mode, a = str(call.config.get("mode")), call.matrix(0)
    steps = _gesdd if "gesdd" in str(call.instruction.get("custom_call_target")) else _gesvd

    def bad() -> None:
        for number in range(4):
            call.cleared(number)
        call.report(4, -4)

    call.unless_nan(a, m * n, lambda: _decomposed(call, steps, a, mode), bad)


def _decomposed(call: LapackCall, steps: Callable[..., None], a: Value, mode: str) -> None:
    """A = U diag(s) V^H; in mode N s alone."""
    m, n = call.matrix_dims(0)
    least = min(m, n)
    vectors, whole = mode != "N", mode == "A"
    width, height = (m, n) if whole else (least, least)
    u = call.scratch(m * width if vectors else 1, call.dtype)
    vt = call.scratch(height * n if vectors else 1, call.dtype)
    strides = _sizes(call, *((m, height) if vectors else (1, 1)))
    job = call.choice("A" if whole else "S" if vectors else "N")
    s = call.result(1, (least,), call.real)
    steps(call, job, a, s, (u, strides[0], vt, strides[1]))
    call.cleared(0)
    if vectors:
        call.give(2, u, m, width)
        call.give(3, vt, height, n)
    else:
        call.cleared(2)
        call.cleared(3)


def _gesdd(call: LapackCall, job: Value, a: Value, s: Value, vectors: tuple[Value, ...]) -> None:
    m, n = call.matrix_dims(0)
    least, most, has_vectors = min(m, n), max(m, n), job.text != "@hlo_letter_N"
    work = _work(call, "gesdd", m, n, vectors=has_vectors)
    if not call.is_real:
        square = 5 * least * least + 5 * least
        size = max(square, 2 * most * least + 2 * least * least + least)
        work.append(call.scratch(size if has_vectors else 7 * least, call.real))
    work.append(call.scratch(8 * least, dt.S32))
    sizes = _sizes(call, m, n)
    call.call("gesdd", job, *sizes, a, call.number(m), s, *vectors, *work, _info(call, 4))


def _gesvd(call: LapackCall, job: Value, a: Value, s: Value, vectors: tuple[Value, ...]) -> None:
    m, n = call.matrix_dims(0)
    work = _work(call, "gesvd", m, n)
    if not call.is_real:
        work.append(call.scratch(5 * min(m, n), call.real))
    sizes = _sizes(call, m, n)
    call.call("gesvd", job, job, *sizes, a, call.number(m), s, *vectors, *work, _info(call, 4))


def _eigh(call: LapackCall) -> None:
    n, a = _square(call), call.matrix(0)

    def bad() -> None:
        call.filled(0, (n, n))
        call.filled(1, (n,), call.real)
        call.report(2, 0)

    call.unless_nan(a, n * n, lambda: _diagonalised(call, a, n), bad)


def _diagonalised(call: LapackCall, a: Value, n: int) -> None:
    vectors = call.config.get("mode") == "V"
    name = "syevd" if call.is_real else "heevd"
    work = _work(call, name, n, n, vectors=vectors)
    if not call.is_real:
        size = real_work_size(n, vectors=vectors)
        work += [call.scratch(size, call.real), call.number(size)]
    size = integer_work_size(n, vectors=vectors)
    work += [call.scratch(size, dt.S32), call.number(size)]
    job = call.choice("V" if vectors else "N")
    uplo = call.choice("L" if call.config.get("uplo") == "L" else "U")
    w, order = call.result(1, (n,), call.real), call.number(n)
    call.call(name, job, uplo, order, a, order, w, *work, _info(call, 2))
    if vectors:
        call.give(0, a, n, n)
    else:
        call.cleared(0)


def _geev(call: LapackCall) -> None:
    n, a, values = _square(call), call.matrix(0), 2 if call.is_real else 1

    def bad() -> None:
        for number in range(values + 2):
            call.cleared(number)
        call.report(values + 2, -4)

    call.unless_nan(a, n * n, lambda: _eigenvalues(call, a, n, values), bad)


def _eigenvalues(call: LapackCall, a: Value, n: int, values: int) -> None:
    order = call.number(n)
    wanted = [call.config.get(f"compute_{side}") == "V" for side in ("left", "right")]
    vectors = [call.scratch(n * n if on else 1, call.dtype) for on in wanted]
    jobs = [call.choice("V" if on else "N") for on in wanted]
    strides = [order if on else call.number(1) for on in wanted]
    pairs = [v for pair in zip(vectors, strides, strict=True) for v in pair]
    w = [call.result(k, (n,)) for k in range(values)]
    work = _work(call, "geev", n, n)
    if not call.is_real:
        work.append(call.scratch(2 * n, call.real))
    call.call("geev", *jobs, order, a, order, *w, *pairs, *work, _info(call, values + 2))
    for number, (on, v) in enumerate(zip(wanted, vectors, strict=True), values):
        if not on:
            call.cleared(number)
        elif call.is_real:
            call.give_paired(number, v, w[1], n)
        else:
            call.give(number, v, n, n)


def _gees(call: LapackCall) -> None:
    n, a, values = _square(call), call.matrix(0), 2 if call.is_real else 1
    vectors, order = call.config.get("mode") == "V", call.number(n)
    schur = call.scratch(n * n if vectors else 1, call.dtype)
    w = [call.result(2 + k, (n,)) for k in range(values)]
    work = _work(call, "gees", n, n)
    if not call.is_real:
        work.append(call.scratch(n, call.real))
    work.append(call.scratch(n, dt.S32))
    call.call(
        "gees", call.choice("V" if vectors else "N"), call.choice("N"), NULL, order, a, order,
        call.result(2 + values, (), dt.S32), *w, schur, order if vectors else call.number(1),
        *work, _info(call, 3 + values),
    )  # fmt: skip
    call.give(0, a, n, n)
    if vectors:
        call.give(1, schur, n, n)
    else:
        call.cleared(1)


def _gehrd(call: LapackCall) -> None:
    n, a = _square(call), call.matrix(0)
    low, high = call.config.get("low", 1), call.config.get("high", n)
    assert isinstance(low, int), "an integer"
    assert isinstance(high, int), "an integer"
    tau, work = call.result(1, (n - 1,)), _work(call, "gehrd", n, n)
    order = call.number(n)
    call.call("gehrd", order, *_sizes(call, low, high), a, order, tau, *work, _info(call, 2))
    call.give(0, a, n, n)


def _sytrd(call: LapackCall) -> None:
    n, a = _square(call), call.matrix(0)
    diagonal, off = call.result(1, (n,), call.real), call.result(2, (n - 1,), call.real)
    tau, work = call.result(3, (n - 1,)), _work(call, "sytrd", n, n)
    uplo = call.choice("L" if call.config.get("uplo") == "L" else "U")
    name, order = "sytrd" if call.is_real else "hetrd", call.number(n)
    call.call(name, uplo, order, a, order, diagonal, off, tau, *work, _info(call, 4))
    call.give(0, a, n, n)


def _gtsv(call: LapackCall) -> None:
    n, count = call.matrix_dims(3)
    lower, diagonal, upper = (call.vector(k, n) for k in range(3))
    b, order, info = call.matrix(3), call.number(n), _info(call, 4)
    below = call.after(lower, 1)  # lower[0] is no part of the matrix
    call.call("gtsv", order, call.number(count), below, diagonal, upper, b, order, info)
    for number in range(3):
        call.cleared(number)
    call.unless_failed(info, lambda: call.give(3, b, n, count), lambda: call.keep(3, 3))


ROUTINES: dict[str, tuple[str, int, Steps]] = {
    "getrf": ("sdcz", 2, _getrf),
    "geqrf": ("sdcz", 2, _geqrf),
    "geqp3": ("sdcz", 2, _geqp3),
    "orgqr": ("sd", 2, _orgqr),
    "ungqr": ("cz", 2, _orgqr),
    "ormqr": ("sd", 2, _ormqr),
    "unmqr": ("cz", 2, _ormqr),
    "gesdd": ("sdcz", 2, _svd),
    "gesvd": ("sdcz", 2, _svd),
    "syevd": ("sd", 2, _eigh),
    "heevd": ("cz", 2, _eigh),
    "geev": ("sdcz", 2, _geev),
    "gees": ("sdcz", 2, _gees),
    "gehrd": ("sdcz", 2, _gehrd),
    "sytrd": ("sd", 2, _sytrd),
    "hetrd": ("cz", 2, _sytrd),
    "gtsv": ("sdcz", 1, _gtsv),
}
# Those that are done in a number of steps that follows from the sizes.
DIRECT = frozenset({
    "getrf", "geqrf", "geqp3", "orgqr", "ungqr", "ormqr", "unmqr", "gehrd", "sytrd", "hetrd",
    "gtsv",
})  # fmt: skip
