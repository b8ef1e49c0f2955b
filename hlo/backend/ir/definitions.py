"""Definitions: what kernels need beside their texts, in a module once each."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct, field
from msgspec.structs import replace

from hlo.backend.ir.functions import Definition, Function
from hlo.backend.ir.kernel import Kernel
from hlo.hashing import hasher

_SYMBOL = re.compile(r"@([\w.$-]+)")
_NAMED = "symbol"  # by what a kernel keeps its name


class Definitions(Struct):
    """A module's kernels, and their declarations, constants and helper functions.

    Equal ones are there once; a symbol that two kernels define differently is renamed in one.
    """

    declarations: dict[str, None] = field(default_factory=dict)
    by_symbol: dict[str, Definition] = field(default_factory=dict)
    functions: list[Function] = field(default_factory=list)

    def place(self, name: str, kernel: Kernel) -> None:
        """Enter the kernel under its own name, and its globals."""
        self.declarations.update(dict.fromkeys(kernel.declarations))
        changed = {
            x.symbol: f"{x.symbol}.{name}"
            for x in kernel.globals
            if self.by_symbol.get(x.symbol, x) != x
        }
        for x in kernel.globals:
            symbol = changed.get(x.symbol, x.symbol)
            self.by_symbol[symbol] = (x.named(symbol) if changed else x).renamed(changed)
        function = kernel.function.named(name)
        self.functions.append(function.renamed(changed) if changed else function)

    def drop_declared(self, symbols: Iterable[str]) -> None:
        """Forget declarations of symbols that the module defines."""
        defined = {*symbols, *self.by_symbol}
        for line in list(self.declarations):  # debug locations stand among them
            if line.startswith(("declare ", "@")) and symbol_of(line) in defined:
                del self.declarations[line]

    def lines(self) -> list[str]:
        definitions = (*self.by_symbol.values(), *self.functions)
        return [*self.declarations, *(x.text for x in definitions)]


def only_needed(kernel: Kernel, function: Function) -> Kernel:
    """A function as a kernel, with what it uses of the original's declarations and globals."""
    declared = {symbol_of(line): line for line in kernel.declarations if "@" in line}
    beside = {x.symbol: x for x in kernel.globals}
    used: set[str] = set()
    waiting: list[Definition] = [function]
    while waiting:
        new = {*waiting.pop().symbols} & (declared.keys() | beside.keys()) - used
        used |= new
        waiting += [beside[s] for s in new if s in beside]
    kept = {declared[s] for s in used if s in declared}
    return replace(
        kernel,
        function=function,
        declarations=tuple(x for x in kernel.declarations if x in kept or "@" not in x),
        globals=tuple(x for x in kernel.globals if x.symbol in used),
    )


def symbol_of(line: str) -> str:
    """The symbol that a declaration declares."""
    found = _SYMBOL.search(line)
    assert found, f"a declaration has a symbol: {line[:60]}"
    return found[1]


def renamed(text: str, changed: dict[str, str]) -> str:
    """The text with these symbols replaced."""
    return _SYMBOL.sub(lambda found: f"@{changed.get(found[1], found[1])}", text)


def symbol(kernel: Kernel) -> str:
    """A name made from the text, so that the same kernel in another program is the same object.
    Planning asks three or four times for it, of texts of tens of kilobytes.
    """
    known = kernel.__dict__.get(_NAMED)
    if known is None:
        known = kernel.__dict__[_NAMED] = f"k_{digest_of(kernel)}"
    return known


def digest_of(kernel: Kernel) -> str:
    """A hash of a kernel's text and of what it needs beside it."""
    digest = hasher(kernel.text.encode())
    for line in (*(x.text for x in kernel.globals), *kernel.declarations):
        digest.update(line.encode())
    return digest.hexdigest()[:20]
