"""Tables: search, order and page come from the address, and the address of a table shows the same again."""

from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

import pytest

from kalda.http.console.table_views import PAGE_ROWS, SortKey, TablePage, TableView, table_page


@dataclass(frozen=True)
class Row:
    name: str
    size: int | None


ROWS = [Row(f"topic-{number:03}", None if number % 7 == 0 else number) for number in range(120)]
KEYS: dict[str, SortKey[Row]] = {"name": lambda row: row.name, "size": lambda row: row.size}


def view(query: str) -> TableView:
    return TableView.of("/topics", dict(parse_qsl(query)), KEYS, kept=("internal",))


def page(query: str) -> TablePage[Row]:
    return table_page(ROWS, view(query), lambda row: row.name, KEYS)


def test_without_parameters_the_first_page_is_shown_by_name() -> None:
    shown = page("")

    assert [f"topic-{number:03}" for number in range(PAGE_ROWS)] == [row.name for row in shown.rows]
    assert (1, 50, 120, 3) == (shown.first_number, shown.last_number, shown.found, shown.page_count)
    assert shown.previous is None
    assert shown.next is not None
    assert 2 == shown.next.page


def test_rows_without_a_value_come_last_in_both_directions() -> None:
    assert 1 == page("sort=size").rows[0].size
    assert 118 == page("sort=-size").rows[0].size
    assert page("sort=-size&page=3").rows[-1].size is None
    assert page("sort=size&page=3").rows[-1].size is None


def test_each_word_of_a_search_must_be_in_the_text() -> None:
    assert ["topic-011", "topic-110", "topic-111"] == [row.name for row in page("q=TOPIC 11").rows][:3]
    assert [] == page("q=topic nothing").rows


def test_a_page_behind_the_last_one_is_the_last_one() -> None:
    shown = page("page=99")

    assert 3 == shown.view.page
    assert 20 == len(shown.rows)
    assert shown.next is None


@pytest.mark.parametrize(
    "query",
    ["page=x", "page=-1", "page=0", "page=99999999999999999999", "sort=<script>", "sort=-", "page=²"],
)
def test_what_is_not_possible_is_as_if_it_were_not_given(query: str) -> None:
    assert "name" == view(query).sort
    assert 1 == view(query).page


@pytest.mark.parametrize("query", ["", "q=a+b%26c&sort=-size&page=2&internal=1", "sort=size"])
def test_the_link_of_a_view_shows_the_same_again(query: str) -> None:
    first = view(query)

    assert first == view(urlsplit(first.link).query)


def test_a_click_on_the_column_turns_the_order_around() -> None:
    assert view("sort=size").sorted_by("size").is_descending
    assert not view("sort=-size").sorted_by("size").is_descending
    assert not view("sort=-size&page=2").sorted_by("name").is_descending
    assert 1 == view("sort=-size&page=2").sorted_by("name").page
    assert "descending" == view("sort=-size").direction_of("size")
    assert "none" == view("sort=-size").direction_of("name")


def test_without_rows_there_is_one_empty_page() -> None:
    shown = page("q=nothing")

    assert (0, 0, 1) == (shown.first_number, shown.last_number, shown.page_count)
