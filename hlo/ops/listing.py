"""The op table as text: --list-ops and `explain OPCODE`."""

from __future__ import annotations

import inspect

from hlo.ops.table import OPS, REQUIRED, Op


def op_table() -> str:
    """One line an opcode: family, arity, readings, attributes."""
    rows = [f"{'opcode':<30}{'family':<16}{'operands':>8}  {'readings':<18}attributes"]
    for opcode in sorted(OPS):
        row = OPS[opcode]
        arity = "any" if row.arity is None else str(row.arity)
        attributes = ", ".join(
            f"{name}!" if attr.default is REQUIRED else name for name, attr in row.attrs.items()
        )
        rows.append(f"{opcode:<30}{family(row):<16}{arity:>8}  {readings(row):<18}{attributes}")
    return "\n".join(rows) + "\n"


def family(row: type[Op]) -> str:
    """The file in hlo/ops/ that holds the row."""
    return row.__module__.rsplit(".", 1)[-1]


def readings(row: type[Op]) -> str:
    """Which of infer and evaluate the row has."""
    return " ".join(name for name in ("infer", "evaluate") if hasattr(row, name))


def explain_op(opcode: str) -> str:
    """The manual page of an opcode: docstring, attributes, what text may leave out."""
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
    shape = "may be left out of the text" if row.inferable else "must be written"
    lines.append(f"  result shape {shape}; error budget {row.ulp:g} ulp")
    return "\n".join(lines) + "\n"
