"""Draws tables and progress bars with rich; imported only when stdout or stderr is a terminal.

Cells become `rich.text.Text`: as plain strings, rich would interpret brackets in topic names as markup.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Table as Drawn
from rich.text import Text

from kalda.command.tables import Table, cell_text, is_numeric, plain_lines, printable

_COLUMN_MARGIN: Final = 3
"""The blanks around a cell and the line between two, which the box draws as a blank."""


def draw_table(stream: TextIO, table: Table) -> None:
    """Draw a table as wide as it needs, folding long cells where the terminal is narrower.

    Where not even the headings fit, cells of two or three letters would be unreadable: the plain form is
    written, and the terminal wraps its lines.
    """
    console = Console(file=stream, highlight=False)
    if sum(len(column) + _COLUMN_MARGIN for column in table.columns) > console.width:
        stream.writelines(f"{line}\n" for line in plain_lines(table))
        return
    title = None if table.title is None else Text(printable(table.title))
    drawn = Drawn(box=box.SIMPLE_HEAD, title=title, title_justify="left", header_style="bold")
    for index, column in enumerate(table.columns):
        drawn.add_column(
            Text(column),
            justify="right" if is_numeric(table, index) else "left",
            overflow="fold",
            min_width=len(column),
        )
    for row in table.rows:
        drawn.add_row(*(Text(cell_text(cell)) for cell in row))
    console.print(drawn)


class _Bar:
    """One bar of a `rich.progress.Progress`."""

    def __init__(self, bars: Bars, task: TaskID) -> None:
        self._bars = bars
        self._task = task

    def update(self, completed: int, total: int | None = None) -> None:
        self._bars.update(self._task, completed=completed, total=total)


@contextmanager
def progress_bar(stream: TextIO, what: str, total: int, unit: str) -> Iterator[_Bar]:
    """Draw a bar while the block runs."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit, markup=False),
        TimeElapsedColumn(),
    )
    with Bars(*columns, console=Console(file=stream, highlight=False)) as bars:
        yield _Bar(bars, bars.add_task(printable(what), total=total))
