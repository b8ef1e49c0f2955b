"""Functions of LLVM IR from their text, for tests of what passes make of kernels."""

from hlo.backend.ir.functions import Definition, Opaque


def function_of(text: str) -> Definition:
    """The function that a definition defines, KERNEL or internal."""
    symbol = text[text.index("@") + 1 : text.index("(")] if text.startswith("define") else ""
    return Opaque(symbol or text[1 : text.index(" ")], text)
