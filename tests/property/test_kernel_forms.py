"""Every form that a kernel takes: the programs of the digest, compiled, beside the reference.

The programs in tests/digest reach each branch of the kernels' loops; here the small ones of them
run. The digest tells whether their code changed, this whether it is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest

import hlo
from hlo.errors import HloError
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.runtime.native_calls import flattened
from hlo.tools.cases.inputs import made_up_inputs
from tests.support import program_texts
from tests.support.kernel_check import difference

LARGEST_BYTES = 1 << 20  # of an array
# Columns of bf16 are rounded at every step, as XLA's are: whole numbers stay exact.
KINDS = {"narrow_running_sums": "ints"}
# Whatever permutation a comparator leads to that is no order.
ANY_RESULT = {"no_order", "sides_that_differ"}


def small_programs() -> Iterator[tuple[str, Module]]:
    """The programs whose arrays are small, by their files, numbers and names."""
    for name, text in program_texts.written():
        if name.startswith("digest/"):
            module = hlo.parse(text, name)
            hlo.verify(module)
            shapes = [i.shape for c in module.computations for i in c.instructions]
            if module.name in ANY_RESULT:
                continue
            if all(s.size_bytes <= LARGEST_BYTES for shape in shapes for s in shape.leaves()):
                yield f"{name} {module.name}", module


PROGRAMS = dict(small_programs())


def tolerance(shapes: list[Shape]) -> float:
    """Of results relative to the largest of them: wider where a type has few digits."""
    return 4e-2 if any(s.dtype.is_float and s.dtype.bits <= 16 for s in shapes) else 2e-5


def outcome(run: Callable[..., object], arguments: list[object]) -> list[np.ndarray | None] | str:
    """The leaves of a result, or an error's code."""
    try:
        return list(flattened(run(*arguments)))
    except HloError as error:
        return error.code


@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_programs_agree_with_the_reference(name: str) -> None:
    module = PROGRAMS[name]
    arguments = made_up_inputs(module, KINDS.get(module.name, "normal"))
    wanted = outcome(partial(hlo.evaluate, module), arguments)
    passes = program_texts.passes_of(name)
    executable = hlo.compile(module, passes, cache=False, threads=2)
    found = outcome(executable, arguments)
    if isinstance(wanted, str) or isinstance(found, str):
        assert found == wanted
        return
    rtol = tolerance([s for s in module.entry.root.shape.leaves() if s.is_array])
    for got, want in zip(found, wanted, strict=True):
        if got is None or want is None:
            assert got is want, "a token for a token"
        else:
            assert difference(got, want, rtol) == ""
