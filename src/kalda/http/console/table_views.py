"""Reads the search, order and page of a table from a page's address, and selects the rows to show. No I/O."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar
from urllib.parse import urlencode

T = TypeVar("T")

PAGE_ROWS: Final = 50
_NUMBER_MAX: Final = 1_000_000
_SEARCH_CHARACTERS_MAX: Final = 250
"""The longest name of a topic is 249."""

SortKey = Callable[[T], object]


@dataclass(frozen=True, slots=True)
class TableView:
    """The search, order and page of a table that a visitor asked for."""

    path: str
    search: str = ""
    sort: str = ""
    is_descending: bool = False
    page: int = 1
    kept: tuple[tuple[str, str], ...] = ()
    """Other parameters of the address that its links keep."""

    @classmethod
    def of(
        cls,
        path: str,
        parameters: Mapping[str, str],
        columns: Iterable[str],
        *,
        kept: Iterable[str] = (),
        sort: str = "name",
    ) -> "TableView":
        """Read the parameters ``q``, ``sort`` and ``page``; invalid values are ignored.

        Args:
            path: The page's path.
            parameters: Those of the address.
            columns: The columns by which the table can be sorted.
            kept: The names of other parameters that links keep.
            sort: The order unless given: a column, with ``-`` before it for a descending one.
        """
        wanted = parameters.get("sort", "")
        if wanted.removeprefix("-") not in set(columns):
            wanted = sort
        number = parameters.get("page", "1")
        page = int(number) if number.isascii() and number.isdigit() and len(number) < 8 else 1
        return cls(
            path,
            parameters.get("q", "").strip()[:_SEARCH_CHARACTERS_MAX],
            wanted.removeprefix("-"),
            wanted.startswith("-"),
            min(max(page, 1), _NUMBER_MAX),
            tuple((name, parameters[name]) for name in kept if parameters.get(name)),
        )

    @property
    def link(self) -> str:
        """The address of this view."""
        pairs = [*self.kept]
        if self.search:
            pairs.append(("q", self.search))
        if self.sort:
            pairs.append(("sort", f"-{self.sort}" if self.is_descending else self.sort))
        if self.page > 1:
            pairs.append(("page", str(self.page)))
        return f"{self.path}?{urlencode(pairs)}" if pairs else self.path

    def sorted_by(self, column: str) -> "TableView":
        """Return the view by a column; by the same column again, in the other direction."""
        is_descending = self.sort == column and not self.is_descending
        return replace(self, sort=column, is_descending=is_descending, page=1)

    def direction_of(self, column: str) -> str:
        """Return the direction of a column in ARIA's words."""
        if self.sort != column:
            return "none"
        return "descending" if self.is_descending else "ascending"

    def at_page(self, page: int) -> "TableView":
        """Return the view of another page."""
        return replace(self, page=page)


@dataclass(frozen=True, slots=True)
class TablePage(Generic[T]):
    """The rows that a page shows."""

    view: TableView
    rows: Sequence[T]
    found: int
    """How many rows there are in all pages."""
    total: int
    """How many there are without the search."""

    @property
    def page_count(self) -> int:
        """How many pages there are, at least one."""
        return max(1, -(-self.found // PAGE_ROWS))

    @property
    def first_number(self) -> int:
        """The number of the first row, from 1; 0 without rows."""
        return (self.view.page - 1) * PAGE_ROWS + 1 if self.rows else 0

    @property
    def last_number(self) -> int:
        """The number of the last row."""
        return self.first_number + len(self.rows) - 1 if self.rows else 0

    @property
    def previous(self) -> TableView | None:
        """The view of the page before."""
        return self.view.at_page(self.view.page - 1) if self.view.page > 1 else None

    @property
    def next(self) -> TableView | None:
        """The view of the page behind."""
        return self.view.at_page(self.view.page + 1) if self.view.page < self.page_count else None


def table_page(
    rows: Sequence[T], view: TableView, text: Callable[[T], str], keys: Mapping[str, SortKey[T]]
) -> TablePage[T]:
    """Return the rows that a view shows.

    Args:
        rows: All rows.
        view: What is wanted.
        text: What of a row a search looks at, without regard to case.
        keys: By column, what its order goes by; rows where it is None come last in both directions.
    """
    words = view.search.lower().split()
    found = [row for row in rows if all(word in text(row).lower() for word in words)] if words else list(rows)
    key = keys.get(view.sort)
    if key is not None:
        known = [row for row in found if key(row) is not None]
        unknown = [row for row in found if key(row) is None]
        known.sort(key=key, reverse=view.is_descending)  # type: ignore[arg-type]  # what keys return compares
        found = known + unknown
    last_page = max(1, -(-len(found) // PAGE_ROWS))
    shown = view.at_page(min(view.page, last_page))
    start = (shown.page - 1) * PAGE_ROWS
    return TablePage(shown, found[start : start + PAGE_ROWS], len(found), len(rows))
