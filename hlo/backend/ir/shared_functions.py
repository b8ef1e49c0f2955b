"""Shared functions: long functions that kernels define for themselves, once for a whole program.

    kernels by name --shared--> kernels that declare them, and the functions as kernels

A mathematical function takes LLVM as long as a kernel: compiled once it is no part of each module
that calls it, and processors share the work. Short ones stay, and so does data.

LLVM's middle-end, which sees the kernels of short loops, copies a function that is called once to
its place; one that is called more often it leaves, and what it does to that one is in vain.
"""

from __future__ import annotations

import re
from collections import Counter

from msgspec.structs import replace

from hlo.backend.ir.definitions import digest_of
from hlo.backend.ir.functions import Definition, Opaque
from hlo.backend.ir.kernel import Kernel

LEAST_LINES = 24  # of a function that is worth a symbol of its own
OFTEN = 2  # calls of a function that LLVM leaves where it is
PURE = "nounwind willreturn memory(none)"  # a function of values alone
_HEAD = re.compile(r"define internal (?P<result>.+) @(?P<symbol>[\w.$-]+)\((?P<parameters>.*)\)")
_SYMBOL = re.compile(r"@([\w.$-]+)")


def shared(kernels: dict[str, Kernel]) -> dict[str, Kernel]:
    """The kernels, their long functions called by name, and those functions before them."""
    functions: dict[str, Kernel] = {}
    rest: dict[str, Kernel] = {}
    for name, kernel in kernels.items():
        has_long = any(map(_is_long, kernel.globals))
        rest[name] = _Split(kernel, functions).kernel(kernel.text) if has_long else kernel
    return functions | rest


def shared_often(kernels: dict[str, Kernel]) -> tuple[dict[str, Kernel], dict[str, Kernel]]:
    """The kernels, those long functions called by name that they name more than once, and these
    functions.
    """
    definitions = {x.text for kernel in kernels.values() for x in kernel.globals if _is_long(x)}
    texts = [*definitions, *(kernel.text for kernel in kernels.values())]
    calls = Counter(symbol for text in texts for symbol in _SYMBOL.findall(text))
    seldom = frozenset(s for s, count in calls.items() if count < OFTEN + 1)  # and once its own
    functions: dict[str, Kernel] = {}
    return {n: _Split(k, functions, seldom).pure(k) for n, k in kernels.items()}, functions


def _is_long(definition: Definition) -> bool:
    return definition.length >= LEAST_LINES and definition.text.startswith("define internal")


class _Split:
    """One kernel's definitions, looked up by symbol. functions: of the program, added to; staying:
    those that the kernel keeps.
    """

    def __init__(
        self,
        kernel: Kernel,
        functions: dict[str, Kernel],
        staying: frozenset[str] = frozenset(),
    ) -> None:
        self.original = kernel
        self.functions = functions
        self.staying = staying
        self.definitions = {x.symbol: x for x in kernel.globals}
        self.declared = [x for x in kernel.declarations if x.startswith(("declare ", "@"))]
        self.declarations = {_SYMBOL.search(line)[1]: line for line in self.declared}  # type: ignore[index]
        self.moved: dict[str, tuple[str, str]] = {}  # symbol: the new one, its declaration

    def kernel(self, text: str) -> Kernel:
        """A function's text as a kernel with what it needs beside it."""
        needed = self._needed(text)
        moved = {s: self._moved(s) for s in needed if s in self.definitions and self._goes(s)}
        kept = [s for s in needed if s in self.definitions and s not in moved]
        new = {old: name for old, (name, _) in moved.items()}
        loose = [x for x in self.original.declarations if x not in self.declared and "!" in text]
        declared = [self.declarations[s] for s in needed if s in self.declarations]
        return replace(
            self.original,
            function=Opaque("KERNEL", _renamed(text, new)),
            declarations=(*loose, *declared, *(line for _, line in moved.values())),
            globals=tuple(Opaque(s, _renamed(self.definitions[s].text, new)) for s in kept),
        )

    def pure(self, kernel: Kernel) -> Kernel:
        """The kernel, what it declares of functions told to LLVM's middle-end as pure."""
        if not any(map(self._goes, self.definitions)):
            return kernel
        made = self.kernel(kernel.text)
        told = {
            d: f"{d} {PURE}" for _, d in self.moved.values() if "ptr" not in d.partition("(")[2]
        }
        return replace(made, declarations=tuple(told.get(d, d) for d in made.declarations))

    def _goes(self, symbol: str) -> bool:
        return symbol not in self.staying and _is_long(self.definitions[symbol])

    def _needed(self, text: str) -> dict[str, None]:
        """The symbols that a text uses, itself or by what stays beside it, in their order."""
        found: dict[str, None] = {}
        waiting = [text]
        while waiting:
            for symbol in dict.fromkeys(_SYMBOL.findall(waiting.pop())):
                if symbol in found:
                    continue
                found[symbol] = None
                if symbol in self.definitions and not self._goes(symbol):
                    waiting.append(self.definitions[symbol].text)
        return found

    def _moved(self, symbol: str) -> tuple[str, str]:
        """The name of a function in the program, and its declaration."""
        known = self.moved.get(symbol)
        if known is None:
            text = self.definitions[symbol].text
            head = _HEAD.match(text)
            assert head, f"a function has a head: {text[:80]}"
            everything = _Split(self.original, self.functions)
            body = f"define {text.removeprefix('define internal ')}"
            made = replace(
                everything.kernel(body.replace(f"@{symbol}(", "@KERNEL(", 1)),
                scratch_bytes=0, in_place=frozenset(), must_alias=frozenset(), functions=(),
            )  # fmt: skip
            name = f"m_{symbol}.{digest_of(made)}"
            self.functions.setdefault(name, made)
            types = ", ".join(p.rpartition(" ")[0] for p in _parameters(head["parameters"]))
            known = self.moved[symbol] = (name, f"declare {head['result']} @{name}({types})")
        return known


def _parameters(text: str) -> list[str]:
    """The parameters of a head: commas inside a structure's type part nothing."""
    parts: list[str] = []
    for part in text.split(", "):
        if parts and parts[-1].count("{") > parts[-1].count("}"):
            parts[-1] += f", {part}"
        elif part:
            parts.append(part)
    return parts


def _renamed(text: str, names: dict[str, str]) -> str:
    if not names:
        return text
    return _SYMBOL.sub(lambda found: f"@{names.get(found[1], found[1])}", text)
