"""Defines the contents of a pipeline file as values.

It has no defaults of its own beside those of its fields, and checks nothing: `kalda.pipelines.spec.parser`
builds these values from YAML and refuses what they cannot hold. The values are frozen and picklable, because
tasks on executors receive them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

FILE_TARGET_BYTES: Final = 128 * 1024 * 1024
"""The size of files that query engines like: large enough to amortize opening one."""


def _nothing() -> Mapping[str, str]:
    return {}


class PipelineKind(StrEnum):
    """What a pipeline reads and writes."""

    TOPIC_TO_TABLE = "topic to table"
    TOPIC_TO_TOPIC = "topic to topic"
    TABLE_TO_TOPIC = "table to topic"
    MIRROR = "mirror"


class TriggerKind(StrEnum):
    """When a pipeline starts a batch."""

    INTERVAL = "interval"
    """``5s``: one query that runs all the time, with a batch every five seconds."""
    AVAILABLE_NOW = "availableNow"
    """Processes what is there now, then ends."""
    EVERY = "every"
    """``every 10m``: processes what is there, then waits for the next time."""


class OnError(StrEnum):
    """What happens to a record that cannot be decoded or converted."""

    DLQ = "dlq"
    SKIP = "skip"
    FAIL = "fail"


class OnFail(StrEnum):
    """What happens to a row that does not meet an expectation."""

    DLQ = "dlq"
    DROP = "drop"
    FAIL = "fail"


class Delivery(StrEnum):
    """The guarantee of a topic that is written; the names are those of the sink's option `delivery`."""

    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"
    EXACTLY_ONCE_BATCH = "exactly-once-batch"


class TableFormat(StrEnum):
    """The format of a table."""

    DELTA = "delta"
    ICEBERG = "iceberg"
    PARQUET = "parquet"


class Compression(StrEnum):
    """How the pages of a table's Parquet files are compressed, by Parquet's names."""

    SNAPPY = "snappy"
    ZSTD = "zstd"
    LZ4 = "lz4"
    NONE = "none"


class WriteMode(StrEnum):
    """Whether rows are added to a table or replace rows with the same keys."""

    APPEND = "append"
    UPSERT = "upsert"


class Evolve(StrEnum):
    """Which changes of the schema a table accepts."""

    ADD = "add"
    """New nullable columns."""
    WIDEN = "widen"
    """New nullable columns, and wider types: int to bigint, float to double."""
    NONE = "none"


class Keep(StrEnum):
    """The columns of a record that a transform may use beside those of its value."""

    KEY = "key"
    HEADERS = "headers"
    TOPIC = "topic"
    PARTITION = "partition"
    OFFSET = "offset"
    TIMESTAMP = "timestamp"


class Rename(StrEnum):
    """What a mirrored topic is called in the target cluster."""

    IDENTITY = "identity"
    """The same name."""
    PREFIX = "prefix"
    """``<source>.<topic>``, as MirrorMaker's default policy does it."""


class CopyDelivery(StrEnum):
    """The guarantee of mirrors, and of tables that become topics: their progress is in the transactions."""

    EXACTLY_ONCE = "exactly-once"


class MirrorStart(StrEnum):
    """Where a mirror without progress begins to copy."""

    EARLIEST = "earliest"
    LATEST = "latest"


class MirrorSync(StrEnum):
    """What a mirror copies beside records."""

    CONFIGS = "configs"
    GROUPS = "groups"


class Execution(StrEnum):
    """How a pipeline is executed."""

    AUTO = "auto"
    """Directly where the transform allows it, else by Spark."""
    DIRECT = "direct"
    """Rows stay in Python and Arrow; a transform that needs Spark is an error."""
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is written in a pipeline file, for messages."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """When batches run."""

    kind: TriggerKind = TriggerKind.INTERVAL
    interval_ms: int = 5_000
    """The time between the starts of two batches, or of two runs; unused with `AVAILABLE_NOW`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A cluster's clients."""

    name: str
    properties: Mapping[str, str] = field(default_factory=_nothing)
    """Settings with Kafka's dotted names; `bootstrap.servers` among them."""

    @property
    def bootstrap_servers(self) -> str:
        """The brokers to connect to first."""
        return self.properties["bootstrap.servers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueFormat:
    """The format of keys or values; `kalda.formats` gives the names and their options a meaning."""

    name: str = "raw"
    """``raw``, ``text``, ``json``, ``csv``, ``avro``, ``avro-sr``, ``protobuf``, ``debezium-json``, ..."""
    schema: str | None = None
    """The schema as text: a list of columns as in SQL, an Avro schema, a .proto file, by format."""
    options: Mapping[str, str] = field(default_factory=_nothing)
    """Options of the format, for example ``registry.url`` or a CSV separator."""
    place: Place | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSource:
    """Topics that a pipeline reads."""

    topics: tuple[str, ...] = ()
    """Names; empty where `pattern` selects."""
    pattern: str | None = None
    """A regular expression for the whole name, in Java's syntax as in `subscribePattern`."""
    cluster: str
    """The name of a cluster of the file."""
    start: str = "earliest"
    """``earliest``, ``latest``, ``group``, ``-10m``, a date and time, or JSON as in `startingOffsets`."""
    value: ValueFormat = field(default_factory=ValueFormat)
    keep: tuple[Keep, ...] = ()
    records_per_batch_max: int | None = None
    options: Mapping[str, str] = field(default_factory=_nothing)
    """More options of the source ``kalda``, by their names there."""
    place: Place | None = None

    @property
    def description(self) -> str:
        """The topics for a message."""
        return f"/{self.pattern}/" if self.pattern is not None else ", ".join(self.topics)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSource:
    """A table that a pipeline reads."""

    table: str
    path: str
    """The table's directory as a URI."""
    format: TableFormat = TableFormat.DELTA
    changes: bool = False
    """Whether only the changes between two versions are read, instead of the whole table each time."""
    catalog: Mapping[str, str] = field(default_factory=_nothing)
    options: Mapping[str, str] = field(default_factory=_nothing)
    place: Place | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlStep:
    """A step in SQL: ``select ...``, ``where ...``, or a whole query on the view ``input``."""

    text: str
    place: Place | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonStep:
    """A step by a Python function on Arrow batches, ``pkg.mod:fn``."""

    function: str
    place: Place | None = None


TransformStep = SqlStep | PythonStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """A condition that rows should meet after the transform; null counts as not met."""

    name: str
    check: str
    """A boolean expression in SQL."""
    on_fail: OnFail = OnFail.FAIL
    place: Place | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """What happens to rows whose event time is long past."""

    allow_ms: int
    """How far a row may lie behind the greatest event time that was committed before its batch."""
    after: str
    """``keep``, or the name of a table that gets the late rows."""
    path: str | None = None
    """The directory of that table as a URI."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compact:
    """When small files are merged into larger ones."""

    every_ms: int
    newest_ms: int = 600_000
    """Files younger than this stay as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """A table that a pipeline writes."""

    table: str
    """The name in the file, ``lake.orders``, or a URI."""
    path: str
    """The table's directory as a URI."""
    format: TableFormat = TableFormat.DELTA
    partition_by: tuple[str, ...] = ()
    mode: WriteMode = WriteMode.APPEND
    keys: tuple[str, ...] = ()
    """With `UPSERT`: the columns that identify a row."""
    order_by: str | None = None
    """With `UPSERT`: of rows with the same keys, the one with the greatest value counts, then the offset."""
    deletes: str | None = None
    """With `UPSERT`: a condition in SQL; a row that meets it deletes the row with its keys."""
    event_time: str | None = None
    """A column with a timestamp."""
    late: Late | None = None
    file_target_bytes: int = FILE_TARGET_BYTES
    compression: Compression = Compression.SNAPPY
    max_latency_ms: int | None = None
    """How long small batches may wait to become one file; None: every batch is committed."""
    evolve: Evolve = Evolve.NONE
    compact: Compact | None = None
    catalog: Mapping[str, str] = field(default_factory=_nothing)
    """The Iceberg catalog's properties, as pyiceberg names them; empty: SQLite in the warehouse."""
    options: Mapping[str, str] = field(default_factory=_nothing)
    """Options of the object store, as `deltalake` and `pyiceberg` name them."""
    place: Place | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTarget:
    """A topic that a pipeline writes."""

    topic: str
    cluster: str
    value: ValueFormat | None = None
    """The format of the values; None: the transform's column `value` is written as it is."""
    key: tuple[str, ...] = ()
    """The columns of the key; empty: the transform's column `key`, if there is one."""
    tombstones: bool = False
    """Whether a deleted row of a table, or a row without a value, becomes a record without a value."""
    delivery: Delivery = Delivery.EXACTLY_ONCE
    options: Mapping[str, str] = field(default_factory=_nothing)
    """Settings of the producer, by Kafka's names."""
    place: Place | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSpec:
    """A copy of topics to another cluster."""

    source: str
    """The name of a cluster of the file."""
    target: str
    topics: str
    """A regular expression for whole names."""
    rename: Rename = Rename.IDENTITY
    sync: tuple[MirrorSync, ...] = (MirrorSync.CONFIGS,)
    start: MirrorStart = MirrorStart.EARLIEST
    place: Place | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """How a failed pipeline is restarted."""

    tries: int = 5
    """Failures of the same batch after which the pipeline stops for good."""
    backoff_ms: int = 1_000
    """The wait after the first failure; it doubles with each further one."""
    backoff_max_ms: int = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """When a pipeline stops because too much of a batch is bad."""

    bad_max: float = 0.05
    """The largest share of records of a batch that may be bad."""
    records_min: int = 100
    """Smaller batches do not stop a pipeline: one bad record of ten is no trend."""


def retry_topic(dlq_topic: str) -> str:
    """Return the topic from which a pipeline reads replayed records beside its own topics."""
    return f"{dlq_topic}.retry"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSpec:
    """One pipeline."""

    name: str
    kind: PipelineKind
    source: TopicSource | TableSource | None
    """None for a mirror."""
    target: TableSpec | TopicTarget | None
    """None for a mirror."""
    mirror: MirrorSpec | None = None
    transform: tuple[TransformStep, ...] = ()
    views: Mapping[str, TableSource] = field(default_factory=dict)
    """Tables that SQL steps may join, by the name that they have there."""
    expect: tuple[Expectation, ...] = ()
    on_error: OnError = OnError.DLQ
    dlq_topic: str
    """The dead-letter queue, `<pipeline>.dlq` unless the file says otherwise."""
    trigger: Trigger = field(default_factory=Trigger)
    execution: Execution = Execution.AUTO
    restart: Restart = field(default_factory=Restart)
    breaker: Breaker = field(default_factory=Breaker)
    ledger: bool = True
    """Whether the accounts of batches are published to the ledger's topic."""
    place: Place

    @property
    def target_name(self) -> str:
        """The table or topic that is written, as the file names it; for a mirror the cluster."""
        if isinstance(self.target, TableSpec):
            return self.target.table
        if isinstance(self.target, TopicTarget):
            return self.target.topic
        return self.mirror.target if self.mirror is not None else ""

    @property
    def has_dead_letters(self) -> bool:
        """Whether records may go to the dead-letter queue.

        Such a pipeline also reads the topic of replayed dead letters.
        """
        return self.on_error is OnError.DLQ or any(each.on_fail is OnFail.DLQ for each in self.expect)

    @property
    def retry_topic(self) -> str:
        """The topic from which the pipeline reads replayed dead letters."""
        return retry_topic(self.dlq_topic)

    @property
    def written_topics(self) -> frozenset[str]:
        """The topics of the source's cluster that the pipeline writes, and so must not read."""
        names = [self.dlq_topic] if self.has_dead_letters else []
        if (
            isinstance(self.source, TopicSource)
            and isinstance(self.target, TopicTarget)
            and self.target.cluster == self.source.cluster
        ):
            names.append(self.target.topic)
        return frozenset(names)

    @property
    def group_id(self) -> str:
        """The consumer group under which the pipeline's progress shows in every tool."""
        return f"kalda-pipeline-{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """How the Spark application runs."""

    master: str = "local[*]"
    settings: Mapping[str, str] = field(default_factory=_nothing)
    """Spark's own settings; they win over those that Kalda recommends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFile:
    """A whole file."""

    path: str
    """The file as the user named it."""
    name: str
    storage: str
    """A URI: checkpoints are in `<storage>/checkpoints/<pipeline>`, the status in `<storage>/status`."""
    warehouse: str
    """A URI: the table `lake.orders` is the directory `<warehouse>/lake/orders`."""
    clusters: Mapping[str, Cluster]
    spark: SparkSettings = field(default_factory=SparkSettings)
    pipelines: tuple[PipelineSpec, ...]

    def cluster(self, name: str) -> Cluster:
        """Return the cluster of that name; the parser has checked that it exists."""
        return self.clusters[name]

    @property
    def refill_storage(self) -> str:
        """The URI under which replays and backfills keep what the pipelines keep in `storage`."""
        return f"{self.storage}/refills"

    def checkpoint(self, pipeline: str) -> str:
        """Return the URI of a pipeline's checkpoint."""
        return f"{self.storage}/checkpoints/{pipeline}"
