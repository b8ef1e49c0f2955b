"""hlo-opt diff A B: what differs between two modules, names aside."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

import click
import msgspec

from hlo.cli.completing import FILE
from hlo.cli.numbers import Count
from hlo.cli.reading import read_module, reads_modules
from hlo.cli.terminal import tell, tell_rows
from hlo.tools.files.reading import write_text
from hlo.tools.files.writing import check_writable

if TYPE_CHECKING:
    from hlo.tools.comparison.diff import Difference, Row

WIDEST = 160  # of a line of text; --json has all of it


@click.command("diff")
@click.argument("first", type=FILE, metavar="A")
@click.argument("second", type=FILE, metavar="B")
@click.option("--metadata", is_flag=True, help="Also where only metadata differs.")
@click.option("--lines", default=40, type=Count(1), show_default=True,
              help="At most so many rows.")  # fmt: skip
@click.option(
    "--html", "page", type=FILE, default=None, metavar="FILE", help="A page, side by side."
)
@click.option("--json", "as_json", is_flag=True, help="The same as data.")
@reads_modules
def command(
    first: str, second: str, metadata: bool, lines: int, page: str | None, as_json: bool
) -> int:
    """Exit 0 where nothing differs, 1 where something does."""
    from hlo.tools.comparison.diff import diff

    if page is not None:
        check_writable(page)
    found = diff(read_module(first), read_module(second), metadata=metadata)
    if page is not None:
        write_text(page, page_text(found, first, second))
    if as_json:
        data = {**msgspec.structs.asdict(found), "is_empty": found.is_empty}
        tell(msgspec.json.format(msgspec.json.encode(data)).decode())
    else:
        tell_rows(difference_text(found, lines))
    return 0 if found.is_empty else 1


def difference_text(found: Difference, lines: int) -> list[tuple[str, str]]:
    """Lines with a colour each: counts, then a row for each kind of difference."""
    from hlo.tools.comparison.diff import CHANGED, ONLY_A, ONLY_B

    matched = f"matched {found.matched:,} of {found.sizes[0]:,} in A, {found.sizes[1]:,} in B"
    counts = "   ".join(f"{kind} {found.count(kind):,}" for kind in (CHANGED, ONLY_A, ONLY_B))
    rows = [(f"{matched}   {counts}", "")]
    for row in found.rows[:lines]:
        rows += _row(row)
    if len(found.rows) > lines:
        rows.append((f"  ... and {len(found.rows) - lines} rows more (--lines)", ""))
    return rows


def _row(row: Row) -> list[tuple[str, str]]:
    from hlo.tools.comparison.diff import CHANGED, ONLY_A

    times = f" [x{row.count}]" if row.count > 1 else ""
    head = f"  {row.kind}  %{row.names[0]}{times}"
    if row.kind != CHANGED:
        colour = "red" if row.kind == ONLY_A else "green"
        return [(f"{head} = {_short(row.before or row.after)}", colour)]
    return [
        (head, ""),
        (f"    - {_short(row.before)}", "red"),
        (f"    + {_short(row.after)}", "green"),
    ]


def _short(text: str) -> str:
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 3]}..."


def page_text(found: Difference, first: str, second: str) -> str:
    """A page that needs nothing else: a table of both sides."""
    cells = []
    for row in found.rows:
        names = ", ".join(f"%{n}" for n in row.names) + (
            " ..." if row.count > len(row.names) else ""
        )
        texts = "".join(f"<td><code>{html.escape(t)}</code></td>" for t in (row.before, row.after))
        cells.append(
            f"<tr><td>{row.kind}</td><td>{row.count}</td>{texts}<td>{html.escape(names)}</td></tr>"
        )
    heads = "".join(
        f"<th>{html.escape(h)}</th>" for h in ("", "times", first, second, "instructions")
    )
    style = (
        "body{font:14px sans-serif}table{border-collapse:collapse}"
        "td,th{border:1px solid #ccc;padding:4px;vertical-align:top}code{white-space:pre-wrap}"
    )
    count = f"matched {found.matched:,} of {found.sizes[0]:,} and {found.sizes[1]:,} instructions"
    return (
        f"<!doctype html>\n<meta charset=utf-8><title>hlo-opt diff</title><style>{style}</style>\n"
        f"<p>{count}</p>\n<table><tr>{heads}</tr>\n" + "\n".join(cells) + "\n</table>\n"
    )
