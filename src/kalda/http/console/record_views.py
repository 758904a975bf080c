"""Decides which records a page of a topic shows, and formats them. No I/O."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlencode

from kalda.clients.values import ConsumerRecord
from kalda.http.console.texts import bytes_text, line_text, schema_id_of

LIMITS: Final = (25, 50, 100, 200)
_LIMIT_DEFAULT: Final = 50
STARTS: Final = ("newest", "oldest", "offset", "time")
_LINE_CHARACTERS: Final = 160
_DETAIL_BYTES: Final = 4_096
"""What a row shows of a value when it is opened; the record's own page shows more."""
PAGE_BYTES: Final = 262_144
_OFFSET_MAX: Final = 2**63 - 1
_PARTITION_MAX: Final = 2**31 - 1
_TEXT_CHARACTERS_MAX: Final = 2_000
_TIME_CHARACTERS_MAX: Final = 40

_DECODED_BYTES_MAX: Final = 1 << 20
"""Larger payloads are shown as bytes: decoding them would hold up the other visitors."""

Record = ConsumerRecord[bytes | None, bytes | None]
Decode = Callable[[bytes], str | None]


@dataclass(frozen=True, slots=True)
class RecordQuery:
    """A request for a page of a topic's records; the page's address encodes all of it."""

    path: str
    partition: int | None = None
    start: str = "newest"
    offset: int = 0
    time: str = ""
    limit: int = _LIMIT_DEFAULT
    at: Mapping[int, int] | None = None
    """By partition, where the page before ended."""
    key: str = ""
    value: str = ""
    header: str = ""
    """A name, or ``name=value``."""
    field: str = ""
    """A path in a JSON value, as ``$.customer.id``."""
    equals: str = ""
    where: str = ""
    """A condition in SQL."""
    until: str = ""
    """Only records before this time."""

    @classmethod
    def of(cls, path: str, parameters: Mapping[str, str]) -> "RecordQuery":
        """Read an address; invalid parameters are ignored."""
        start = parameters.get("start", "newest")
        limit = _number(parameters.get("limit", ""), LIMITS[-1])

        def text(name: str, characters: int = _TEXT_CHARACTERS_MAX) -> str:
            return parameters.get(name, "").strip()[:characters]

        return cls(
            path,
            _number(parameters.get("partition", ""), _PARTITION_MAX),
            start if start in STARTS else "newest",
            _number(parameters.get("offset", ""), _OFFSET_MAX) or 0,
            text("time", _TIME_CHARACTERS_MAX),
            limit if limit in LIMITS else _LIMIT_DEFAULT,
            _places(parameters.get("at", "")),
            key=text("key"),
            value=text("value"),
            header=text("header"),
            field=text("field"),
            equals=text("equals"),
            where=text("where"),
            until=text("until", _TIME_CHARACTERS_MAX),
        )

    @property
    def is_search(self) -> bool:
        """Whether the page needs a search through records."""
        return bool(self.key or self.value or self.header or self.field or self.where or self.until)

    @property
    def is_backward(self) -> bool:
        """Whether the newest records come first."""
        return self.start == "newest"

    @property
    def link(self) -> str:
        """The address of this page."""
        pairs: list[tuple[str, str]] = []
        if self.partition is not None:
            pairs.append(("partition", str(self.partition)))
        if self.start != "newest":
            pairs.append(("start", self.start))
        if self.start == "offset":
            pairs.append(("offset", str(self.offset)))
        if self.start == "time" and self.time:
            pairs.append(("time", self.time))
        for name in ("key", "value", "header", "field", "equals", "where", "until"):
            text = getattr(self, name)
            if text:
                pairs.append((name, text))
        if self.limit != _LIMIT_DEFAULT:
            pairs.append(("limit", str(self.limit)))
        if self.at is not None:
            pairs.append(("at", ",".join(f"{number}:{offset}" for number, offset in sorted(self.at.items()))))
        return f"{self.path}?{urlencode(pairs)}" if pairs else self.path

    def going_on(self, at: Mapping[int, int]) -> "RecordQuery":
        """Return the query for the page behind this one."""
        return replace(self, at=dict(at))

    def from_the_start(self) -> "RecordQuery":
        """Return the query for the first page."""
        return replace(self, at=None)


@dataclass(frozen=True, slots=True)
class RecordRow:
    """A record on a page."""

    partition: int
    offset: int
    timestamp_ms: int
    key: str | None
    line: str | None
    """The beginning of the value; None for a tombstone."""
    detail: str
    kind: str
    """What the value is: json, text, binary, or null."""
    is_decoded: bool
    """Whether the value is shown as its schema has it; its bytes are another thing."""
    size: int
    is_cut: bool
    headers: Sequence[tuple[str, str | None]]
    schema_id: int | None


def record_row(record: Record, detail_bytes: int = _DETAIL_BYTES, decode: Decode | None = None) -> RecordRow:
    """Return the row of a record, with its value cut to a bound.

    `decode` returns a payload as JSON by its schema, or None.
    """
    key, _ = _decoded(record.key, decode)
    value, is_decoded = _decoded(record.value, decode)
    shown = None if value is None else value[:detail_bytes]
    is_cut = value is not None and len(value) > detail_bytes
    if shown is None:
        detail, kind = "", "null"
    else:
        detail, kind = bytes_text(_without_half_character(shown) if is_cut else shown)
        if is_decoded:
            kind = "json"
    return RecordRow(
        record.partition,
        record.offset,
        record.timestamp_ms,
        line_text(key, _LINE_CHARACTERS),
        line_text(value, _LINE_CHARACTERS),
        detail,
        kind,
        is_decoded,
        0 if record.value is None else len(record.value),
        is_cut,
        [(name, line_text(content, _LINE_CHARACTERS)) for name, content in record.headers],
        schema_id_of(record.value),
    )


def _decoded(data: bytes | None, decode: Decode | None) -> tuple[bytes | None, bool]:
    """Return a key or value as JSON if it has a schema and is not too large, and whether it was decoded."""
    if data is not None and decode is not None and len(data) <= _DECODED_BYTES_MAX:
        text = decode(data)
        if text is not None:
            return text.encode(errors="replace"), True
    return data, False


def _without_half_character(data: bytes) -> bytes:
    """Return UTF-8 that was cut anywhere up to its last whole character; other bytes as they are."""
    for end in range(len(data), max(0, len(data) - 4), -1):
        try:
            data[:end].decode()
        except UnicodeDecodeError:
            continue
        return data[:end]
    return data


Ranges = Mapping[int, tuple[int, int]]
"""By partition, the first offset and the end."""


def wanted_ranges(
    query: RecordQuery, logs: Ranges, found: Mapping[int, int | None]
) -> dict[int, tuple[int, int]]:
    """Return the offsets of each partition to read for one page.

    Args:
        query: What is wanted.
        logs: What the partitions hold.
        found: By partition, the first offset at or after the wanted time, where the query is by time.
    """
    ranges = {}
    for number, (first, end) in logs.items():
        if query.partition is not None and number != query.partition:
            continue
        place = None if query.at is None else query.at.get(number, end if query.is_backward else first)
        if query.is_backward:
            upper = end if place is None else min(max(place, first), end)
            ranges[number] = (max(first, upper - query.limit), upper)
            continue
        if place is None:
            if query.start == "offset":
                place = query.offset
            elif query.start == "time":
                offset = found.get(number)
                place = end if offset is None else offset
            else:
                place = first
        lower = min(max(place, first), end)
        ranges[number] = (lower, min(end, lower + query.limit))
    return ranges


@dataclass(frozen=True, slots=True)
class Shown:
    """The records of a page and where the next page begins."""

    records: Sequence[Record]
    next_at: Mapping[int, int] | None
    """None if there is nothing more."""


def shown_of(query: RecordQuery, records: Iterable[Record], ranges: Ranges, logs: Ranges) -> Shown:
    """Return the records of a page in order of time, and where the next one begins.

    No record is passed over: a partition goes on where its last record on the page is, or where it was read
    to if it had none.
    """
    ordered = sorted(
        records,
        key=lambda each: (each.timestamp_ms, each.offset, each.partition),
        reverse=query.is_backward,
    )
    # In a partition the order is that of offsets, whatever producers say about the time.
    shown = _in_offset_order(ordered, is_backward=query.is_backward)[: query.limit]
    places = {}
    for number, (lower, upper) in ranges.items():
        own = [each.offset for each in shown if each.partition == number]
        has_more = any(each.partition == number for each in ordered) and not own
        if query.is_backward:
            places[number] = min(own) if own else upper if has_more else lower
        else:
            places[number] = max(own) + 1 if own else lower if has_more else upper
    if query.is_backward:
        is_end = all(place <= logs[number][0] for number, place in places.items())
    else:
        is_end = all(place >= logs[number][1] for number, place in places.items())
    return Shown(shown, None if is_end else places)


def _in_offset_order(records: Sequence[Record], *, is_backward: bool) -> list[Record]:
    waiting: dict[int, list[Record]] = {}
    for each in records:
        waiting.setdefault(each.partition, []).append(each)
    for own in waiting.values():
        own.sort(key=lambda each: each.offset, reverse=not is_backward)
    return [waiting[each.partition].pop() for each in records]


def time_ms_of(text: str) -> int | None:
    """Return a time as milliseconds since the epoch; None if it is no time.

    >>> time_ms_of("1970-01-01T00:00:01"), time_ms_of("1700000000000"), time_ms_of("soon")
    (1000, 1700000000000, None)
    """
    text = text.strip()
    if text.isascii() and text.isdigit() and len(text) <= 15:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0, round(moment.timestamp() * 1000))


def _number(text: str, most: int) -> int | None:
    text = text.strip()
    return min(int(text), most) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _places(text: str) -> dict[int, int] | None:
    places = {}
    for pair in text.split(",") if text and len(text) < 200_000 else ():
        number, _, offset = pair.partition(":")
        known, place = _number(number, _PARTITION_MAX), _number(offset, _OFFSET_MAX)
        if known is None or place is None:
            return None
        places[known] = place
    return places or None
