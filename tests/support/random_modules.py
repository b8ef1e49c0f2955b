"""Random small modules as compilers' tests write them: odd orders, comments, omitted shapes."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.support.mutation import mutated_token

_UNARY = ("abs", "negate", "sine", "exponential", "floor", "copy", "is-finite", "sqrt", "tanh")
_BINARY = ("add", "subtract", "multiply", "maximum", "power", "divide", "atan2", "remainder")
_BLANKS = ("", "", " ", "\n", "/*c*/", "/*index=1*/ ", "  // note\n")
_COMMON = (
    'metadata={op_name="a" source_line=3}', "sharding={replicated}", "backend_config={a}",
    'frontend_attributes={k="v",a={x}}', 'origin={{"o" {1}}}', "sharding={devices=[2,1]<=[2]}",
    'metadata={op_type="t",op_name="n"}', "statistics={visualizing_index=0,m=1.5}",
    'backend_config="b\\n"', "sharding={maximal device=1}",
)  # fmt: skip
_DIMS = ((), (2,), (3,), (2, 3), (1, 2, 3))
_HELPERS = """add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT r = f32[] add(x, y) }
"""


class Maker:
    """One module; each method writes an instruction and names it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.lines: list[str] = []
        self.values: list[tuple[str, tuple[int, ...]]] = []

    def text(self) -> str:
        rng = self.rng
        for number in range(rng.randrange(1, 4)):
            self._write(rng.choice(_DIMS), f"parameter({number})", inferable=False)
        kinds: tuple[Callable[[], None], ...] = (
            self._unary, self._binary, self._reduce, self._nested, self._asynchronous,
            self._constant, self._transpose, self._collective, self._tuple_and_back,
        )  # fmt: skip
        for _ in range(rng.randrange(1, 7)):
            rng.choice(kinds)()
        if rng.random() < 0.6:
            at = rng.randrange(len(self.lines))
            self.lines[at] = "ROOT " + self.lines[at]
        entry = rng.choice(("ENTRY e", "e", "ENTRY %e", "ENTRY e.1"))
        return f"HloModule m\n{_HELPERS}{entry} {{\n" + "\n".join(self.lines) + "\n}\n"

    def _write(self, dims: tuple[int, ...], call: str, *, inferable: bool = True) -> None:
        rng = self.rng
        name = f"{rng.choice(('v', 'x.', 'add.', 'p_'))}{len(self.lines)}"
        shape = "" if inferable and rng.random() < 0.4 else self._shape(dims) + " "
        attributes = rng.sample(_COMMON, rng.choice((0, 0, 0, 1, 2)))
        kinds = {a.split("=")[0]: a for a in attributes}
        blank = rng.choice(_BLANKS)
        percent = rng.choice(("", "%"))
        self.lines.append(", ".join([f"{percent}{name} = {shape}{blank}{call}", *kinds.values()]))
        self.values.append((name, dims))

    def _shape(self, dims: tuple[int, ...]) -> str:
        text = f"f32[{','.join(map(str, dims))}]"
        if dims and self.rng.random() < 0.4:
            order = list(range(len(dims)))
            self.rng.shuffle(order)
            properties = self.rng.choice(("", "", ":T(2)", ":S(1)", ":L(4)", ":T(2,1)E(32)S(2)"))
            text += f"{{{','.join(map(str, order))}{properties}}}"
        return text

    def _operand(self, dims: tuple[int, ...] | None = None) -> tuple[str, tuple[int, ...]]:
        fitting = [v for v in self.values if dims is None or v[1] == dims]
        name, found = self.rng.choice(fitting)
        written = f"{self._shape(found)} " if self.rng.random() < 0.3 else ""
        return f"{written}{self.rng.choice(('', '%'))}{name}", found

    def _unary(self) -> None:
        text, dims = self._operand()
        self._write(dims, f"{self.rng.choice(_UNARY[:6])}({text})")

    def _binary(self) -> None:
        a, dims = self._operand()
        self._write(dims, f"{self.rng.choice(_BINARY)}({a},{self.rng.choice(_BLANKS)}"
                    f"{self._operand(dims)[0]})")  # fmt: skip

    def _nested(self) -> None:
        a, dims = self._operand()
        inner = f"{self._shape(dims)} {self.rng.choice(_UNARY[:6])}({a})"
        self._write(dims, f"add({inner}, {self._operand(dims)[0]})", inferable=False)

    def _constant(self) -> None:
        value = self.rng.choice(("1", "-0.0", "nan", "-inf", "1e-40", "0.1", "3.4e38", "nan(0x5)"))
        self._write((), f"constant({value})", inferable=False)

    def _reduce(self) -> None:
        a, dims = self._operand()
        zero = "f32[] constant(0)"
        kept = [d for d in range(len(dims)) if self.rng.random() < 0.5]
        gone = ",".join(str(d) for d in range(len(dims)) if d not in kept)
        parts = [f"dimensions={{{gone}}}", "to_apply=add"]
        self.rng.shuffle(parts)
        self._write(tuple(dims[d] for d in kept), f"reduce({a}, {zero}), {', '.join(parts)}")

    def _transpose(self) -> None:
        a, dims = self._operand()
        order = list(range(len(dims)))
        self.rng.shuffle(order)
        self._write(tuple(dims[d] for d in order),
                    f"transpose({a}), dimensions={{{','.join(map(str, order))}}}")  # fmt: skip

    def _collective(self) -> None:
        a, dims = self._operand()
        groups = self.rng.choice(("{}", "{{0,1}}", "[2,2]<=[4]", "[2,2]<=[2,2]T(1,0)"))
        parts = [f"replica_groups={groups}", "to_apply=add", "channel_id=3"]
        self.rng.shuffle(parts)
        self._write(dims, f"all-reduce({a}), {', '.join(parts)}", inferable=False)

    def _asynchronous(self) -> None:
        a, dims = self._operand()
        bare = self._shape(dims)
        name = f"s{len(self.lines)}"
        opcode = self.rng.choice(_UNARY)
        self.lines.append(f"{name} = (({bare}), {bare}, u32[]) {opcode}-start({a})")
        self._write(dims, f"{self.rng.choice((opcode, 'async'))}-done({name})", inferable=False)

    def _tuple_and_back(self) -> None:
        a, dims = self._operand()
        name = f"t{len(self.lines)}"
        self.lines.append(f"{name} = tuple({a}, {self._operand()[0]})")
        self._write(dims, f"get-tuple-element({name}), index=0")


def random_text(rng: random.Random) -> str:
    """A module, or one with a token or two changed."""
    text = Maker(rng).text()
    for _ in range(rng.choice((0, 0, 1, 2))):
        text = mutated_token(text, rng)
    return text
