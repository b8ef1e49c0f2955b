"""The op table as text: --list-ops and `explain OPCODE`."""

from __future__ import annotations

import inspect
import re

from hlo.ops.attributes import REQUIRED
from hlo.ops.table import OPS, Op


def op_table() -> str:
    """One line an opcode: family, arity, readings, how it is compiled, attributes."""
    heads = f"{'opcode':<30}{'family':<18}{'operands':>8}  {'readings':<16}{'compiled':<13}"
    rows = [f"{heads}attributes"]
    for opcode in sorted(OPS):
        row = OPS[opcode]
        arity = "any" if row.arity is None else str(row.arity)
        attributes = ", ".join(
            f"{name}!" if attr.default is REQUIRED else name for name, attr in row.attrs.items()
        )
        head = f"{opcode:<30}{family(row):<18}{arity:>8}  {readings(row):<16}"
        rows.append(f"{head}{row.family.value:<13}{attributes}".rstrip())
    return "\n".join(rows) + "\n"


def family(row: type[Op]) -> str:
    """The file in hlo/ops/ that holds the row."""
    return row.__module__.rsplit(".", 1)[-1]


def readings(row: type[Op]) -> str:
    """Which of infer and evaluate the row has; the caller gives parameters and constants."""
    given = ["evaluate"] if row.opcode in ("parameter", "constant") else []
    return " ".join([n for n in ("infer", "evaluate") if hasattr(row, n)] + given)


def constraints(row: type[Op]) -> dict[str, str]:
    """The constraints by label, the family's and the docstring's, each in one line."""
    text = " ".join(inspect.cleandoc(row.__doc__ or "").split())
    found = dict(row.constraints)
    for part in re.split(r"(?=\bC\d+(?:-C?\d+)?(?: \(ours\))?: )", text)[1:]:
        label, _, said = part.partition(": ")
        found[label] = said.strip()
    return dict(sorted(found.items()))


def explain_op(opcode: str) -> str:
    """The manual page of an opcode: docstring, attributes, constraints and the facts of its row."""
    row = OPS[opcode]
    arity = "any number of" if row.arity is None else str(row.arity)
    lines = [
        f"{opcode} ({family(row)}): {arity} operands",
        "",
        inspect.cleandoc(row.__doc__ or ""),
        "",
    ]
    for name, attr in row.attrs.items():
        default = "required" if attr.default is REQUIRED else f"default {attr.default!r}"
        lines.append(f"  {name}: {attr.kind.name}, {default}")
    listed = constraints(row)
    if listed:
        lines += ["", "constraints"]
        lines += [f"  {label}: {said}" for label, said in listed.items()]
    lines.append("")
    shape = "may be left out of the text" if row.inferable else "must be written"
    lines.append(f"  result shape {shape}; error budget {row.ulp:g} ulp")
    lines.append(f"  readings: {readings(row)}; compiled: {row.family.value}")
    lines.append(f"  traits: {', '.join(t.name for t in row.traits if t.name).lower() or 'none'}")
    latency = f", {row.cost.latency} cycles" if row.cost.latency else ""
    lines.append(f"  cost of an element: as {row.cost.operations} additions{latency}")
    return "\n".join(lines) + "\n"
