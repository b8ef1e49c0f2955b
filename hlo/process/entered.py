"""Tables that modules enter their parts into, each imported when something is looked for.

    TABLE: Entered[str, Row] = Entered()

    def _sources() -> Iterator[None]:
        from package import common      what it enters is there from now on
        yield
        from package import rare
        yield

    def _source_of(key: str) -> None:
        match key:
            case "seldom" | "hardly-ever":
                from package import rare

    TABLE.fill_from(_sources, _source_of)

A look-up that finds nothing lets the source run that is known to have the key, if one is, then the
next one, and looks again: so sources stand in the order in which programs need them. Whatever asks
for all of it (a loop over the keys, the length) lets them all run. Sources run one at a time, and
once; what a source imports must not look anything up while it is imported, as the thread that runs
a source may be waiting for that very import.

A source may be broken off: by an interrupt, or in a forked child whose parent's other thread ran
it. What it had entered is kept, and the next look-up starts the sources again: a module that is
imported by then enters nothing a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from hlo.process.once import lock

K = TypeVar("K")
V = TypeVar("V")


class Entered(dict[K, V]):
    """A dictionary that is filled by imports, as far as it has been asked for."""

    def __init__(self) -> None:
        super().__init__()
        self._start: Callable[[], Iterator[None]] = lambda: iter(())
        self._sources = self._start()
        self._source_of: Callable[[K], None] | None = None
        self._lock = lock()
        # What the source that runs has entered: others see it when its modules are whole.
        self._running: dict[K, V] | None = None
        self._repeatable: set[K] = set()  # what sources that were broken off had entered

    def fill_from(
        self, sources: Callable[[], Iterator[None]], source_of: Callable[[K], None] | None = None
    ) -> None:
        """What enters entries, one source between two yields. source_of: runs the source of a key
        alone, where it is known.
        """
        self._start, self._sources, self._source_of = sources, sources(), source_of

    def enter(self, key: K, value: V) -> None:
        """Put an entry in; nothing is imported to find out that it is new."""
        is_new = not super().__contains__(key) or key in self._repeatable
        assert is_new, f"two entries for {key}"
        if self._running is None:
            super().__setitem__(key, value)
        else:
            self._running[key] = value

    def __setitem__(self, key: K, value: V) -> None:
        """Put an entry in the place of any that there is."""
        _ = key in self  # a source that is run later would put its own there
        super().__setitem__(key, value)

    def _has_more(self, known: int) -> bool:
        """Whether there is more than so many entries, with the next source run if need be."""
        with self._lock:
            while super().__len__() == known:
                if self._ran(lambda: next(self._sources, self)) is self:
                    return False
        return True

    def _ran(self, source: Callable[[], object]) -> object:
        """What a source returns; its entries are in the table then, and those of one that was
        broken off before.
        """
        if self._running is None:
            self._running = {}
        else:
            self._repeatable |= self._running.keys()
            self._sources = self._start()
        found = source()
        self.update(self._running)
        self._running = None
        return found

    def _fill(self) -> None:
        while self._has_more(super().__len__()):
            pass

    def __missing__(self, key: K) -> V:
        source_of = self._source_of
        if source_of is not None:
            with self._lock:
                if not super().__contains__(key):
                    self._ran(lambda: source_of(key))
        while True:
            known = super().__len__()
            if super().__contains__(key):  # another thread's source may have entered it
                return super().__getitem__(key)
            if not self._has_more(known):
                raise KeyError(key)

    def get(self, key: K, default: Any = None) -> Any:
        """The entry of a key, imported if need be."""
        try:
            return self[key]
        except KeyError:
            return default

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or self.get(key, self) is not self  # type: ignore[arg-type]  # any object may be asked for

    def __iter__(self) -> Iterator[K]:
        self._fill()
        return super().__iter__()

    def __len__(self) -> int:
        self._fill()
        return super().__len__()

    def keys(self) -> Any:
        """All of them, as the two that follow."""
        self._fill()
        return super().keys()

    def values(self) -> Any:
        self._fill()
        return super().values()

    def items(self) -> Any:
        self._fill()
        return super().items()
