"""Variant: a jitted function for arguments of certain types, as an executable with its convention.

leaves of the arguments --kept, cast--> parameters --executable--> result leaves --tree--> results
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hlo.formats.jax_program import Lowering
from hlo.frontend.arrays import numpy_leaf, result_maker
from hlo.tools import jax_door

Native = Callable[..., Any]
as_numpy = np.asarray
# Arrays that a variant has returned, by identity: memory of ours, which may be given away.
_OWN: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


class Variant:
    """Called with the leaves of all arguments that are not static."""

    def __init__(
        self, lowering: Lowering, executable: Any, context: object, *, as_jax: bool, count: int
    ) -> None:
        self.executable = executable
        self.context = context  # the settings of JAX under which it was traced
        self._lowering = lowering
        self._count = count  # of the arguments' leaves
        self._array_type = (jax_door.private("ArrayImpl"),) * count
        self._donates = bool(lowering.donated)
        parameters = lowering.module.entry.parameters
        first = lowering.tokens + len(lowering.constants)
        self._types = [p.shape.dtype.numpy for p in parameters[first:]]
        self._before = (None,) * lowering.tokens + lowering.constants
        self._makers = [result_maker(r, as_jax=as_jax) for r in lowering.results]
        self._is_plain = not any(self._makers)
        shape = lowering.module.entry.root.shape
        self._is_tuple = shape.is_tuple
        self._unflatten = lowering.tree.unflatten

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
        if not self._donates:
            return self.executable(*values)
        given = []
        first = len(self._before)
        for place, k in enumerate(self._lowering.kept):
            if k in self._lowering.donated and _OWN.get(id(leaves[k])) is leaves[k]:
                given.append(first + place)
        made = self.executable(*values, donate=given)
        for k in self._lowering.donated:
            if hasattr(leaves[k], "delete"):
                leaves[k].delete()  # as JAX does
        return made

    def _finished(self, results: Sequence[Any]) -> Any:
        """Result leaves in the form and the tree of the function's results."""
        if not self._is_plain:
            pairs = zip(self._makers, results, strict=True)
            results = [array if make is None else make(array) for make, array in pairs]
        if self._donates:
            for array in results:
                if type(array) is np.ndarray:
                    _OWN[id(array)] = array
        return self._unflatten(results)

    def native(self, declining: Native) -> Native | None:
        """A function of the plain leaves that makes the whole call, where there can be one.

        declining: what it calls for arguments that it does not take.
        """
        lowering = self._lowering
        is_whole = not self._before and lowering.kept == tuple(range(self._count))
        if not is_whole or self._donates:
            return None
        own = getattr(self.executable, "native", None)  # a program with sizes of the run has none
        native: Native | None = None if own is None else own(_declined)
        return None if native is None else self._guarded(native, declining)

    def _guarded(self, native: Native, declining: Native) -> Native:
        """The native function for arrays alone: it would take numbers, which are of weak types."""
        arrays, array_type = (np.ndarray,) * self._count, self._array_type
        context, known = jax_door.private("trace_context"), self.context
        finish = self._finish()

        def call(*arguments: Any) -> Any:
            kinds = tuple(map(type, arguments))
            if context() != known:
                return declining(*arguments)
            if kinds == arrays:
                made = native(*arguments)
            elif kinds != array_type or True in [a.weak_type for a in arguments]:
                return declining(*arguments)
            else:
                made = native(*[as_numpy(a) for a in arguments])
            if made is None:
                return declining(*arguments)
            return made if finish is None else finish(made)

        return call

    def _finish(self) -> Callable[[Any], Any] | None:
        """What makes the function's results of the executable's; None where they are the same."""
        if self._gives_leaves():
            return None
        if self._is_tuple:
            return self._finished
        maker, unflatten = self._makers[0], self._unflatten
        if maker is None:
            return lambda made: unflatten((made,))
        is_leaf = self._lowering.tree == jax_door.leaf_tree()
        return maker if is_leaf else lambda made: self._finished((made,))

    def _gives_leaves(self) -> bool:
        """Whether the executable's result is the function's: a leaf, or a tuple of leaves."""
        if not self._is_plain:
            return False
        count = len(self._lowering.results)
        tree = self._unflatten(range(count))
        expected: object = tuple(range(count)) if self._is_tuple else 0
        return type(tree) is type(expected) and tree == expected


def _declined(*leaves: object) -> None:
    """What the native function answers to leaves that it does not take."""
