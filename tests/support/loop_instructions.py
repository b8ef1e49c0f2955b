"""Instructions per element in innermost loops, read off a target's assembly: a table, not a timing.

    python -m tests.support.loop_instructions       kernels of f32 for each target, beside x86-64-v2

A loop ends with a jump back to where it begins, and is innermost if it holds no other. Elements are
lanes of its floating-point additions, products and maxima: what it is there for. Of WebAssembly,
whose operands lie on a stack, only what engines make instructions of is counted: moves between
locals, constants and the marks of blocks are not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hlo import driver
from hlo.machine import NAMED

BASE = "x86-64-v2"
TARGETS = (
    BASE, "x86-64-v3", "x86-64-v4", "armv8-a", "neoverse-v1", "rv64gcv", "wasm32-simd128",
)  # fmt: skip
FAST = ("armv7-a", "cortex-a7")  # vectors in fast mode only: NEON flushes subnormal numbers
_SUM = "s { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n"
_DOT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
# Of each the text of the entry, and what is counted: sums, products, maxima.
KERNELS = {
    "axpy": ("x = f32[65536] parameter(0)\n y = f32[65536] parameter(1)\n p = f32[65536] "
             "multiply(x, x)\n ROOT r = f32[65536] add(p, y)", "add"),
    "multiply": ("x = f32[65536] parameter(0)\n y = f32[65536] parameter(1)\n ROOT r = f32[65536] "
                 "multiply(x, y)", "mul"),
    "scale, shift": ("x = f32[256,512] parameter(0)\n y = f32[512] parameter(1)\n b = "
                     "f32[256,512] broadcast(y), dimensions={1}\n p = f32[256,512] multiply(x, b)\n"
                     " ROOT r = f32[256,512] subtract(p, b)", "mul"),
    "exponential": ("x = f32[65536] parameter(0)\n ROOT r = f32[65536] exponential(x)", "mul"),
    "tanh": ("x = f32[65536] parameter(0)\n ROOT r = f32[65536] tanh(x)", "mul"),
    "sum of rows": ("x = f32[256,512] parameter(0)\n z = f32[] constant(0)\n ROOT r = f32[256] "
                    "reduce(x, z), dimensions={1}, to_apply=s", "add"),
    "sum of columns": ("x = f32[256,512] parameter(0)\n z = f32[] constant(0)\n ROOT r = f32[512] "
                       "reduce(x, z), dimensions={0}, to_apply=s", "add"),
    "matrix by matrix": ("x = f32[256,256] parameter(0)\n y = f32[256,256] parameter(1)\n ROOT r = "
                         f"f32[256,256] dot(x, y), {_DOT}", "mul"),
    "matrix by vector": ("x = f32[512,512] parameter(0)\n y = f32[512] parameter(1)\n ROOT r = "
                         f"f32[512] dot(x, y), {_DOT}", "mul"),
}  # fmt: skip


class Kind(NamedTuple):
    """How a target writes f32's operations: patterns of their lines, each with its lanes."""

    add: Sequence[tuple[str, int]]
    mul: Sequence[tuple[str, int]]
    fused: Sequence[tuple[str, int]]  # count as either


def _x86(name: str) -> list[tuple[str, int]]:
    wide = [(rf"v?{name}ps\t.*%zmm", 16), (rf"v?{name}ps\t.*%ymm", 8)]
    return [*wide, (rf"v?{name}ps\t.*%xmm", 4), (rf"v?{name}ss\t", 1)]


KINDS = {
    "x86_64": Kind(_x86("add"), _x86("mul"), [
        (r"vfn?m(add|sub)\d+ps[ \t].*%zmm", 16), (r"vfn?m(add|sub)\d+ps[ \t].*%ymm", 8),
        (r"vfn?m(add|sub)\d+ps[ \t].*%xmm", 4), (r"vfn?m(add|sub)\d+ss", 1)]),
    "aarch64": Kind([(r"fadd\tv\S+\.4s", 4), (r"fadd\tv\S+\.2s", 2), (r"fadd\ts", 1)],
                    [(r"fmul\tv\S+\.4s", 4), (r"fmul\ts", 1)],
                    [(r"fml[as]\tv\S+\.4s", 4), (r"fn?m(add|sub)\ts", 1)]),
    "riscv64": Kind([(r"vfadd\.v", 4), (r"fadd\.s", 1)], [(r"vfmul\.v", 4), (r"fmul\.s", 1)],
                    [(r"vfn?m(acc|add|sac|sub)\.v", 4), (r"fn?m(add|sub)\.s", 1)]),
    "arm": Kind([(r"vadd\.f32\tq", 4), (r"vadd\.f32\td", 2), (r"vadd\.f32\ts", 1)],
                [(r"vmul\.f32\tq", 4), (r"vmul\.f32\td", 2), (r"vmul\.f32\ts", 1)],
                [(r"v(fn?m|ml)[as]\.f32\tq", 4), (r"v(fn?m|ml)[as]\.f32\ts", 1)]),
    "wasm32": Kind([(r"f32x4\.add", 4), (r"f32\.add", 1)],
                   [(r"f32x4\.mul", 4), (r"f32\.mul", 1)], []),
}  # fmt: skip
_NOT_COUNTED = re.compile(r"\.|#|@|//|local\.|[if](32|64)\.const|v128\.const|block|end_|loop|drop")


def loops(code: str) -> Iterator[list[str]]:
    """The lines of each innermost loop: instructions alone."""
    lines = [line.rstrip() for line in code.splitlines()]
    found = _structured(lines) if any("\tend_loop" in line for line in lines) else _jumps(lines)
    spans = sorted(set(found))
    for begin, end in spans:
        if any(begin <= b and e <= end and (b, e) != (begin, end) for b, e in spans):
            continue
        words = (line.strip() for line in lines[begin : end + 1] if line.startswith(("\t", " ")))
        yield [line for line in words if line and not _NOT_COUNTED.match(line)]


def _structured(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    begun: list[int] = []
    for number, line in enumerate(lines):
        if re.match(r"\tloop\b", line):
            begun.append(number)
        elif line.startswith("\tend_loop"):
            yield begun.pop(), number


def _jumps(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    places: dict[str, int] = {}
    for number, line in enumerate(lines):
        if label := re.match(r"([.\w$]+):", line.strip()):
            places[label[1]] = number
        elif jump := re.match(
            r"\s+(?:j\w+|b\w*|b\.\w+|cbn?z|tbn?z)\s(?:.*[ ,\t])?([.\w$]+)$", line
        ):
            name = re.sub(r"^(\d+)b$", r"\1", jump[1])
            if name in places:
                yield places[name], number


def per_element(code: str, architecture: str, counted: str) -> float:
    """Instructions per element of the loop that has most elements in a round."""
    kind = KINDS[architecture]
    patterns = [*getattr(kind, counted), *kind.fused]
    best = (0, 0)
    for lines in loops(code):
        elements = sum(
            next((lanes for pattern, lanes in patterns if re.match(pattern, line)), 0)
            for line in lines
        )
        best = max(best, (elements, -len(lines)))
    elements, instructions = best
    return -instructions / elements if elements else float("inf")


def measured(kernel: str, target: str) -> float:
    """Of a kernel by its name, for a target."""
    text, counted = KERNELS[kernel]
    module = driver.parse(f"HloModule m\n{_SUM}ENTRY e {{ {text} }}")
    mode = "fast" if target in FAST else "strict"
    made = driver.compile_ahead(module, target, mode=mode)
    return per_element(made.assembly, NAMED[target].architecture, counted)


def main() -> None:
    """The table, as docs/ahead_of_time.md has it."""
    print("| kernel |", " | ".join(f"`{t}`" for t in (*TARGETS, *FAST)), "|")  # noqa: T201
    print("|---" * (1 + len(TARGETS) + len(FAST)) + "|")  # noqa: T201
    for kernel in KERNELS:
        row = [f"{measured(kernel, target):.2f}" for target in (*TARGETS, *FAST)]
        print(f"| {kernel} |", " | ".join(row), "|")  # noqa: T201


if __name__ == "__main__":
    main()
