"""Shared functions: long functions that kernels define for themselves, once for a whole program.

    kernels by name --shared--> kernels that declare them, and the functions as kernels

A mathematical function takes LLVM as long as a kernel: compiled once it is no part of each module
that calls it, and processors share the work. Short ones stay, and so does data.

LLVM's middle-end, which sees the kernels of short loops, copies a function that is called once to
its place; one that is called more often stays, and what the middle-end does to it is wasted.
"""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from hlo.backend.ir.definitions import digest_of, symbol_of
from hlo.backend.ir.functions import Data, Definition, Function
from hlo.backend.ir.kernel import Kernel

LEAST_LINES = 24  # Lines of a function that is worth a symbol of its own.
OFTEN = 2  # A function that is called so often LLVM does not copy into its callers.
PURE = "nounwind willreturn memory(none)"  # What LLVM is told of a function of its arguments alone.


def shared(kernels: dict[str, Kernel]) -> dict[str, Kernel]:
    """The kernels, their long functions called by name, and those functions before them."""
    functions: dict[str, Kernel] = {}
    rest: dict[str, Kernel] = {}
    for name, kernel in kernels.items():
        has_long = any(map(_is_long, kernel.globals))
        rest[name] = _Split(kernel, functions).kernel(kernel.function) if has_long else kernel
    return functions | rest


def shared_often(kernels: dict[str, Kernel]) -> tuple[dict[str, Kernel], dict[str, Kernel]]:
    """The kernels, those long functions called by name that they name more than once, and these
    functions.
    """
    long = {x.text: x for kernel in kernels.values() for x in kernel.globals if _is_long(x)}
    named = Counter(s for kernel in kernels.values() for s in kernel.function.symbols)
    named.update(s for function in long.values() for s in function.symbols)  # once its own
    seldom = frozenset(s for s, count in named.items() if count < OFTEN + 1)
    functions: dict[str, Kernel] = {}
    return {n: _Split(k, functions, seldom).pure(k) for n, k in kernels.items()}, functions


def _is_long(definition: Definition) -> bool:
    return not isinstance(definition, Data) and definition.length >= LEAST_LINES


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
        self.declarations = {symbol_of(line): line for line in self.declared}
        self.moved: dict[str, tuple[str, str]] = {}  # symbol: the new one, its declaration

    def kernel(self, function: Function) -> Kernel:
        """A function as a kernel with what it needs beside it."""
        needed = self._needed(function)
        moved = {s: self._moved(s) for s in needed if s in self.definitions and self._goes(s)}
        kept = [s for s in needed if s in self.definitions and s not in moved]
        new = {old: name for old, (name, _) in moved.items()}
        loose = [x for x in self.original.declarations if x not in self.declared]
        declared = [self.declarations[s] for s in needed if s in self.declarations]
        return replace(
            self.original,
            function=function.renamed(new),
            declarations=(*loose, *declared, *(line for _, line in moved.values())),
            globals=tuple(self.definitions[s].renamed(new) for s in kept),
        )

    def pure(self, kernel: Kernel) -> Kernel:
        """The kernel, what it declares of functions told to LLVM's middle-end as pure."""
        if not any(map(self._goes, self.definitions)):
            return kernel
        made = self.kernel(kernel.function)
        told = {
            d: f"{d} {PURE}" for _, d in self.moved.values() if "ptr" not in d.partition("(")[2]
        }
        return replace(made, declarations=tuple(told.get(d, d) for d in made.declarations))

    def _goes(self, symbol: str) -> bool:
        return symbol not in self.staying and _is_long(self.definitions[symbol])

    def _needed(self, function: Function) -> dict[str, None]:
        """The symbols that a function uses, itself or by what stays beside it, in their order."""
        found: dict[str, None] = {}
        waiting: list[Definition] = [function]
        while waiting:
            for symbol in dict.fromkeys(waiting.pop().symbols):
                if symbol in found:
                    continue
                found[symbol] = None
                if symbol in self.definitions and not self._goes(symbol):
                    waiting.append(self.definitions[symbol])
        return found

    def _moved(self, symbol: str) -> tuple[str, str]:
        """The name of a function in the program, and its declaration."""
        known = self.moved.get(symbol)
        if known is None:
            function = self.definitions[symbol]
            assert not isinstance(function, Data), "a long one is no data"
            everything = _Split(self.original, self.functions)
            made = replace(
                everything.kernel(replace(function, symbol="KERNEL", linkage="")),
                is_library=function.is_library, scratch_bytes=0, in_place=frozenset(),
                must_alias=frozenset(), functions=(),
            )  # fmt: skip
            name = f"m_{symbol}.{digest_of(made)}"
            self.functions.setdefault(name, made)
            types = ", ".join(p.type for p in function.parameters)
            known = self.moved[symbol] = (name, f"declare {function.result} @{name}({types})")
        return known
