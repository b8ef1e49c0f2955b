"""Custom-call targets of XLA's own that NumPy computes: TopK, Qr, Eigh, dynamic padding, CSR.

Source: docs/control.md 4.4, 5.2 and 5.4.
"""

from __future__ import annotations

import numpy as np

from hlo.ops.custom_targets import TARGETS, CustomCall
from hlo.ops.sorting import TopK, TopKAttributes

Array = np.ndarray


def _top_k(x: Array, *, call: CustomCall) -> tuple[Array, Array]:
    """The k largest by the total order, ties by lower index; the comparison is not consulted."""
    return TopK.evaluate(x, attrs=TopKAttributes(call.shape.elements[0].dims[-1]))


def _qr(a: Array, *, call: CustomCall) -> tuple[Array, Array]:
    """R on and above the diagonal, Householder vectors below, and taus."""
    packed, taus = np.linalg.qr(a.astype(_wide(a)), mode="raw")
    return np.swapaxes(packed, -1, -2).astype(a.dtype), taus.astype(a.dtype)


def _householder_product(a: Array, taus: Array, *, call: CustomCall) -> Array:
    """The first columns of H_1 .. H_k, H_i = I - tau_i v v^H, v_i = 1 above reflectors in a."""
    rows, columns = a.shape[-2:]
    wide = _wide(a)
    q = np.broadcast_to(np.eye(rows, columns, dtype=wide), a.shape).copy()
    for i in range(taus.shape[-1] - 1, -1, -1):
        v = a[..., :, i].astype(wide)
        v[..., :i], v[..., i] = 0, 1
        along = np.conj(v)[..., None, :] @ q
        q -= taus[..., i, None, None].astype(wide) * v[..., :, None] * along
    return q.astype(a.dtype)


def _eigh(a: Array, *, call: CustomCall) -> tuple[Array, Array]:
    """Eigenvectors in columns and eigenvalues; backend_config "lower,sort,iterations,tolerance"."""
    lower = call.backend_config.strip('"').split(",")[0] != "0"
    if np.isnan(a).any():
        return np.full_like(a, np.nan), np.full(a.shape[:-1], np.nan, a.real.dtype)
    values, vectors = np.linalg.eigh(a.astype(_wide(a)), UPLO="L" if lower else "U")
    return vectors.astype(a.dtype), values.astype(a.real.dtype)


def _wide(a: Array) -> type[np.generic]:
    return np.complex128 if np.iscomplexobj(a) else np.float64


def _pad_to_static(x: Array, *, call: CustomCall) -> tuple[Array, ...]:
    """The array at its bounds, zeros beyond its sizes, and one size per dimension."""
    padded = np.zeros(call.shape.elements[0].dims, x.dtype)
    padded[tuple(slice(0, n) for n in x.shape)] = x
    return padded, *(np.asarray(n, np.int32) for n in x.shape)


def _slice_to_dynamic(x: Array, *sizes: Array, call: CustomCall) -> Array:
    """The array cut to run-time sizes."""
    return x[tuple(slice(0, max(0, int(n))) for n in sizes)]


def _csr_product(
    values: Array, starts: Array, columns: Array, right: Array, *, call: CustomCall
) -> Array:
    """A sparse matrix in CSR form times a dense one.

    Entries that no row has, before the first start or behind the last one, count for nothing, and
    neither do those of columns that there are not.
    """
    bounds = np.clip(starts.astype(np.int64), 0, values.size)
    counts = np.maximum(np.diff(bounds), 0)
    rows = np.repeat(np.arange(starts.size - 1), counts)
    entries = np.repeat(bounds[:-1] - (np.cumsum(counts) - counts), counts) + np.arange(rows.size)
    is_there = (columns[entries] >= 0) & (columns[entries] < right.shape[0])
    rows, entries = rows[is_there], entries[is_there]
    scale = values[entries].reshape((-1,) + (1,) * (right.ndim - 1))
    result = np.zeros(call.shape.dims, np.result_type(right.dtype, np.float64))
    np.add.at(result, rows, scale * right[columns[entries]])
    return result.astype(right.dtype)


TARGETS.enter("TopK", _top_k)
TARGETS.enter("Qr", _qr)
TARGETS.enter("ProductOfElementaryHouseholderReflectors", _householder_product)
TARGETS.enter("Eigh", _eigh)
TARGETS.enter("PadToStatic", _pad_to_static)
TARGETS.enter("SliceToDynamic", _slice_to_dynamic)
TARGETS.enter("cpu_csr_sparse_dense_ffi", _csr_product)
