"""The cases: what is asked of the source, the same for both.

A case is plain data. `DIFFERENT` names those whose outcomes differ on purpose, with the reason; the test
fails when one of them does not differ any more.
"""

import json
from typing import Any, Final

Case = dict[str, Any]

BASE_MS: Final = 1_700_000_000_000
"""The timestamp of the first record of the topics; the others follow at a distance of a second."""


def batch(name: str, *, base: str | None = "plain", **options: str) -> Case:
    """A batch query; `base` is the topic, unless the options select others."""
    return {"name": name, "kind": "batch", "options": _with_topic(base, options)}


def stream(name: str, *steps: dict[str, str], base: str | None = "plain", **options: str) -> Case:
    """A query of one or several runs with `availableNow` on one checkpoint."""
    runs = steps or ({},)
    return {"name": name, "kind": "stream", "steps": [_with_topic(base, options | step) for step in runs]}


def _with_topic(base: str | None, options: dict[str, str]) -> dict[str, str]:
    # Some names have a dot, which a keyword cannot have.
    named = {name.replace("__", "."): value for name, value in options.items()}
    return named if base is None else {"subscribe": base} | named


def offsets(**topics: dict[int, int] | list[int]) -> str:
    """The JSON of offsets, timestamps or partitions."""
    return json.dumps(topics)


EARLY: Final = {"startingOffsets": "earliest"}

BATCH: Final = [
    # Selection.
    batch("subscribe"),
    batch("subscribe several with blanks", base=None, subscribe=" plain , times,"),
    batch("option names in another case", base=None, SUBSCRIBE="plain"),
    batch("pattern", base=None, subscribePattern="pla.n"),
    batch("pattern anchored", base=None, subscribePattern="^(plain|times)$"),
    batch("pattern within the name", base=None, subscribePattern="lai"),
    batch("pattern with a Java quote", base=None, subscribePattern="\\Qplain\\E"),
    batch("pattern without match", base=None, subscribePattern="nothing-of-this-name"),
    batch("pattern that is blank", base=None, subscribePattern="  "),
    batch("pattern that is malformed", base=None, subscribePattern="(plain"),
    batch("assign", base=None, assign=offsets(plain=[0, 2])),
    batch("assign that is no object", base=None, assign="plain"),
    batch("assign that is malformed", base=None, assign='{"plain":0}'),
    batch("assign a missing partition", base=None, assign=offsets(plain=[0, 9])),
    batch("no selection", base=None),
    batch("two selections", subscribePattern="x"),
    batch("blank subscription", base=None, subscribe=" , "),
    batch("missing topic", base=None, subscribe="missing-topic"),
    batch("missing topic beside another", base=None, subscribe="plain,missing-topic"),
    batch("no servers", base=None, subscribe="plain", kafka__bootstrap__servers=""),
    # Where to start and end.
    batch("earliest to latest", startingOffsets="earliest", endingOffsets="latest"),
    batch("latest as start", startingOffsets="latest"),
    batch("earliest as end", endingOffsets="earliest"),
    batch("words in another case", startingOffsets="EARLIEST", endingOffsets="Latest"),
    batch(
        "offsets",
        startingOffsets=offsets(plain={0: 5, 1: -2, 2: 3}),
        endingOffsets=offsets(plain={0: 9, 1: -1, 2: 3}),
    ),
    batch("offsets of too few partitions", startingOffsets=offsets(plain={0: 5})),
    batch("offsets of too many partitions", startingOffsets=offsets(plain={0: 5, 1: 0, 2: 0, 3: 0})),
    batch("offsets with -1 as start", startingOffsets=offsets(plain={0: -1, 1: 0, 2: 0})),
    batch("offsets with -2 as end", endingOffsets=offsets(plain={0: -2, 1: 0, 2: 0})),
    batch("offsets that are malformed", startingOffsets='{"plain":5}'),
    batch("offsets that are no JSON", startingOffsets="first"),
    batch(
        "start above end",
        startingOffsets=offsets(plain={0: 9, 1: 0, 2: 0}),
        endingOffsets=offsets(plain={0: 5, 1: 0, 2: 0}),
    ),
    batch(
        "different partitions in start and end",
        base=None,
        assign=offsets(plain=[0]),
        startingOffsets=offsets(plain={0: 1}),
        endingOffsets=offsets(plain={1: 5}),
    ),
    batch("end above the log", endingOffsets=offsets(plain={0: 9_999, 1: 0, 2: 0})),
    batch("start above the log", startingOffsets=offsets(plain={0: 9_999, 1: 0, 2: 0})),
    batch("start before the log", base="trimmed", startingOffsets=offsets(trimmed={0: 2})),
    batch(
        "start before the log, loss allowed",
        base="trimmed",
        startingOffsets=offsets(trimmed={0: 2}),
        failOnDataLoss="false",
    ),
    batch("earliest of a trimmed log", base="trimmed"),
    batch("empty topic", base="empty"),
    # By time.
    batch("starting timestamp", startingTimestamp=str(BASE_MS + 10_000)),
    batch("starting timestamp with blanks", startingTimestamp=f" {BASE_MS + 10_000} "),
    batch("ending timestamp", endingTimestamp=str(BASE_MS + 10_000)),
    batch("both timestamps", startingTimestamp=str(BASE_MS + 5_000), endingTimestamp=str(BASE_MS + 10_000)),
    batch("timestamp out of order", base="times", startingTimestamp=str(BASE_MS + 50_000)),
    batch("timestamp after the last record", startingTimestamp=str(BASE_MS + 10_000_000)),
    batch(
        "timestamp after the last record, strategy latest",
        startingTimestamp=str(BASE_MS + 10_000_000),
        startingOffsetsByTimestampStrategy="latest",
    ),
    batch("ending timestamp after the last record", endingTimestamp=str(BASE_MS + 10_000_000)),
    batch(
        "strategy in another case",
        startingTimestamp=str(BASE_MS + 10_000_000),
        startingOffsetsByTimestampStrategy="Latest",
    ),
    batch("strategy of another name", startingTimestamp="5", startingOffsetsByTimestampStrategy="first"),
    batch("timestamp that is no number", startingTimestamp="yesterday"),
    batch(
        "timestamps by partition",
        startingOffsetsByTimestamp=offsets(plain={0: BASE_MS + 5_000, 1: BASE_MS, 2: BASE_MS + 20_000}),
    ),
    batch("timestamps of too few partitions", startingOffsetsByTimestamp=offsets(plain={0: BASE_MS})),
    batch(
        "ending timestamps by partition",
        endingOffsetsByTimestamp=offsets(plain={0: BASE_MS + 5_000, 1: BASE_MS, 2: BASE_MS + 10_000_000}),
    ),
    batch(
        "one timestamp beats timestamps by partition",
        startingTimestamp=str(BASE_MS + 10_000),
        startingOffsetsByTimestamp=offsets(plain={0: 0, 1: 0, 2: 0}),
    ),
    batch(
        "timestamps beat offsets",
        startingOffsetsByTimestamp=offsets(plain={0: BASE_MS + 9_000, 1: BASE_MS, 2: BASE_MS}),
        startingOffsets="earliest",
    ),
    batch(
        "timestamps with start above end",
        startingOffsetsByTimestamp=offsets(plain={0: BASE_MS + 9_000, 1: 0, 2: 0}),
        endingOffsetsByTimestamp=offsets(plain={0: BASE_MS, 1: 0, 2: 0}),
    ),
    # The rest.
    batch("headers", base="headers", includeHeaders="true"),
    batch("headers of random records", base="random", includeHeaders="TRUE"),
    batch("headers neither true nor false", includeHeaders="maybe"),
    batch("loss neither true nor false", failOnDataLoss="maybe"),
    batch("minPartitions", minPartitions="7"),
    batch("minPartitions below the partitions", minPartitions="2"),
    batch("minPartitions of zero", minPartitions="0"),
    batch("minPartitions that is no number", minPartitions="many"),
    batch("maxRecordsPerPartition", maxRecordsPerPartition="7"),
    batch("maxRecordsPerPartition of zero", maxRecordsPerPartition="0"),
    batch("both splits", minPartitions="7", maxRecordsPerPartition="20"),
    batch(
        "limits of triggers in a batch",
        maxOffsetsPerTrigger="1",
        minOffsetsPerTrigger="1",
        maxTriggerDelay="1s",
    ),
    batch("limits at odds in a batch", maxOffsetsPerTrigger="1", minOffsetsPerTrigger="5"),
    batch("group id", kafka__group__id="a-group-of-its-own"),
    batch("group id prefix", groupIdPrefix="mine"),
    batch("poll records", kafka__max__poll__records="3"),
    batch("poll records that are no number", kafka__max__poll__records="many"),
    batch("fetch sizes", kafka__fetch__max__bytes="200", kafka__max__partition__fetch__bytes="100"),
    batch("poll time-out", kafkaConsumer__pollTimeoutMs="30000"),
    batch("retries of look-ups", fetchOffset__numRetries="2", fetchOffset__retryIntervalMs="5"),
    batch("plaintext by name", kafka__security__protocol="PLAINTEXT"),
    batch("transactions, uncommitted", base="transactions"),
    batch("transactions, committed", base="transactions", kafka__isolation__level="read_committed"),
    batch("isolation of another name", kafka__isolation__level="serializable"),
    *(
        batch(f"refused: {name}", **{name: "x"})
        for name in (
            "kafka.auto.offset.reset",
            "kafka.key.deserializer",
            "kafka.value.deserializer",
            "kafka.enable.auto.commit",
            "kafka.interceptor.classes",
        )
    ),
    {**batch("a schema of another type"), "schema": "value string"},
    {**batch("a schema that chooses columns"), "schema": "value binary"},
]

STREAM: Final = [
    stream("stream", **EARLY),
    stream("stream from latest by default"),
    stream("stream from latest by name", startingOffsets="latest"),
    stream("stream from offsets", startingOffsets=offsets(plain={0: 5, 1: -2, 2: -1})),
    stream("stream of too few partitions", startingOffsets=offsets(plain={0: 5})),
    stream("stream from above the log", startingOffsets=offsets(plain={0: 9_999, 1: 0, 2: 0})),
    stream("stream from before the log", base="trimmed", startingOffsets=offsets(trimmed={0: 2})),
    stream(
        "stream from before the log, loss allowed",
        base="trimmed",
        startingOffsets=offsets(trimmed={0: 2}),
        failOnDataLoss="false",
    ),
    stream("stream from a timestamp", startingTimestamp=str(BASE_MS + 10_000)),
    stream("stream from a timestamp after the last record", startingTimestamp=str(BASE_MS + 10_000_000)),
    stream(
        "stream from a timestamp after the last record, strategy latest",
        startingTimestamp=str(BASE_MS + 10_000_000),
        startingOffsetsByTimestampStrategy="latest",
    ),
    stream(
        "stream from timestamps",
        startingOffsetsByTimestamp=offsets(plain={0: BASE_MS + 5_000, 1: BASE_MS, 2: BASE_MS + 20_000}),
    ),
    stream("stream with an end", endingOffsets="latest", **EARLY),
    stream("stream with an end by timestamps", endingOffsetsByTimestamp=offsets(plain={0: 5}), **EARLY),
    stream("stream with an end by one timestamp", endingTimestamp="5", **EARLY),
    stream("a limit", maxOffsetsPerTrigger="10", **EARLY),
    stream("a limit below the partitions", maxOffsetsPerTrigger="1", base="skewed", **EARLY),
    stream("a limit shared by backlog", maxOffsetsPerTrigger="50", base="skewed", **EARLY),
    stream("a limit that is no number", maxOffsetsPerTrigger="some", **EARLY),
    stream("a minimum above the limit", minOffsetsPerTrigger="5", maxOffsetsPerTrigger="1", **EARLY),
    stream("a minimum that is reached", minOffsetsPerTrigger="5", **EARLY),
    stream("a minimum with a limit", minOffsetsPerTrigger="25", maxOffsetsPerTrigger="25", **EARLY),
    stream(
        "a minimum at the resumption",
        {"maxOffsetsPerTrigger": "10"},
        {"minOffsetsPerTrigger": "1000"},
        **EARLY,
    ),
    stream("a delay that is no time", minOffsetsPerTrigger="5", maxTriggerDelay="soon", **EARLY),
    stream("a delay in words", minOffsetsPerTrigger="5", maxTriggerDelay="15 minutes", **EARLY),
    stream(
        "a resumption ignores the start",
        {"startingOffsets": "earliest"},
        {"startingOffsets": offsets(plain={0: 0, 1: 0, 2: 0})},
    ),
    stream("minPartitions of a stream", minPartitions="7", **EARLY),
    stream("maxRecordsPerPartition of a stream", maxRecordsPerPartition="5", **EARLY),
    stream("headers of a stream", base="headers", includeHeaders="true", **EARLY),
    stream(
        "transactions of a stream, committed",
        base="transactions",
        kafka__isolation__level="read_committed",
        **EARLY,
    ),
    stream("transactions of a stream, uncommitted", base="transactions", **EARLY),
    stream("a stream by pattern", base=None, subscribePattern="^(plain|times)$", **EARLY),
    stream("a stream by assignment", base=None, assign=offsets(plain=[0, 2]), **EARLY),
    stream("a stream of a missing topic", base="missing-topic", **EARLY),
    stream("a stream of an empty topic", base="empty", **EARLY),
    stream("a stream with a group id", kafka__group__id="another-group-of-its-own", **EARLY),
]

DIFFERENT: Final = {
    "assign a missing partition": "the official connector leaves the partition out in silence; an error here",
    "a schema that chooses columns": "the official connector refuses any schema; here it prunes columns",
    "stream with an end by one timestamp": "the official connector ignores the option",
}
