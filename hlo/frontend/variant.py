"""Variant: a jitted function for arguments of certain types, as an executable with its convention.

leaves of the arguments --kept, cast--> parameters --executable--> result leaves --tree--> results

`tried` is the fast way: one native call, which checks types and shapes itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hlo.formats.jax_program import Lowering
from hlo.frontend.arrays import numpy_leaf, result_maker, seen
from hlo.frontend.ownership import enter, is_own, lent
from hlo.tools import jax_door

Native = Callable[..., Any]
DECLINED = object()  # what is no result


class Variant:
    """Called with the leaves of all arguments that are not static."""

    def __init__(self, lowering: Lowering, executable: Any, *, as_jax: bool, count: int) -> None:
        self.executable = executable
        self._lowering = lowering
        self._as_jax = as_jax
        self._donated = tuple(sorted(lowering.donated))
        parameters = lowering.module.entry.parameters
        first = lowering.tokens + len(lowering.constants)
        self._types = [p.shape.dtype.numpy for p in parameters[first:]]
        self._before = (None,) * lowering.tokens + lowering.constants
        shape = lowering.module.entry.root.shape
        shapes = (shape.elements if shape.is_tuple else (shape,))[lowering.tokens :]
        self._makers = [
            result_maker(r, s.dims, as_jax=as_jax)
            for r, s in zip(lowering.results, shapes, strict=True)
        ]
        self._is_tuple = shape.is_tuple
        self._unflatten = lowering.tree.unflatten
        has_all = lowering.kept == tuple(range(count))
        self._native = self._alone(_declined, ()) if has_all and not lowering.tokens else None
        self._giving: Native | None = None
        if self._native is not None and self._donated:
            places = tuple(k + len(self._before) for k in self._donated)
            self._giving = self._alone(_declined, places)

    def __call__(self, leaves: Sequence[Any]) -> Any:
        """The function's results."""
        kept = self._lowering.kept
        rows = zip(kept, self._types, strict=True)
        values = [*self._before, *(numpy_leaf(leaves[k], kind) for k, kind in rows)]
        made = self._run(values, leaves)
        results = made if self._is_tuple else (made,)
        return self._finished(results[self._lowering.tokens :])

    def _run(self, values: list[Any], leaves: Sequence[Any]) -> Any:
        """The executable's results; what it donates is memory that a variant has made."""
        if not self._donated:
            return self.executable(*values)
        given = []
        first = len(self._before)
        for place, k in enumerate(self._lowering.kept):
            if k in self._lowering.donated and is_own(leaves[k]):
                given.append(first + place)
        made = self.executable(*values, donate=given)
        for k in self._donated:
            if hasattr(leaves[k], "delete"):
                leaves[k].delete()  # as JAX does
        return made

    def _finished(self, arrays: Sequence[Any]) -> Any:
        """Result leaves in the form and the tree of the function's results."""
        pairs = zip(self._makers, arrays, strict=True)
        results = [array if make is None else make(array) for make, array in pairs]
        if self._donated:
            for result, array in zip(results, arrays, strict=True):
                enter(result, array)
        return self._unflatten(results)

    # -- the fast way --------------------------------------------------------------------------

    def tried(self, leaves: list[Any]) -> Any:
        """The function's results; DECLINED for leaves that are no plain arrays of these types."""
        if self._native is None:
            return DECLINED
        native, given = self._native, leaves
        if self._donated:
            if self._giving is None:
                return DECLINED
            memory = lent([leaves[k] for k in self._donated])
            if memory is None:
                return DECLINED
            native = self._giving if memory.is_free else native
            given = list(leaves)
            for k, array in zip(self._donated, memory.memories, strict=True):
                given[k] = array
        made = native(*self._before, *given)
        if made is None:
            viewed = seen(given)
            made = None if viewed is None else native(*self._before, *viewed)
            if made is None:
                return DECLINED
        return self._finished(made if self._is_tuple else (made,))

    def direct(self, otherwise: Native) -> Native | None:
        """The same as one function of the leaves, where nothing is donated or held.

        otherwise: what it calls for leaves that it declines. None where there is no fast way.
        """
        if self._native is None or self._before or self._donated:
            return None
        if self._gives_leaves():
            return self._alone(self._viewing(otherwise), ())
        native, finish = self._native, self._finish()

        def call(*leaves: Any) -> Any:
            made = native(*leaves)
            return otherwise(*leaves) if made is None else finish(made)

        return call

    def _viewing(self, otherwise: Native) -> Native:
        """What takes jax arrays of a program that is too long to keep Python's lock."""
        native = self._native
        assert native is not None, "asked for where there is one"

        def call(*leaves: Any) -> Any:
            viewed = seen(list(leaves))
            made = None if viewed is None else native(*viewed)
            return otherwise(*leaves) if made is None else made

        return call

    def _alone(self, declining: Native, given: tuple[int, ...]) -> Native | None:
        """The executable's native function; a program with sizes of the run has none."""
        own = getattr(self.executable, "native", None)
        made: Native | None = None if own is None else own(declining, jax_door.array_type(), given)
        return made

    def _finish(self) -> Callable[[Any], Any]:
        """What makes the function's results of the executable's."""
        if self._is_tuple:
            return self._finished
        maker, unflatten = self._makers[0], self._unflatten
        if maker is not None and unflatten([0]) == 0:
            return maker
        return lambda made: self._finished((made,))

    def _gives_leaves(self) -> bool:
        """Whether the executable's result is the function's: a leaf, or a tuple of leaves."""
        if any(self._makers):
            return False
        count = len(self._lowering.results)
        tree = self._unflatten(range(count))
        expected: object = tuple(range(count)) if self._is_tuple else 0
        return type(tree) is type(expected) and tree == expected


def _declined(*leaves: object) -> None:
    """What the native function answers to leaves that it does not take."""
