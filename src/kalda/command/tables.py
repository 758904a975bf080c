"""Tables as values, and their plain form: aligned columns of text, for pipes.

The plain form is stable, so that `grep`, `awk` and `cut` can rely on it: a heading, then one line for each
row, and nothing where there are no rows; columns are two blanks apart and in the order of the declaration; a
cell without a value is ``-``, an empty string is two double quotes, and no cell holds a line break. Nothing
is cut off.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

Cell: TypeAlias = "str | int | float | bool | Sequence[int] | Sequence[str] | None"

_GAP: Final = "  "


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headings; the headings are those of Kafka's tools where they have the same table."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    title: str | None = None
    """A line above the table, where a command shows more than one."""
    empty: str | None = None
    """A remark for stderr where there are no rows."""


def cell_text(cell: Cell) -> str:
    """Return the text of a cell; control characters, which could come from any client, are escaped."""
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, int):
        return str(cell)
    if isinstance(cell, float):
        return f"{cell:.2f}"
    if not isinstance(cell, str):
        return ",".join(map(cell_text, cell)) or "-"
    return printable(cell) or '""'


def printable(text: str) -> str:
    """Return `text` with what a terminal would interpret, and line breaks, as escapes."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def is_numeric(table: Table, column: int) -> bool:
    """Return whether a column holds numbers only, which are aligned to the right."""
    cells = [row[column] for row in table.rows]
    numbers = [cell for cell in cells if isinstance(cell, int | float) and not isinstance(cell, bool)]
    return bool(numbers) and len(numbers) + cells.count(None) == len(cells)


def plain_lines(table: Table) -> Iterator[str]:
    """Yield the lines of the plain form.

    >>> rows = [("flights", 4), ("x", 16)]
    >>> print("\\n".join(plain_lines(Table(("TOPIC", "PARTITIONS"), rows))))
    TOPIC    PARTITIONS
    flights           4
    x                16
    """
    if table.title is not None:
        yield printable(table.title)
    texts = [list(table.columns), *([cell_text(cell) for cell in row] for row in table.rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    numeric = [is_numeric(table, index) for index in range(len(widths))]
    for row in texts:
        cells = [
            text.rjust(width) if is_right else text.ljust(width)
            for text, width, is_right in zip(row, widths, numeric, strict=True)
        ]
        yield _GAP.join(cells).rstrip()
