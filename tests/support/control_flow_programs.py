"""Random programs of nested loops, conditionals, calls, updates and shared values, as HLO text."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

TYPE = "f32[4]"
OPCODES = ("add", "subtract", "multiply")


@dataclass
class Generator:
    """Writes one module. Values are f32[4] arrays kept small by a closing multiplication."""

    rng: random.Random
    computations: list[str] = field(default_factory=list)
    count: int = 0

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}.{self.count}"

    def module(self) -> str:
        arguments = [self.fresh("p") for _ in range(self.rng.randint(1, 3))]
        rows = [f"{name} = {TYPE} parameter({n})" for n, name in enumerate(arguments)]
        values = self.body(rows, arguments, depth=self.rng.randint(1, 3))
        self.root(rows, self.some(values, 1, 4))
        return "\n".join(["HloModule random", *self.computations, "ENTRY e {", *rows, "}"])

    def some(self, values: list[str], least: int, most: int) -> list[str]:
        """Some of the values, repeats allowed."""
        return [self.rng.choice(values) for _ in range(self.rng.randint(least, most))]

    def root(self, rows: list[str], values: list[str]) -> None:
        types = ", ".join(TYPE for _ in values)
        rows.append(f"ROOT {self.fresh('root')} = ({types}) tuple({', '.join(values)})")

    def body(self, rows: list[str], values: list[str], depth: int) -> list[str]:
        """Rows that make further values; gives all values."""
        values = list(values)
        for _ in range(self.rng.randint(1, 5)):
            kind = self.rng.random()
            if depth and kind < 0.2:
                values += self.loop(rows, values, depth - 1)
            elif depth and kind < 0.35:
                values += self.conditional(rows, values, depth - 1)
            elif depth and kind < 0.45:
                values += self.call(rows, values, depth - 1)
            elif kind < 0.55:
                values.append(self.update(rows, values))
            elif kind < 0.62:
                values.append(self.constant(rows))
            else:
                values.append(self.arithmetic(rows, values))
        return values

    def arithmetic(self, rows: list[str], values: list[str]) -> str:
        name, (x, y) = self.fresh("v"), self.some(values[-6:], 2, 2)
        rows.append(f"{name} = {TYPE} {self.rng.choice(OPCODES)}({x}, {y})")
        return name

    def constant(self, rows: list[str]) -> str:
        name = self.fresh("c")
        numbers = ", ".join(str(self.rng.randint(-3, 3) / 4) for _ in range(4))
        rows.append(f"{name} = {TYPE} constant({{{numbers}}})")
        return name

    def update(self, rows: list[str], values: list[str]) -> str:
        index, value, name = self.fresh("i"), self.fresh("u"), self.fresh("d")
        rows.append(f"{index} = s32[] constant({self.rng.randint(-1, 5)})")
        rows.append(f"{value} = f32[1] constant({{{self.rng.randint(1, 9) / 8}}})")
        operand = self.rng.choice(values[-6:])
        rows.append(f"{name} = {TYPE} dynamic-update-slice({operand}, {value}, {index})")
        return name

    def computation(self, kind: str, count: int, results: int, depth: int) -> str:
        """A computation from a tuple of `count` values to one of `results`."""
        name, state = self.fresh(kind), self.fresh("s")
        types = ", ".join([TYPE] * count)
        rows = [f"{state} = ({types}) parameter(0)"]
        values = []
        for n in range(count):
            values.append(self.fresh("g"))
            rows.append(f"{values[-1]} = {TYPE} get-tuple-element({state}), index={n}")
        made = self.body(rows, values, depth)
        self.root(rows, [self.rng.choice(made[-5:] + values) for _ in range(results)])
        self.computations.append("\n".join([f"{name} {{", *rows, "}"]))
        return name

    def packed(self, rows: list[str], values: list[str]) -> str:
        name = self.fresh("t")
        rows.append(f"{name} = ({', '.join([TYPE] * len(values))}) tuple({', '.join(values)})")
        return name

    def unpacked(self, rows: list[str], value: str, count: int) -> list[str]:
        found = []
        for n in range(count):
            found.append(self.fresh("r"))
            rows.append(f"{found[-1]} = {TYPE} get-tuple-element({value}), index={n}")
        return found

    def loop(self, rows: list[str], values: list[str], depth: int) -> list[str]:
        """A counted loop around a body that the counter is added to."""
        initial = self.some(values, 1, 4)
        count = len(initial)
        inner = self.computation("inner", count, count, depth)
        state = f"(s32[], {', '.join([TYPE] * count)})"
        names = {k: self.fresh(k) for k in ("cond", "body", "zero", "init", "while")}
        self.computations.append(
            f"""{names["cond"]} {{
              s = {state} parameter(0)
              i = s32[] get-tuple-element(s), index=0
              n = s32[] constant({self.rng.randint(0, 4)})
              ROOT p = pred[] compare(i, n), direction=LT }}"""
        )
        parts = "\n".join(
            f"x{n} = {TYPE} get-tuple-element(s), index={n + 1}" for n in range(count)
        )
        packed = f"({', '.join([TYPE] * count)})"
        results = "\n".join(f"y{n} = {TYPE} get-tuple-element(k), index={n}" for n in range(count))
        listed = ", ".join(f"y{n}" for n in range(count))
        self.computations.append(
            f"""{names["body"]} {{
              s = {state} parameter(0)
              i = s32[] get-tuple-element(s), index=0
              one = s32[] constant(1)
              j = s32[] add(i, one)
              {parts}
              t = {packed} tuple({", ".join(f"x{n}" for n in range(count))})
              k = {packed} call(t), to_apply={inner}
              {results}
              ROOT r = {state} tuple(j, {listed}) }}"""
        )
        rows.append(f"{names['zero']} = s32[] constant(0)")
        rows.append(f"{names['init']} = {state} tuple({', '.join([names['zero'], *initial])})")
        rows.append(
            f"{names['while']} = {state} while({names['init']}), "
            f"condition={names['cond']}, body={names['body']}"
        )
        found = []
        for n in range(count):
            found.append(self.fresh("w"))
            rows.append(f"{found[-1]} = {TYPE} get-tuple-element({names['while']}), index={n + 1}")
        return found

    def conditional(self, rows: list[str], values: list[str], depth: int) -> list[str]:
        branches = self.rng.randint(1, 3)
        results = self.rng.randint(1, 3)
        operands, called = [], []
        for _ in range(branches):
            given = self.some(values, 1, 3)
            operands.append(self.packed(rows, given))
            called.append(self.computation("branch", len(given), results, depth))
        index, name = self.fresh("index"), self.fresh("choice")
        rows.append(f"{index} = s32[] constant({self.rng.randint(-1, branches)})")
        types, given = ", ".join([TYPE] * results), ", ".join([index, *operands])
        rows.append(
            f"{name} = ({types}) conditional({given}), branch_computations={{{', '.join(called)}}}"
        )
        return self.unpacked(rows, name, results)

    def call(self, rows: list[str], values: list[str], depth: int) -> list[str]:
        given = self.some(values, 1, 3)
        results = self.rng.randint(1, 3)
        called = self.computation("callee", len(given), results, depth)
        packed, name = self.packed(rows, given), self.fresh("call")
        types = ", ".join([TYPE] * results)
        rows.append(f"{name} = ({types}) call({packed}), to_apply={called}")
        return self.unpacked(rows, name, results)


def random_program(seed: int) -> str:
    return Generator(random.Random(seed)).module()
