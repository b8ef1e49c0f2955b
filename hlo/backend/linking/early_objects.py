"""Early objects: object files of a program whose modules come one after the other.

    with EarlyObjects(cache=True) as made: made.begin(module), ..., made.all_of(modules)

Other threads begin with the first of them, while the caller goes on: LLVM takes 0.1 to 0.2 of what
models take to compile, which planning hides. On one processor all are made in the end.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo.backend.ir.grouping import expected_us, processors
from hlo.backend.ir.ir_module import IrModule
from hlo.backend.linking.compile import objects
from hlo.backend.linking.workers import Workers


class EarlyObjects:
    """In a `with`, which leaves no thread behind. cache: as `objects` has it."""

    def __init__(self, *, cache: bool) -> None:
        self._cache = cache
        self._made: dict[tuple[str, ...], bytes] = {}
        self._begun: set[tuple[str, ...]] = set()
        self._workers: Workers | None = None

    def __enter__(self) -> EarlyObjects:
        return self

    def __exit__(self, *_: object) -> None:
        if self._workers is not None:
            self._workers.abandon()

    def begin(self, module: IrModule) -> None:
        """Have code made of a module, if there is another processor."""
        others = processors() - 1
        if not others:
            return
        if self._workers is None:
            self._workers = Workers()
        self._begun.add(module.symbols)
        self._workers.put(expected_us(module), lambda: self._make(module))
        self._workers.start(others)

    def _make(self, module: IrModule) -> None:
        (self._made[module.symbols],) = objects([module], cache=self._cache)

    def all_of(self, modules: Sequence[IrModule]) -> list[bytes]:
        """Those of all modules, the ones that were begun among them."""
        rest = [m for m in modules if m.symbols not in self._begun]
        made = objects(rest, cache=self._cache, workers=self._workers)
        self._made.update(zip([m.symbols for m in rest], made, strict=True))
        return [self._made[m.symbols] for m in modules]
