from datetime import UTC, datetime

import pytest

from kalda.command.errors import ToolUsageError
from kalda.tools.legacy.simple_date_format import DEFAULT_PATTERN, SimpleDateFormat

AT = datetime(2012, 8, 5, 9, 5, 7, 42_000, UTC)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (DEFAULT_PATTERN, "2012-08-05 09:05:07:042"),
        ("yy/M/d H:m:s", "12/8/5 9:5:7"),
        ("d MMM, d MMMM", "5 Aug, 5 August"),
        ("yyyyMMdd'T'HHmmss", "20120805T090507"),
        ("HH 'o''clock' ''", "09 o'clock '"),
    ],
)
def test_patterns_are_javas(pattern: str, expected: str) -> None:
    assert expected == SimpleDateFormat(pattern).format(AT)


def test_letter_without_a_meaning_here_is_refused() -> None:
    with pytest.raises(ToolUsageError, match="--date-format=yyyy z: the letter z"):
        SimpleDateFormat("yyyy z")
