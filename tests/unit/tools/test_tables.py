"""The plain form of tables: what scripts with `awk` and `grep` rely on."""

import pytest

from kalda.command.tables import Cell, Table, cell_text, plain_lines


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (None, "-"),
        ("", '""'),
        ("a b", "a b"),
        ("two\nlines\x1b[31m", r"two\nlines\x1b[31m"),
        (7, "7"),
        (True, "true"),
        (0.125, "0.12"),
        ([1, 2, 3], "1,2,3"),
        ([], "-"),
    ],
)
def test_cells_are_one_printable_word_or_text(cell: Cell, expected: str) -> None:
    """An empty column would shift the ones behind it; an escape sequence would reach the terminal."""
    assert expected == cell_text(cell)


def test_columns_are_aligned_and_numbers_stand_right() -> None:
    table = Table(("TOPIC", "LAG", "NOTE"), [("flights", 12, "x"), ("a", None, None)], "Lag")

    assert ["Lag", "TOPIC    LAG  NOTE", "flights   12  x", "a          -  -"] == list(plain_lines(table))


def test_a_table_without_rows_keeps_its_heading() -> None:
    assert ["TOPIC  LAG"] == list(plain_lines(Table(("TOPIC", "LAG"), [])))
