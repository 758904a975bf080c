"""Declares the keys of a pipeline file for the parser and for the reference page.

A new key is a line here, a field of `kalda.pipelines.spec.model` and a line in the parser.
"""

from typing import Final

from kalda.pipelines.spec import values
from kalda.pipelines.spec.model import (
    Compression,
    CopyDelivery,
    Delivery,
    Evolve,
    Execution,
    Keep,
    MirrorStart,
    MirrorSync,
    OnError,
    OnFail,
    Rename,
    TableFormat,
    WriteMode,
)
from kalda.pipelines.spec.nodes import Key, Section
from kalda.pipelines.spec.values import choice

_MAPPING: Final = "a mapping of names to values"
_COLUMNS: Final = "a list of columns"

ON_ERROR: Final = choice(OnError)
ON_FAIL: Final = choice(OnFail)
DELIVERY: Final = choice(Delivery)
COPY_DELIVERY: Final = choice(CopyDelivery)
TABLE_FORMAT: Final = choice(TableFormat)
COMPRESSION: Final = choice(Compression)
MODE: Final = choice(WriteMode)
EVOLVE: Final = choice(Evolve)
KEEP: Final = choice(Keep)
RENAME: Final = choice(Rename)
SYNC: Final = choice(MirrorSync)
MIRROR_START: Final = choice(MirrorStart)
EXECUTION: Final = choice(Execution)

_TRIGGER_HELP: Final = (
    "When batches run: `5s` is one query that runs all the time, with a batch every five seconds; "
    "`availableNow` processes what is there and ends; `every 10m` does that every ten minutes."
)
_ON_ERROR_HELP: Final = (
    "What happens to a record that cannot be decoded: `dlq` sends it to the dead-letter queue, `skip` "
    "drops and "
    "counts it, `fail` stops the pipeline."
)
_DELIVERY_HELP: Final = (
    "The guarantee for a topic that is written: `exactly-once` has a transaction for each task, "
    "`exactly-once-batch` shows a whole batch or nothing, `at-least-once` may repeat records after a failure."
)
_EXECUTION_HELP: Final = (
    "`direct` leaves rows in Python and Arrow, `spark` moves them through Spark's SQL engine, `auto` takes "
    "`direct` where the transform allows it."
)

FILE: Final = Section(
    "the file",
    "The top level of a file.",
    (
        Key("name", values.NAME.takes, "The name of the Spark application.", is_required=True),
        Key(
            "storage",
            "a URI or a directory",
            "Where checkpoints and status are kept; every driver and executor must reach it. A path "
            "without a "
            "scheme is relative to the file's directory.",
            is_required=True,
        ),
        Key(
            "warehouse",
            "a URI or a directory",
            "Where tables are: `lake.orders` is the directory `lake/orders` in it.",
            default="`<storage>/tables`",
        ),
        Key(
            "cluster",
            _MAPPING,
            "Settings of the clients of the cluster, by Kafka's names: `bootstrap.servers`, security "
            "settings, "
            "and so on. The option `--bootstrap-server` wins.",
            default="`$KALDA_BOOTSTRAP_SERVER`, else `127.0.0.1:9092`",
        ),
        Key(
            "clusters",
            "a mapping of names to such settings",
            "More clusters, for `cluster` of a source or target and for mirrors.",
        ),
        Key("catalog", _MAPPING, "Properties of the Iceberg catalog, by pyiceberg's names."),
        Key("registry", _MAPPING, "The schema registry: `url`, and options of its client."),
        Key("defaults", "a mapping", "Settings of every pipeline that has none of its own; see below."),
        Key("spark", "a mapping", "How the Spark application runs; see below."),
        Key("pipelines", "a list of pipelines", "The pipelines; see below.", is_required=True),
    ),
)

SPARK: Final = Section(
    "spark",
    "How the Spark application runs.",
    (
        Key(
            "master",
            values.TEXT.takes,
            "Spark's master: `local[*]`, `spark://HOST:PORT`, `k8s://...`, `yarn`. Not `sc://...`: Spark "
            "Connect has no SparkContext, which pipelines need. `--master` wins.",
            default="`local[*]`",
        ),
        Key("settings", _MAPPING, "Spark's own settings; they win over those that Kalda recommends."),
    ),
)

_SHARED_KEYS: Final = (
    Key("trigger", values.TRIGGER.takes, _TRIGGER_HELP, default="`5s`"),
    Key("on_error", ON_ERROR.takes, _ON_ERROR_HELP, default="`dlq`"),
    Key("execution", EXECUTION.takes, _EXECUTION_HELP, default="`auto`"),
    Key("restart", "a mapping", "How a failed pipeline is restarted; see below."),
    Key("breaker", "a mapping", "When a pipeline stops because too much is bad; see below."),
    Key(
        "ledger",
        values.BOOLEAN.takes,
        "Whether the accounts of batches are published to the topic `__kalda_audit`.",
        default="`true`",
    ),
)

DEFAULTS: Final = Section(
    "defaults",
    "What holds for every pipeline of the file unless it says otherwise.",
    (
        *_SHARED_KEYS,
        Key("delivery", DELIVERY.takes, _DELIVERY_HELP, default="`exactly-once`"),
        Key("value", "a format", "The format of values, as `value` of a source.", default="`raw`"),
        Key("table_format", TABLE_FORMAT.takes, "The format of tables.", default="`delta`"),
    ),
)

RESTART: Final = Section(
    "restart",
    "How a failed pipeline is restarted.",
    (
        Key(
            "tries",
            values.COUNT.takes,
            "Failures of the same batch after which the pipeline stops for good.",
            default="`5`",
        ),
        Key(
            "backoff",
            values.DURATION.takes,
            "The wait after the first failure; it doubles with each further one.",
            default="`1s`",
        ),
        Key("backoff_max", values.DURATION.takes, "The longest wait.", default="`1m`"),
    ),
)

BREAKER: Final = Section(
    "breaker",
    "When a pipeline stops because too much of a batch is bad. Nothing of such a batch is written.",
    (
        Key(
            "bad_max",
            values.SHARE.takes,
            "The largest share of a batch's records that may be bad; `100%` never stops.",
            default="`5%`",
        ),
        Key(
            "records_min",
            values.COUNT.takes,
            "Batches with fewer records do not stop the pipeline.",
            default="`100`",
        ),
    ),
)

PIPELINE: Final = Section(
    "a pipeline",
    "An entry of `pipelines`: `from` and `to`, or `mirror`.",
    (
        Key(
            "name",
            values.NAME.takes,
            "The name; it is part of the checkpoint's path, of the consumer group and of the dead-letter "
            "queue.",
            is_required=True,
        ),
        Key("from", "a mapping with `topic`, `pattern` or `table`", "What is read; see below."),
        Key(
            "transform",
            "a list of steps",
            "Each step is SQL, `select ...` or `where ...` (a whole query reads the view `input`), or "
            "`python: package.module:function` on Arrow batches.",
        ),
        Key(
            "views",
            "a mapping of names to tables",
            "Tables that SQL steps may join, as `from` with `table`; each batch reads them as they are then.",
        ),
        Key("expect", "a mapping of names to expectations", "Conditions that rows must meet; see below."),
        Key("to", "a mapping with `table` or `topic`", "What is written; see below."),
        Key(
            "mirror",
            "a mapping",
            "A copy of topics to another cluster, instead of `from` and `to`; see below.",
        ),
        Key(
            "dlq",
            values.DLQ_TOPIC.takes,
            "The topic of the dead-letter queue, on the source's cluster.",
            default="`<name>.dlq`",
        ),
        *_SHARED_KEYS,
    ),
)

FROM_TOPIC: Final = Section(
    "from with a topic",
    "`from` of a pipeline that reads topics.",
    (
        Key("topic", "a topic or a list of topics", "What is read; this or `pattern`."),
        Key("pattern", values.PATTERN.takes, "Topics whose whole name matches; new ones are found."),
        Key("cluster", "the name of one of the `clusters`", "Where the topics are.", default="`cluster`"),
        Key(
            "start",
            values.START.takes,
            "Where a new pipeline begins; a checkpoint wins. `group` begins at the committed offsets of the "
            "pipeline's own consumer group.",
            default="`earliest`",
        ),
        Key(
            "value",
            "a format",
            "The format of values: a name, or a mapping; see below. Fields become columns.",
            default="`raw`",
        ),
        Key(
            "keep",
            f"a list of {KEEP.takes}",
            "Columns of the record beside the fields of its value. A field of the same name wins.",
            default="none; all with the format `raw`",
        ),
        Key("max_records", values.COUNT.takes, "The greatest number of offsets in a batch."),
        Key("options", _MAPPING, "More options of the data source `kalda`, by their names there."),
    ),
)

FROM_TABLE: Final = Section(
    "from with a table",
    "`from` of a pipeline that reads a table, and each of `views`.",
    (
        Key("table", "a name or a URI", "The table.", is_required=True),
        Key(
            "format",
            TABLE_FORMAT.takes,
            "The table's format; `from` does not take parquet, whose files do not show what changed.",
            default="`delta`",
        ),
        Key(
            "changes",
            values.BOOLEAN.takes,
            "Whether to send only what changed since the last batch, instead of the whole table.",
            default="`false`",
        ),
        Key("catalog", _MAPPING, "Properties of the Iceberg catalog; they win over the file's."),
        Key("options", _MAPPING, "Options of the object store, `s3.…` for S3."),
    ),
)

FORMAT: Final = Section(
    "a format",
    "The format of values or keys. A name alone is a mapping with only `format`.",
    (
        Key("format", "the name of a format", "The format; see the list of formats.", is_required=True),
        Key("schema", "a schema as text", "The schema, in the form that the format has."),
        Key("schema_file", "a file", "A file with the schema, relative to the pipeline file."),
        Key("options", _MAPPING, "Options of the format."),
    ),
)

EXPECTATION: Final = Section(
    "an expectation",
    "A condition that rows must meet after the transform.",
    (
        Key(
            "check", "a boolean expression in SQL", "The condition; null counts as not met.", is_required=True
        ),
        Key(
            "on_fail",
            ON_FAIL.takes,
            "What happens to a row that does not meet it: to the dead-letter queue, dropped and counted, "
            "or the "
            "pipeline stops.",
            default="`fail`",
        ),
    ),
)

TO_TABLE: Final = Section(
    "to with a table",
    "`to` of a pipeline that writes a table.",
    (
        Key("table", "a name or a URI", "The table; it is created by the first batch.", is_required=True),
        Key("format", TABLE_FORMAT.takes, "The table's format.", default="`delta`"),
        Key(
            "partition_by",
            "a list of columns, or of year, month, day or hour of one, as `day(ts)`",
            "The columns whose values become directories.",
        ),
        Key(
            "mode",
            MODE.takes,
            "`append` adds rows; `upsert` replaces rows with the same keys.",
            default="`append`",
        ),
        Key("keys", _COLUMNS, "With `upsert`: the columns that identify a row."),
        Key(
            "order_by",
            values.COLUMN.takes,
            "With `upsert`: of rows with the same keys, the one with the greatest value counts.",
            default="the order of offsets",
        ),
        Key(
            "deletes",
            "a condition in SQL",
            "With `upsert`: a row that meets it deletes the row with its keys; so does a tombstone.",
        ),
        Key("event_time", values.COLUMN.takes, "A column with the time of the event."),
        Key("late", "a mapping", "What happens to rows whose event time is long past; see below."),
        Key(
            "file_target",
            values.SIZE.takes,
            "The size that files should have; larger results are divided.",
            default="`128MB`",
        ),
        Key(
            "compression",
            COMPRESSION.takes,
            "How files are compressed: `snappy` takes the least CPU time, `zstd` the least room.",
            default="`zstd` for `iceberg`, else `snappy`",
        ),
        Key(
            "max_latency",
            values.DURATION.takes,
            "How long batches may wait to fill a file.",
            default="every batch is committed",
        ),
        Key("schema", "a mapping", "Which changes of the schema the table accepts; see below."),
        Key("compact", "a mapping", "When small files are merged; see below."),
        Key("catalog", _MAPPING, "Properties of the Iceberg catalog; they win over the file's."),
        Key("options", _MAPPING, "Options of the object store, `s3.…` for S3."),
    ),
)

LATE: Final = Section(
    "late",
    "What happens to rows whose event time is long past.",
    (
        Key(
            "allow",
            values.DURATION.takes,
            "How far a row may lie behind the greatest event time before its batch.",
            is_required=True,
        ),
        Key(
            "after",
            "keep, or the name of a table",
            "What happens to later rows.",
            is_required=True,
        ),
    ),
)

SCHEMA: Final = Section(
    "schema",
    "Which changes of the schema the table accepts.",
    (
        Key(
            "evolve",
            EVOLVE.takes,
            "`add` accepts new nullable columns; `widen` also wider types (int to bigint or double); "
            "`none` neither. Columns that the file declares and the table may not get stop the pipeline; "
            "of columns that come from records, the rows that have them are dead letters.",
            default="`none`",
        ),
    ),
)

COMPACT: Final = Section(
    "compact",
    "When small files are merged.",
    (
        Key("every", values.DURATION.takes, "The time between two compactions.", is_required=True),
        Key("newest", values.DURATION.takes, "Files younger than this stay as they are.", default="`10m`"),
    ),
)

TO_TOPIC: Final = Section(
    "to with a topic",
    "`to` of a pipeline that writes a topic.",
    (
        Key("topic", values.TOPIC.takes, "The topic.", is_required=True),
        Key("cluster", "the name of one of the `clusters`", "Where the topic is.", default="`cluster`"),
        Key(
            "value",
            "a format",
            "The format that the columns are written in, without those of the key. Without it, the "
            "transform's "
            "column `value` is written as it is, with `key`, `headers`, `partition` and `timestamp` if "
            "it has them.",
        ),
        Key("key", _COLUMNS, "The columns of the key.", default="the column `key`"),
        Key(
            "tombstones",
            values.BOOLEAN.takes,
            "Whether a deleted row of a table becomes a record without a value.",
            default="`false`",
        ),
        Key("delivery", DELIVERY.takes, _DELIVERY_HELP, default="`exactly-once`"),
        Key("options", _MAPPING, "Settings of the producer, by Kafka's names."),
    ),
)

MIRROR: Final = Section(
    "mirror",
    "A copy of topics to another cluster.",
    (
        Key("source", "the name of one of the `clusters`", "The cluster that is read.", is_required=True),
        Key("target", "the name of one of the `clusters`", "The cluster that is written.", is_required=True),
        Key("topics", values.PATTERN.takes, "Which topics are copied.", is_required=True),
        Key(
            "rename",
            RENAME.takes,
            "`identity` keeps the names; `prefix` writes `<source>.<topic>`.",
            default="`identity`",
        ),
        Key(
            "sync",
            f"a list of {SYNC.takes}",
            "What is copied beside records: settings of topics, and groups' offsets (translated).",
            default="`configs`",
        ),
        Key("start", MIRROR_START.takes, "Where a new mirror begins.", default="`earliest`"),
        Key("delivery", COPY_DELIVERY.takes, "A mirror copies by transactions.", default="`exactly-once`"),
    ),
)

SECTIONS: Final = (
    ("The file", FILE),
    ("spark", SPARK),
    ("defaults", DEFAULTS),
    ("restart", RESTART),
    ("breaker", BREAKER),
    ("Pipelines", PIPELINE),
    ("from: topics", FROM_TOPIC),
    ("from: a table", FROM_TABLE),
    ("Formats of values and keys", FORMAT),
    ("expect", EXPECTATION),
    ("to: a table", TO_TABLE),
    ("late", LATE),
    ("schema", SCHEMA),
    ("compact", COMPACT),
    ("to: a topic", TO_TOPIC),
    ("mirror", MIRROR),
)
"""The sections in the order of the reference page, with their headings."""
