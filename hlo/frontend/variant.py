"""Variant: a jitted function for arguments of certain types, as an executable with its convention.

leaves of the arguments --kept, cast--> parameters --executable--> result leaves --tree--> results

`tried` is the fast way: one native call, which checks types and shapes itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hlo.formats.jax_program import Lowering
from hlo.frontend.arrays import numpy_leaf, result_maker, seen
from hlo.frontend.ownership import enter, is_own, lent
from hlo.tools.jax import jax_door

Native = Callable[..., Any]
NUMBERS = (int, float, bool, complex)  # Python's, whose types are weak
DECLINED = object()  # what is no result


class Variant:
    """Called with the leaves of all arguments that are not static."""

    def __init__(
        self, lowering: Lowering, executable: Any, leaves: Sequence[Any], *, as_jax: bool
    ) -> None:
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
        has_all = lowering.kept == tuple(range(len(leaves)))
        self._native = self._alone(_declined, ()) if has_all and not lowering.tokens else None
        kinds = [type(leaf) for leaf in leaves]
        rows = enumerate(zip(kinds, self._types, strict=True)) if self._native else ()
        self._numbers = [(k, kind, dtype) for k, (kind, dtype) in rows if kind in NUMBERS]
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
                if array is not None:  # a token has no memory
                    enter(result, array)
        return self._unflatten(results)

    # -- the fast way --------------------------------------------------------------------------

    def tried(self, leaves: list[Any]) -> tuple[Any, list[Any]]:
        """The function's results, or DECLINED for leaves that are no plain arrays of these types;
        and the leaves, of which those that were given away are now their memory.
        """
        native, given = self._native, leaves
        if native is None or (self._donated and self._giving is None):
            return DECLINED, leaves
        if self._donated:
            memory = lent([leaves[k] for k in self._donated])
            if memory is None:
                return DECLINED, leaves
            native = self._giving if memory.is_free and self._giving is not None else native
            given = list(leaves)
            for k, array in zip(self._donated, memory.memories, strict=True):
                given[k] = array
        values = given if not self._numbers else self._numbered(given)
        made = None if values is None else native(*self._before, *values)
        if made is None and values is not None:
            viewed = seen(values)
            made = None if viewed is None else native(*self._before, *viewed)
        if made is None:
            return DECLINED, given
        return self._finished(made if self._is_tuple else (made,)), given

    def _numbered(self, leaves: list[Any]) -> list[Any] | None:
        """The leaves with arrays for Python's numbers; None where one is no such number."""
        found = list(leaves)
        for k, kind, dtype in self._numbers:
            if type(leaves[k]) is not kind:
                return None
            found[k] = np.asarray(leaves[k], dtype)
        return found

    def direct(self) -> tuple[Native, Callable[[Any], Any] | None] | None:
        """The fast way for arguments that are leaves, where nothing is donated or held.

        A function that gives the executable's result, or None for leaves that it declines, and what
        makes the function's of it, if it is not the same. None where there is no such way.
        """
        is_more = self._before or self._donated or self._numbers
        native = None if is_more else self._alone(self._viewing, ())
        if native is None or self._native is None:
            return None
        return native, None if self._gives_leaves() else self._finish()

    def _viewing(self, *leaves: Any) -> Any:
        """The way of jax arrays into a program that is too long to keep Python's lock."""
        viewed = seen(leaves)
        return None if viewed is None or self._native is None else self._native(*viewed)

    def _alone(self, declining: Native, given: tuple[int, ...]) -> Native | None:
        """The executable's native function; a program with sizes of the run has none."""
        own = getattr(self.executable, "native", None)
        made: Native | None = (
            None
            if own is None
            else own(declining, jax_door.array_type(as_results=self._as_jax), given)
        )
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
