"""hlo.jit: a function that JAX can trace, compiled by this package and called like jax.jit's.

    arguments --leaves, types--> a variant of the cache, or traced, lowered, compiled
              --executable--> result leaves --the function's tree--> results

The last variant is tried first, under the same settings of JAX: its native function checks types
and shapes itself, so that a call with plain arrays is one native call, and one with trees is that
between taking them apart and putting them together. What it declines goes the long way.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from hlo import driver
from hlo.errors import HloError
from hlo.formats.jax_program import is_jitted, lowered
from hlo.frontend.statics import Statics, statics_of
from hlo.frontend.variant import DECLINED, NUMBERS, Variant
from hlo.ops.custom_call import leave_callbacks
from hlo.process.once import lock
from hlo.tools.jax import jax_door

RESULTS = ("numpy", "jax")
# No settings of JAX are None.
_Direct = tuple[object, Callable[..., Any], Callable[[Any], Any] | None]
_NO_DIRECT: _Direct = (None, lambda *leaves: None, None)
Names = str | Sequence[str] | None
Numbers = int | Sequence[int] | None


def jit(
    f: Callable[..., Any] | None = None,
    *,
    static_argnums: Numbers = None,
    static_argnames: Names = None,
    donate_argnums: Numbers = None,
    donate_argnames: Names = None,
    results: str = "numpy",
    passes: str = "default",
    mode: str = "strict",
    threads: int | None = None,
) -> Any:
    """A function that runs f compiled, with the arguments of jax.jit; also as a decorator.

    results: "numpy" arrays, or "jax" arrays over the same memory. f may be jitted already; its own
    static and donated arguments count then. Given tracers (in jit, grad, vmap, scan) it calls f.
    Donated arrays that such a function returned before lend their memory to its results; they and
    their views must not be used afterwards. Raises HloError where the program is for several
    devices, or does something that this package has not; what JAX raises for f it raises.

    >>> import jax.numpy as jnp
    >>> hlo.jit(lambda x, y: jnp.maximum(x, y).sum())(np.float32([1, 5]), np.float32([4, 2]))
    array(9., dtype=float32)
    """
    if f is None:
        return functools.partial(
            jit,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
            donate_argnums=donate_argnums,
            donate_argnames=donate_argnames,
            results=results,
            passes=passes,
            mode=mode,
            threads=threads,
        )
    if results not in RESULTS:
        raise HloError("arguments", f"jit: results is {results!r}, expected one of {RESULTS}")
    jax_door.check_available()
    asked = {
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "donate_argnums": donate_argnums,
        "donate_argnames": donate_argnames,
    }
    given = {key: value for key, value in asked.items() if value is not None}
    if not is_jitted(f):
        f = jax_door.jax().jit(f, keep_unused=True, **given)
    elif given:
        raise HloError("arguments", f"jit: {', '.join(given)} of a function that is jitted already")
    compiling = {"passes": passes, "mode": mode, "threads": threads}
    return Jitted(f, as_jax=results == "jax", compiling=compiling)


class Jitted:
    """A function with its compiled variants, one for each of its arguments' types and statics."""

    def __init__(self, jitted: Any, *, as_jax: bool, compiling: dict[str, Any]) -> None:
        functools.update_wrapper(self, jitted)
        self._jitted = jitted
        self._as_jax = as_jax
        self._compiling = compiling
        self._statics: Statics | None = statics_of(jitted)
        self._variants: dict[Hashable, Variant] = {}
        self._lock = lock()
        self._flatten = jax_door.jax().tree_util.tree_flatten
        self._context = jax_door.private("trace_context")
        self._tracer = jax_door.private("Tracer")
        self._array = jax_door.private("ArrayImpl")
        # The last variant's way in for arguments that are leaves, and the settings that it is for.
        self._direct = _NO_DIRECT
        self._last: tuple[_Key, Variant] | None = None

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """f's results."""
        known, native, finish = self._direct
        if keywords or self._context() != known:
            return self._called(arguments, keywords)
        made = native(*arguments)
        if made is None:
            return self._called(arguments, keywords)
        return made if finish is None else finish(made)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """As a method: the instance is the first argument."""
        return self if instance is None else functools.partial(self, instance)

    def compiled_for(self, *arguments: Any, **keywords: Any) -> Any:
        """The executable for arguments, or for their shapes (jax.ShapeDtypeStruct); not run."""
        key, leaves = self._key(arguments, keywords)
        return self._variant(key, leaves, arguments, keywords).executable

    def clear_cache(self) -> None:
        """Forget all variants."""
        with self._lock:
            self._direct, self._last = _NO_DIRECT, None
            self._variants.clear()

    def _called(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """The call where arguments are trees, or no plain arrays."""
        key, leaves = self._key(arguments, keywords)
        given, last = leaves, self._last
        if last is not None and last[0] == key:
            made, given = last[1].tried(leaves)
            if made is not DECLINED:
                return made
        variant = self._variant(key, leaves, arguments, keywords)
        if variant is None:
            return self._by_jax(arguments, keywords)
        made = variant(given)
        if last is None or last[1] is not variant:
            direct = None
            if not keywords and _are_leaves(arguments, leaves):
                direct = variant.direct()
            self._direct = _NO_DIRECT if direct is None else (key.context, *direct)
            self._last = key, variant
        return made

    def _by_jax(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """f's results by JAX itself, of tracers or where jax.disable_jit has it run op by op."""
        made = self._jitted(*arguments, **keywords)
        if self._as_jax:
            return made
        leaves, tree = self._flatten(made)
        return tree.unflatten([np.asarray(v) if type(v) is self._array else v for v in leaves])

    def __deepcopy__(self, memo: object) -> Jitted:
        """Itself, as of any function."""
        return self

    def _key(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[_Key, list[Any]]:
        """What a variant is for beside the types of leaves, and the leaves."""
        static: Hashable = ()
        dynamic: tuple[Any, Any] = (arguments, keywords)
        if self._statics is not None:
            static, dynamic = self._statics.parted(arguments, keywords)
        leaves, tree = self._flatten(dynamic)
        return _Key(tree, static, self._context()), leaves

    def _variant(
        self, key: _Key, leaves: list[Any], arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        """The variant for arguments, None where one is a tracer or nothing is to be compiled."""
        types = tuple([self._type(leaf) for leaf in leaves])
        if self._tracer in types or jax_door.runs_eagerly():
            return None
        whole = types, key
        found = self._variants.get(whole)
        if found is None:
            with self._lock:
                found = self._variants.get(whole)
                if found is None:
                    found = self._made(arguments, keywords, leaves)
                    self._variants[whole] = found
        return found

    def _type(self, leaf: Any) -> Hashable:
        """What a program is made for: element type and shape; that of a number is weak."""
        kind = type(leaf)
        if kind is np.ndarray:
            return leaf.dtype, leaf.shape
        if kind is self._array:
            return leaf.aval  # type: ignore[no-any-return]  # hashed by type, shape, weakness
        if kind in NUMBERS:
            return cast(Hashable, kind)
        if isinstance(leaf, self._tracer):
            return cast(Hashable, self._tracer)
        if hasattr(leaf, "dtype") and hasattr(leaf, "shape"):
            weak = bool(getattr(leaf, "weak_type", False))
            return str(leaf.dtype), tuple(leaf.shape), weak
        return cast(Hashable, kind)

    def _made(
        self, arguments: tuple[Any, ...], keywords: dict[str, Any], leaves: list[Any]
    ) -> Variant:
        lowering = lowered(self._jitted.trace(*arguments, **keywords))
        if lowering.writes_references:
            message = "jit: a function that is given or holds references (jax.Ref)"
            raise HloError(
                "unsupported", message, help="give it their values, and let it return the new ones"
            )
        executable = driver.compile(lowering.module, **self._compiling)
        made = Variant(lowering, executable, leaves, as_jax=self._as_jax)
        if lowering.callbacks:
            weakref.finalize(made, leave_callbacks, lowering.callbacks)
        return made


class _Key(NamedTuple):
    """The tree of the arguments, static values, and the settings of JAX."""

    tree: Any
    static: Hashable
    context: object


def _are_leaves(arguments: Sequence[Any], leaves: Sequence[Any]) -> bool:
    """Whether each argument is a leaf that stays where it is."""
    if len(arguments) != len(leaves):
        return False
    return all(a is leaf for a, leaf in zip(arguments, leaves, strict=True))
