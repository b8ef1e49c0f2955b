"""Assembly: instructions of x86 as text, for kernels that LLVM needs long to compile as its own.

AT&T's syntax: sources first, the target last. Operands of the whole are $0, $1, ..; an address is
written `offset(operand)`. One method, one instruction; a kernel puts them in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from hlo.backend.ir.records import Call
from hlo.backend.ir.writer import Value, Writer

_MASK = "{%k1}"
_ZEROING = "{%k1}{z}"


class Assembly(Struct, frozen=True):
    """How x86's assembly writes tiles of sums on vectors of one width.

    wide: what LLVM calls a vector register, ymm or zmm; kind: s or d, the type of its lanes.
    product, sum: instructions that add a product, and what lies in memory, to a register, where
    these are not those of floats. is_turned: whether products take the broadcast number last.
    is_ordered: whether its factors are of two kinds.
    """

    wide: str
    kind: str
    product: str = ""
    sum: str = ""
    is_turned: bool = False
    is_ordered: bool = False

    @property
    def has_masks(self) -> bool:
        """Whether lanes may be left out of moves and sums, and quarters of vectors be put in."""
        return self.wide == "zmm"

    @property
    def broadcasts(self) -> bool:
        """Whether a product takes one number of memory for all lanes: as its last factor alone."""
        return self.has_masks and (self.is_turned or not self.is_ordered)

    def names(self, count: int) -> list[str]:
        """The first registers, as what is overwritten."""
        return [f"{self.wide}{number}" for number in range(count)]

    def register(self, number: int) -> str:
        return f"%{self.wide}{number}"

    # -- vectors -----------------------------------------------------------------------------

    def clear(self, number: int) -> str:
        """Zeros in every lane."""
        register = self.register(number)
        return f"vpxor{'d' * self.has_masks} {register}, {register}, {register}"

    def load(self, at: str, number: int, *, is_masked: bool = False) -> str:
        """A vector; lanes that are masked off are zero."""
        register = self.register(number)
        return f"vmovup{self.kind} {at}, {register}{_ZEROING if is_masked else ''}"

    def store(self, number: int, at: str, *, is_masked: bool = False) -> str:
        """A vector to memory; what is masked off stays as it was."""
        return f"vmovup{self.kind} {self.register(number)}, {at}{_MASK if is_masked else ''}"

    def store_past(self, number: int, at: str) -> str:
        """A vector to memory past the caches, at a multiple of its bytes."""
        return f"vmovntp{self.kind} {self.register(number)}, {at}"

    def fetch(self, at: str) -> str:
        """A hint that a line will be read: it comes to the second-level cache."""
        return f"prefetcht1 {at}"

    def broadcast(self, at: str, number: int) -> str:
        """A number to every lane."""
        return f"vbroadcasts{self.kind} {at}, {self.register(number)}"

    def multiply_add(self, a: int, b: int, total: int) -> str:
        """A product added to a register; of floats rounded once."""
        a, b = (b, a) if self.is_turned else (a, b)
        registers = ", ".join(map(self.register, (a, b, total)))
        return f"{self._product} {registers}"

    def multiply_add_number(self, at: str, b: int, total: int) -> str:
        """The same of a number in memory with every lane."""
        lanes = 16 if self.kind == "s" else 8
        registers = f"{self.register(b)}, {self.register(total)}"
        return f"{self._product} {at}{{1to{lanes}}}, {registers}"

    @property
    def _product(self) -> str:
        return self.product or f"vfmadd231p{self.kind}"

    def add(self, at: str, number: int, *, is_masked: bool = False) -> str:
        """What lies in memory, to a register."""
        register = self.register(number)
        instruction = self.sum or f"vaddp{self.kind}"
        return f"{instruction} {at}, {register}, {register}{_ZEROING if is_masked else ''}"

    def mask(self, operand: str) -> str:
        """The mask from an operand's bits."""
        return f"kmovw {operand}, %k1"

    def leave(self) -> str:
        """Back to code that knows no wide vectors."""
        return "vzeroupper"

    def turned(self, row: int, out: int) -> Iterator[str]:
        """Squares of 128 bits a side from rows at $0 to rows at $1, in registers 0 to 7. row, out:
        bytes from row to row. Vector r takes 128 bits each of the rows r, r + square, ...; then the
        squares are transposed.
        """
        square = 4 if self.kind == "s" else 2
        insert = "vinsertf32x4" if self.kind == "s" else "vinsertf64x2"
        for r in range(square):
            yield f"vmovup{self.kind} {r * row}($0), %xmm{r}"
            for part in range(1, 4):
                place = f"{(r + part * square) * row}($0)"
                yield f"{insert} $${part}, {place}, %zmm{r}, %zmm{r}"
        low, high = (0, 1), (0, 1)
        if self.kind == "s":
            for pair in (0, 2):
                yield f"vunpcklps %zmm{pair + 1}, %zmm{pair}, %zmm{4 + pair}"
                yield f"vunpckhps %zmm{pair + 1}, %zmm{pair}, %zmm{5 + pair}"
            low, high = (4, 6), (5, 7)
        for k, (side, (a, b)) in enumerate([("l", low), ("h", low), ("l", high), ("h", high)]):
            if k < square:
                target = k if self.kind == "s" else 4 + k
                yield f"vunpck{side}pd %zmm{b}, %zmm{a}, %zmm{target}"
                yield self.store(target, f"{k * out}($1)")

    # -- addresses, counters, jumps ----------------------------------------------------------

    def put(self, number: int, operand: str) -> str:
        return f"movq $${number}, {operand}"

    def put_mask(self, bits: int, operand: str) -> str:
        return f"movl $${bits}, {operand}"

    def advance(self, operand: str, bytes: int) -> str:
        return f"addq $${bytes}, {operand}"

    def advance_by(self, operand: str, other: str) -> str:
        return f"addq {other}, {operand}"

    def take(self, operand: str, other: str) -> str:
        """other less the operand, into other."""
        return f"subq {operand}, {other}"

    def at_most(self, bound: str, operand: str) -> tuple[str, str]:
        """The lesser of both, unsigned, into the operand."""
        return f"cmpq {bound}, {operand}", f"cmovaq {bound}, {operand}"

    def label(self, number: int) -> str:
        return f"{number}:"

    def count_down(self, operand: str) -> str:
        """One less; the jumps behind it ask for what is left."""
        return f"decq {operand}"

    def test(self, operand: str) -> str:
        """As if the operand had been counted down to what it is."""
        return f"testq {operand}, {operand}"

    def compare(self, number: int, operand: str) -> str:
        """As if the number had been taken off."""
        return f"cmpq $${number}, {operand}"

    def test_multiple(self, power: int, operand: str) -> str:
        """Nothing is left where the operand is a multiple of a power of two."""
        return f"testq $${power - 1}, {operand}"

    def again(self, label: int) -> str:
        """Back while something is left."""
        return f"jne {label}b"

    def on_if_more(self, label: int) -> str:
        """Forward where what is left is above zero."""
        return f"jg {label}f"

    def on_if_none(self, label: int) -> str:
        """Forward where nothing is left."""
        return f"je {label}f"

    def on_if_some(self, label: int) -> str:
        """Forward where something is left."""
        return f"jne {label}f"

    def on(self, label: int) -> str:
        """Forward."""
        return f"jmp {label}f"


def write(
    w: Writer,
    lines: Iterable[str],
    changed: Sequence[Value],
    kept: Sequence[Value],
    registers: Iterable[str],
) -> None:
    """Operands $0, $1, ...: those that change, then those that do not.

    registers: the vector registers that are overwritten; so may be the mask and the flags.
    """
    outputs = ["=&r"] * len(changed)
    inputs = ["r"] * len(kept) + [str(n) for n in range(len(changed))]
    also = ("k1", "memory", "dirflag", "fpsr", "flags")
    clobbers = [f"~{{{name}}}" for name in (*registers, *also)]
    constraints = ",".join([*outputs, *inputs, *clobbers])
    type = f"{{{', '.join(['i64'] * len(changed))}}}"
    operands = (*kept, *changed)
    w.append(
        InlineAssembly(
            w.fresh(), type, "call", operands, code=tuple(lines), constraints=constraints
        )
    )


class InlineAssembly(Call):
    """`call R asm sideeffect "code", "constraints"(T a, ..)`. code: its instructions."""

    code: tuple[str, ...] = ()
    constraints: str = ""

    def __str__(self) -> str:
        code = "\\0A".join(self.code)
        called = f'{self.type} asm sideeffect "{code}", "{self.constraints}"({self.arguments()})'
        return f"{self.head} {called}{self.rest}{self.location}"
