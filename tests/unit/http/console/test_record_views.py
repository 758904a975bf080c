"""Records on pages: which are read, in which order they are shown, and where the next page begins."""

from urllib.parse import parse_qsl, urlsplit

import pytest

from kalda.http.console.record_views import (
    Record,
    RecordQuery,
    Shown,
    record_row,
    shown_of,
    time_ms_of,
    wanted_ranges,
)
from kalda.records.batch import TimestampType

LOGS = {0: (10, 300), 1: (0, 5), 2: (7, 7)}


def query(text: str = "") -> RecordQuery:
    return RecordQuery.of("/topics/t/records", dict(parse_qsl(text)))


def record(partition: int, offset: int, time: int | None = None, value: bytes | None = b"v") -> Record:
    time = offset if time is None else time
    return Record("t", partition, offset, time, TimestampType.CREATE_TIME, b"k", value, (), 1, 1, 0)


def pages(first: RecordQuery, records: list[Record], logs: dict[int, tuple[int, int]]) -> list[Shown]:
    """Return all pages, from one link to the next."""
    found, current = [], first
    while True:
        ranges = wanted_ranges(current, logs, {})
        read = [
            each for each in records if ranges[each.partition][0] <= each.offset < ranges[each.partition][1]
        ]
        shown = shown_of(current, read, ranges, logs)
        found.append(shown)
        if shown.next_at is None:
            return found
        link = current.going_on(shown.next_at).link
        current = RecordQuery.of("/topics/t/records", dict(parse_qsl(urlsplit(link).query)))
        assert len(found) < 100


def test_the_newest_are_read_from_the_end_of_each_partition() -> None:
    assert {0: (250, 300), 1: (0, 5), 2: (7, 7)} == wanted_ranges(query(), LOGS, {})
    assert {0: (275, 300)} == wanted_ranges(query("partition=0&limit=25"), LOGS, {})


def test_an_offset_outside_the_log_is_moved_to_its_nearer_end() -> None:
    assert {0: (10, 60), 1: (0, 5), 2: (7, 7)} == wanted_ranges(query("start=offset&offset=0"), LOGS, {})
    assert (300, 300) == wanted_ranges(query("start=offset&offset=999&partition=0"), LOGS, {})[0]


def test_by_time_a_partition_without_such_a_record_begins_at_its_end() -> None:
    found = wanted_ranges(query("start=time&time=2026-11-22T10:00"), LOGS, {0: 290, 1: None, 2: None})

    assert {0: (290, 300), 1: (5, 5), 2: (7, 7)} == found


@pytest.mark.parametrize("start", ["newest", "oldest"])
@pytest.mark.parametrize("gap", [1, 3])
def test_all_pages_together_show_each_record_once(start: str, gap: int) -> None:
    """Also where offsets have no record, and where producers' times do not rise."""
    logs = {0: (0, 200), 1: (50, 130), 2: (7, 7)}
    records = [
        record(number, offset, time=(offset * 7919) % 1000)
        for number, (begin, end) in logs.items()
        for offset in range(begin, end, gap)
    ]

    shown = [each for page in pages(query(f"start={start}&limit=25"), records, logs) for each in page.records]

    assert sorted((each.partition, each.offset) for each in records) == sorted(
        (each.partition, each.offset) for each in shown
    )
    own = [each.offset for each in shown if each.partition == 0]
    assert sorted(own, reverse=start == "newest") == own


def test_offsets_without_records_do_not_stop_the_pages() -> None:
    logs = {0: (0, 400)}

    assert [3] == [each.offset for page in pages(query(), [record(0, 3)], logs) for each in page.records]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "partition=1&start=offset&offset=17&limit=100",
        "start=time&time=2026-11-22T10%3A00&key=a%26b&where=value+LIKE+%27%25x%27",
        "at=0%3A12%2C1%3A5&header=a%3Db&field=%24.x&equals=1&until=5",
    ],
)
def test_the_link_of_a_query_shows_the_same_again(text: str) -> None:
    first = query(text)

    assert first == query(urlsplit(first.link).query)


@pytest.mark.parametrize(
    "text",
    [
        "partition=-1",
        "partition=x",
        "offset=x",
        "limit=7",
        "limit=²",
        "start=<b>",
        "at=x",
        "at=1",
        "at=1:2:3,",
        "at=1:x",
    ],
)
def test_what_is_not_possible_is_as_if_it_were_not_given(text: str) -> None:
    assert query() == query(text)


@pytest.mark.parametrize(
    ("value", "kind", "line", "detail"),
    [
        (None, "null", None, ""),
        (b"", "text", "", ""),
        (b"AA 100", "text", "AA 100", "AA 100"),
        (b'{"a":1}', "json", '{"a":1}', '{\n  "a": 1\n}'),
        (b"{no json", "text", "{no json", "{no json"),
        (b"[" * 100_000, "text", "[" * 160 + "…", "[" * 4096),
        (b"a\nb", "text", "a·b", "a\nb"),
    ],
)
def test_values_are_shown_as_what_they_are(
    value: bytes | None, kind: str, line: str | None, detail: str
) -> None:
    row = record_row(record(0, 1, value=value))

    assert (kind, line, detail) == (row.kind, row.line, row.detail)


def test_bytes_that_are_no_text_are_shown_as_a_dump() -> None:
    row = record_row(record(0, 1, value=b"\x00\x00\x00\x00\x07abc"))

    assert "binary" == row.kind
    assert 7 == row.schema_id
    assert row.detail.startswith("000000  00 00 00 00 07 61 62 63")
    assert row.detail.endswith("·····abc")


def test_values_with_a_schema_are_shown_as_json() -> None:
    framed = b"\x00\x00\x00\x00\x07\x02"

    def decode(data: bytes) -> str | None:
        return '{"id":1}' if data == framed else None

    decoded = record_row(record(0, 1, value=framed), decode=decode)
    other = record_row(record(0, 1, value=b"\x00\x00\x00\x00\x08\x02"), decode=decode)

    assert ('{"id":1}', "json", 6, 7) == (decoded.line, decoded.kind, decoded.size, decoded.schema_id)
    assert '{\n  "id": 1\n}' == decoded.detail
    assert [True, False] == [decoded.is_decoded, other.is_decoded]
    assert "binary" == other.kind


def test_text_that_is_cut_in_a_character_is_still_text() -> None:
    row = record_row(record(0, 1, value="€".encode() * 3_000))

    assert row.is_cut
    assert "text" == row.kind
    assert {"€"} == set(row.detail)


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("1970-01-01T00:00:01", 1_000),
        ("1970-01-01T02:00:01+02:00", 1_000),
        ("1700000000000", 1_700_000_000_000),
        ("1969-01-01", 0),
        ("soon", None),
        ("", None),
        ("9" * 30, None),
    ],
)
def test_times_are_dates_or_milliseconds(text: str, time_ms: int | None) -> None:
    assert time_ms == time_ms_of(text)
