"""The rows of the Spark benchmarks: what each side runs, and how the two are compared.

To add a row, add a `Row` to `rows`; a new kind of query is a method of `spark_child.Side`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.spark_topics import FIRST_TIME_MS, TopicLoad

Query = tuple[str, Mapping[str, Any]]
"""A method of `spark_child.Side` and its arguments."""

SMALL: Final = (100, 2_000_000)
LARGE: Final = (1_000, 500_000)
"""Value bytes and the number of records."""
_SINK_SMALL: Final = (100, 1_000_000)
_SINK_LARGE: Final = (1_000, 250_000)
_SPREAD_COUNT: Final = 2_000_000
_MINUTE_MS: Final = 60_000
_MIDDLE_MS: Final = FIRST_TIME_MS + 300 * _MINUTE_MS
_BATCH_ROWS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Row:
    """A figure of one side or of both."""

    group: str
    label: str
    ours: Query
    theirs: Query | None
    """What the figure is compared with; None to measure Kalda alone."""
    target: float
    """At least this many times as fast; for times, 1 / the factor that is allowed."""
    count: int | None = None
    """Records of one run, for a rate; None for a time."""
    theirs_is_kalda: bool = False
    """Whether Kalda's side runs `theirs` too, to compare two ways of its own."""
    creates_topic: str | None = None
    """A topic that is created before each run and deleted after it."""


def topics(scale: int) -> dict[str, TopicLoad]:
    """Return the topics that the rows read, by name, with `scale` times the usual records."""
    loads = [
        TopicLoad(f"v{size}-{codec}", scale * count, size, codec)
        for size, count in (SMALL, LARGE)
        for codec in ("none", "zstd")
    ]
    loads.append(TopicLoad("minutes", scale * _SPREAD_COUNT, LARGE[0], is_spread=True))
    return {each.name: each for each in loads}


def rows(scale: int) -> Iterator[Row]:
    """Yield all rows, those of one topic behind one another.

    The wanted figures are those of `scale` 1. With more records, the fixed time of each query counts less.
    """
    for size, count in (SMALL, LARGE):
        for codec in ("none", "zstd"):
            yield from _read_rows(size, scale * count, codec)
    yield from _sink_rows(scale)
    yield from _latency_rows(scale)


def _read_rows(size: int, count: int, codec: str) -> Iterator[Row]:
    is_small = size == SMALL[0]
    theirs = {"options": {"subscribe": f"v{size}-{codec}"}}
    in_place = {"options": theirs["options"] | {"readMode": "files"}}
    for group, label, measure, ours, target in (
        ("batch", "batch read", "batch_read", theirs, 2.5 if is_small else 2.0),
        ("files", "batch read in place", "batch_read", in_place, 4.0 if is_small else 3.0),
        ("available", "AvailableNow", "available_now", theirs, 2.0 if is_small else 1.5),
        ("parquet", "to Parquet by Spark", "to_parquet", theirs, 2.0 if is_small else 1.6),
    ):
        yield Row(group, f"{label}, {size} B, {codec}", (measure, ours), (measure, theirs), target, count)
    # A pipeline keeps its progress, as a stream does; a batch query has no checkpoint and no source to start.
    for label, other in (("", "to_parquet"), (" beside a stream", "stream_to_parquet")):
        yield Row(
            "direct",
            f"to Parquet by a direct pipeline{label}, {size} B, {codec}",
            ("pipeline", theirs),
            (other, theirs),
            4.0 if is_small else 3.0,
            count,
        )


def _sink_rows(scale: int) -> Iterator[Row]:
    for size, usual in (_SINK_SMALL, _SINK_LARGE):
        count = scale * usual

        def write(delivery: str | None, size: int = size, count: int = count) -> Query:
            options = {"topic": "sink"} | ({} if delivery is None else {"delivery": delivery})
            return "write", {"count": count, "value_bytes": size, "options": options}

        yield Row(
            "sink",
            f"sink at least once, {size} B",
            write("at-least-once"),
            write(None),
            1.5,
            count,
            creates_topic="sink",
        )
        yield Row(
            "exactly-once",
            f"sink exactly once beside at least once, {size} B",
            write("exactly-once"),
            write("at-least-once"),
            0.85,
            count,
            theirs_is_kalda=True,
            creates_topic="sink",
        )


def _latency_rows(scale: int) -> Iterator[Row]:
    minute = {
        "subscribe": "minutes",
        "startingTimestamp": str(_MIDDLE_MS),
        "endingTimestamp": str(_MIDDLE_MS + _MINUTE_MS),
    }
    read_minute: Query = ("batch_read", {"options": minute})
    yield Row("time", "one minute of 600 by time", read_minute, read_minute, 1 / 1.2)
    scan: Query = ("batch_read", {"options": {"subscribe": "minutes"}})
    label = f"one minute beside a scan of {scale * _SPREAD_COUNT * LARGE[0] // 10**9} GB"
    yield Row("time", label, read_minute, scan, 20.0, theirs_is_kalda=True)
    batches: Query = (
        "micro_batch",
        {
            "batches": 50,
            "options": {"subscribe": f"v{SMALL[0]}-none", "maxOffsetsPerTrigger": str(_BATCH_ROWS)},
        },
    )
    yield Row("micro", f"micro-batch of {_BATCH_ROWS} rows, p50", batches, batches, 1 / 1.2)


def topics_of(wanted: list[Row], known: Mapping[str, TopicLoad]) -> set[str]:
    """Return the loaded topics that the rows read."""
    queries = [query for row in wanted for query in (row.ours, row.theirs) if query is not None]
    return {name for _, arguments in queries if (name := arguments["options"].get("subscribe")) in known}
