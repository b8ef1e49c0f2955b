"""The op table: one row per opcode, filed by family; families are imported by need.

What `evaluate` alone needs is imported in it: most programs are compiled, and have nothing computed
while they are.
"""

from collections.abc import Iterator

from hlo.ops.custom_targets import TARGETS
from hlo.ops.table import OPS


def _families() -> Iterator[None]:
    """Each enters its rows, those first that most programs need."""
    from hlo.ops import control  # noqa: F401

    yield

    from hlo.ops import elementwise  # noqa: F401

    yield

    from hlo.ops import movement  # noqa: F401

    yield

    from hlo.ops import reduction  # noqa: F401

    yield

    from hlo.ops import conversion  # noqa: F401

    yield

    from hlo.ops import contraction  # noqa: F401

    yield

    from hlo.ops import dynamic_slicing  # noqa: F401

    yield

    from hlo.ops import indexing  # noqa: F401

    yield

    from hlo.ops import convolution  # noqa: F401

    yield

    from hlo.ops import copying, random, sorting  # noqa: F401

    yield

    from hlo.ops import windowed_reduction  # noqa: F401

    yield

    from hlo.ops import custom_call, linear_algebra  # noqa: F401

    yield

    from hlo.ops import dynamic, normalization  # noqa: F401

    yield

    from hlo.ops import collectives, device_ids, exchanges, host  # noqa: F401

    yield


def _libraries() -> Iterator[None]:
    """Each enters functions of targets."""
    from hlo.ops import custom_call  # noqa: F401

    yield
    from hlo.ops import library_targets  # noqa: F401

    yield
    from hlo.ops import lapack  # noqa: F401

    yield


def _family_of(opcode: str) -> None:
    """The family of an op that few programs have, which need none of the others then."""
    match opcode:
        case "dot":
            from hlo.ops import contraction  # noqa: F401
        case "gather" | "scatter":
            from hlo.ops import indexing  # noqa: F401
        case "convolution":
            from hlo.ops import convolution  # noqa: F401
        case "copy":
            from hlo.ops import copying  # noqa: F401
        case "rng" | "rng-bit-generator" | "rng-get-and-update-state":
            from hlo.ops import random  # noqa: F401
        case "sort" | "topk":
            from hlo.ops import sorting  # noqa: F401
        case "reduce-window" | "select-and-scatter":
            from hlo.ops import windowed_reduction  # noqa: F401
        case "custom-call":
            from hlo.ops import custom_call  # noqa: F401
        case "fft" | "cholesky" | "triangular-solve":
            from hlo.ops import linear_algebra  # noqa: F401


OPS.fill_from(_families, _family_of)
TARGETS.fill_from(_libraries)
