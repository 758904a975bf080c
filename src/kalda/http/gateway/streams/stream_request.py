"""Reads what a request for a stream asks for: where to begin, which records, in what form."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Final

from kalda.http.gateway.parameters import InvalidParameterError, read_int, read_word
from kalda.http.gateway.streams.conditions import Conditions, parse_conditions
from kalda.http.gateway.streams.event_ids import PARTITION_MAX, parse_event_id
from kalda.http.gateway.streams.rendering import Format

PARTITIONS_MAX: Final = 4_096
"""Partitions that a request may name one by one."""
TIMESTAMP_MAX: Final = 2**53
"""The largest timestamp in milliseconds that a number of JSON carries."""

_PARAMETERS: Final = (
    "from",
    "partitions",
    "key",
    "header",
    "where",
    "isolation",
    "key_format",
    "value_format",
    "last_event_id",
)
_AGO: Final = re.compile(r"now(?:-(?P<count>\d{1,9})(?P<unit>ms|s|m|h|d))?", re.ASCII)
_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_FROM: Final = (
    "beginning, end, now, now-5m (ms, s, m, h, d), a time in milliseconds since the epoch or as "
    "2026-11-29T04:00:00Z, or offsets such as 0:120,1:87"
)
_TRUE: Final = ("read_committed", "read_uncommitted")


class Edge(Enum):
    """An end of a topic."""

    BEGINNING = "beginning"
    END = "end"


@dataclass(frozen=True, slots=True)
class Start:
    """Where a stream begins; what is set first counts, and partitions without an offset begin at `edge`."""

    offsets: Mapping[int, int] | None = None
    """The next offset of each partition."""
    timestamp_ms: int | None = None
    edge: Edge = Edge.END
    is_resumed: bool = False
    """Whether `offsets` is the id of an event, so that a partition it does not name was added later."""


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """The parameters of a request for a stream."""

    topic: str
    start: Start
    partitions: frozenset[int] | None
    """None is all, also those that are added later."""
    conditions: Conditions
    is_read_committed: bool
    key_format: Format
    value_format: Format


def parse_stream_request(
    topic: str, parameters: Iterable[tuple[str, str]], last_event_id: str | None, now_ms: int
) -> StreamRequest:
    """Parse the parameters of a request.

    Args:
        topic: The topic's name, which is not checked here.
        parameters: Pairs of name and value, as the query has them.
        last_event_id: The header of that name, which `EventSource` sends when it connects again. It counts
            before the parameter ``last_event_id``, and both before ``from``.
        now_ms: The time, in milliseconds since the epoch.

    Raises:
        InvalidParameterError: a parameter is unknown, there twice, or has a value that is not allowed.
    """
    given: dict[str, list[str]] = {}
    for name, value in parameters:
        read_word("parameter", name, _PARAMETERS)
        given.setdefault(name, []).append(value)
    for name, values in given.items():
        if len(values) > 1 and name not in ("key", "header", "where"):
            raise InvalidParameterError(name, values[1], "it may be given once")
    single = {name: values[0] for name, values in given.items()}
    resumed = last_event_id or single.get("last_event_id")
    if resumed:
        start = Start(offsets=parse_event_id(resumed), edge=Edge.BEGINNING, is_resumed=True)
    else:
        start = parse_start(single.get("from", "end"), now_ms)
    partitions = parse_partitions(single["partitions"]) if "partitions" in single else None
    isolation = read_word("isolation", single.get("isolation", "read_committed"), _TRUE)
    return StreamRequest(
        topic,
        start,
        partitions,
        parse_conditions(given.get("key", ()), given.get("header", ()), given.get("where", ())),
        isolation == "read_committed",
        _format("key_format", single, (Format.AUTO, Format.TEXT, Format.JSON, Format.BINARY, Format.SCHEMA)),
        _format("value_format", single, tuple(Format)),
    )


def parse_start(text: str, now_ms: int) -> Start:
    """Return where a stream begins by the parameter ``from``.

    Raises:
        InvalidParameterError: the text is none of the forms.
    """
    if text in ("beginning", "end"):
        return Start(edge=Edge(text))
    if found := _AGO.fullmatch(text):
        if found["count"] is None:
            return Start()
        return Start(timestamp_ms=max(now_ms - int(found["count"]) * _UNIT_MS[found["unit"]], 0))
    if ":" in text and "T" not in text:
        return Start(offsets=parse_event_id(text, "from"))
    if text.isascii() and text.isdigit():
        return Start(timestamp_ms=read_int("from", text, 0, TIMESTAMP_MAX))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidParameterError("from", text, _FROM) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        return Start(timestamp_ms=max(int(moment.timestamp() * 1000), 0))
    except (OverflowError, ValueError):
        raise InvalidParameterError("from", text, _FROM) from None


def parse_partitions(text: str) -> frozenset[int]:
    """Return the partitions of a list such as ``0,3,5-7``.

    Raises:
        InvalidParameterError: the text is no such list, or names more than 4,096 partitions.
    """
    found: set[int] = set()
    for part in text.split(","):
        low_text, dash, high_text = part.partition("-")
        low = read_int("partitions", low_text, 0, PARTITION_MAX)
        high = read_int("partitions", high_text, low, PARTITION_MAX) if dash else low
        if high - low + len(found) >= PARTITIONS_MAX:
            raise InvalidParameterError("partitions", text, f"at most {PARTITIONS_MAX} partitions")
        found.update(range(low, high + 1))
    return frozenset(found)


def _format(name: str, given: Mapping[str, str], allowed: Sequence[Format]) -> Format:
    words = [each.value for each in allowed]
    return Format(read_word(name, given.get(name, Format.AUTO.value), words))
