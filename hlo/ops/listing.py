"""The op table as text: --list-ops and `explain OPCODE`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from types import MappingProxyType

from hlo.ops.table import OPS, REQUIRED, Op

# Of the rows of the elementwise table, whose docstrings hold the formula alone.
ROW_CONSTRAINTS = {
    "C1": "as many operands as the row has.",
    "C2": "all arrays.",
    "C3": "equal element types up to float precision; of unary rows, a type with a meaning.",
    "C4": "equal dimensions.",
    "C5": "of binary rows, a type with a meaning.",
}
NO_WAYS: Mapping[str, str] = MappingProxyType({})


def op_table(ways: Mapping[str, str] = NO_WAYS) -> str:
    """One line an opcode: family, arity, readings, how it is compiled, attributes."""
    heads = f"{'opcode':<30}{'family':<18}{'operands':>8}  {'readings':<16}{'compiled':<13}"
    rows = [f"{heads}attributes"]
    for opcode in sorted(OPS):
        row = OPS[opcode]
        arity = "any" if row.arity is None else str(row.arity)
        attributes = ", ".join(
            f"{name}!" if attr.default is REQUIRED else name for name, attr in row.attrs.items()
        )
        compiled = ways.get(opcode, "")
        head = f"{opcode:<30}{family(row):<18}{arity:>8}  {readings(row):<16}"
        rows.append(f"{head}{compiled:<13}{attributes}".rstrip())
    return "\n".join(rows) + "\n"


def family(row: type[Op]) -> str:
    """The file in hlo/ops/ that holds the row."""
    return row.__module__.rsplit(".", 1)[-1]


def readings(row: type[Op]) -> str:
    """Which of infer and evaluate the row has; the caller gives parameters and constants."""
    given = ["evaluate"] if row.opcode in ("parameter", "constant") else []
    return " ".join([n for n in ("infer", "evaluate") if hasattr(row, n)] + given)


def constraints(row: type[Op]) -> dict[str, str]:
    """The constraints of the docstring by label, each in one line."""
    text = " ".join(inspect.cleandoc(row.__doc__ or "").split())
    found: dict[str, str] = {}
    for part in re.split(r"(?=\bC\d+(?:-C?\d+)?(?: \(ours\))?: )", text)[1:]:
        label, _, said = part.partition(": ")
        found[label] = said.strip()
    return found


def explain_op(opcode: str, compiled: str = "") -> str:
    """The manual page of an opcode: docstring, attributes, constraints, how it is compiled."""
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
    listed = constraints(row) or (ROW_CONSTRAINTS if family(row) == "elementwise_row" else {})
    if listed:
        lines += ["", "constraints"]
        lines += [f"  {label}: {said}" for label, said in listed.items()]
    lines.append("")
    shape = "may be left out of the text" if row.inferable else "must be written"
    lines.append(f"  result shape {shape}; error budget {row.ulp:g} ulp")
    lines.append(f"  readings: {readings(row)}" + (f"; compiled: {compiled}" if compiled else ""))
    return "\n".join(lines) + "\n"
