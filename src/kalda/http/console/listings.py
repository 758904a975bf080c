"""Defines tables that need no template of their own: columns and rows of cells. No I/O."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kalda.http.console.table_views import SortKey, TablePage, TableView, table_page

_WORD_CHARACTERS: Final = 20
"""The longest word that fits into every column."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a table."""

    text: str
    link: str = ""
    """A path of the console."""
    badge: str = ""
    """A class of a badge: good, warn, bad, accent or plain; empty for plain text."""
    note: str = ""
    is_code: bool = False
    value: int | float | str | None = None
    """What the column is sorted by; the text unless given."""

    @property
    def has_long_word(self) -> bool:
        """Whether a word of the text may be broken, which lets narrow columns break all of its words."""
        return any(len(each) > _WORD_CHARACTERS for each in self.text.split())

    @property
    def sort_key(self) -> int | float | str | None:
        """The key by which the column is sorted."""
        return self.text.lower() if self.value is None else self.value


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str
    title: str
    is_number: bool = False
    is_secondary: bool = False
    """Whether a narrow screen leaves it out."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row with its actions."""

    cells: Sequence[Cell]
    actions: Sequence[tuple[str, str]] = ()
    """Texts and paths."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A table on a page."""

    columns: Sequence[Column]
    page: TablePage[Row]
    one: str
    many: str
    empty_title: str
    empty_text: str = ""
    target: str = "listing"

    @property
    def has_actions(self) -> bool:
        """Whether any row has an action."""
        return any(row.actions for row in self.page.rows)


def listing(
    path: str,
    parameters: dict[str, str],
    columns: Sequence[Column],
    rows: Sequence[Row],
    *,
    one: str,
    many: str,
    empty: tuple[str, str],
    kept: Sequence[str] = (),
    sort: str | None = None,
) -> Listing:
    """Return the part of a table that an address asks for.

    Args:
        path: The page's path.
        parameters: Those of the address.
        columns: The columns.
        rows: All rows.
        one: What one row is.
        many: What several are.
        empty: Title and text where there is none.
        kept: Other parameters that links keep.
        sort: The order unless the address has one.
    """

    def by(index: int) -> SortKey[Row]:
        return lambda row: row.cells[index].sort_key

    names = [column.name for column in columns]
    view = TableView.of(path, parameters, names, kept=kept, sort=names[0] if sort is None else sort)
    keys = {column.name: by(index) for index, column in enumerate(columns)}
    page = table_page(rows, view, lambda row: " ".join(cell.text for cell in row.cells), keys)
    return Listing(columns, page, one, many, *empty)
