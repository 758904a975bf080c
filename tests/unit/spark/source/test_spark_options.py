import re
from pathlib import Path

import pytest

from kalda.clients.admin.admin_config import AdminConfig
from kalda.clients.config.isolation_level import IsolationLevel
from kalda.common.types import TopicPartition
from kalda.spark.source.option_names import SINK_OPTIONS, SOURCE_OPTIONS
from kalda.spark.source.option_values import OptionError
from kalda.spark.source.options import (
    Assign,
    Subscribe,
    SubscribePattern,
    parse_batch_options,
    parse_common_options,
    parse_stream_options,
)
from kalda.spark.source.positions import Ago, AtCommitted, AtOffsets, AtTimestamp, AtTimestamps, Edge, NoMatch
from kalda.spark.source.schema import source_schema

BASE = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "orders"}
T0 = TopicPartition("t", 0)


def test_defaults_are_those_of_sparks_own_connector() -> None:
    batch = parse_batch_options(BASE)
    stream = parse_stream_options(BASE)

    assert (Edge.EARLIEST, Edge.LATEST) == (batch.starting, batch.ending)
    assert Edge.LATEST is stream.starting
    assert batch.fail_on_data_loss
    assert not batch.include_headers
    assert (None, None, None) == (
        batch.partitions_min,
        batch.records_per_partition_max,
        stream.trigger.offsets_max,
    )
    assert NoMatch.ERROR is batch.no_match
    assert (("broker", 9092),) == batch.client.bootstrap_addresses


def test_option_names_do_not_depend_on_case() -> None:
    options = {"KAFKA.Bootstrap.Servers": "broker:9092", "SubScribe": "orders", "STARTINGOFFSETS": "Earliest"}

    assert Edge.EARLIEST is parse_stream_options(options).starting


@pytest.mark.parametrize(
    ("given", "selection"),
    [
        ({"subscribe": " a, b ,,a"}, Subscribe(("a", "b"))),
        (
            {"assign": '{"b":[1],"a":[2,0,2]}'},
            Assign((TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1))),
        ),
        ({"subscribePattern": " orders.* "}, SubscribePattern(re.compile("orders.*", re.ASCII))),
    ],
)
def test_each_way_to_select(given: dict[str, str], selection: object) -> None:
    assert selection == parse_batch_options({"kafka.bootstrap.servers": "b:1", **given}).selection


def test_one_timestamp_beats_timestamps_beats_offsets() -> None:
    offsets = {"startingOffsets": '{"t":{"0":5}}'}
    timestamps = {"startingOffsetsByTimestamp": '{"t":{"0":1000}}'}

    assert AtOffsets({T0: 5}) == parse_batch_options({**BASE, **offsets}).starting
    assert AtTimestamps({T0: 1000}) == parse_batch_options({**BASE, **offsets, **timestamps}).starting
    everything = {**BASE, **offsets, **timestamps, "startingTimestamp": " 77 "}
    assert AtTimestamp(77) == parse_batch_options(everything).starting


def test_kafka_settings_reach_the_client() -> None:
    parsed = parse_batch_options(
        {**BASE, "kafka.isolation.level": "read_committed", "kafka.fetch.max.wait.ms": "7"}
    )

    assert IsolationLevel.READ_COMMITTED is parsed.client.isolation
    assert 7 == parsed.client.fetch_max_wait_ms


def test_settings_of_a_java_consumer_are_ignored_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Spark's guide tells people to set some; they mean nothing here and must not break a query."""
    parsed = parse_batch_options(
        {**BASE, "kafka.group.id": "of-this-test", "kafka.max.poll.records": "10", "kafka.x": "1"}
    )

    assert "of-this-test" == parsed.group_id
    assert "no other query and no consumer may use this group" in caplog.text
    assert "kafka.x has no effect" in caplog.text
    assert "max.poll.records" not in caplog.text


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscribe": " , "}, "`subscribe`.*names no topic"),
        ({"subscribePattern": "x"}, "exactly one of.*found subscribe and subscribePattern"),
        ({"startingOffsets": "soon"}, "`startingOffsets`: expected earliest"),
        ({"endingOffsets": "soon"}, "`endingOffsets`: expected latest or JSON such as.*'soon'"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "JSON such as"),
        ({"startingTimestamp": "yesterday"}, "`startingTimestamp`='yesterday' is not a number"),
        ({"startingOffsetsByTimestamp": '{"t":{"0":-1}}'}, "`startingOffsetsByTimestamp`: expected JSON"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "neither error nor latest"),
        ({"failOnDataLoss": "maybe"}, "`failOnDataLoss`='maybe' is neither true nor false"),
        ({"includeHeaders": "1"}, "`includeHeaders`='1' is neither true nor false"),
        ({"minPartitions": "0"}, "`minPartitions`='0' is not a positive whole number"),
        ({"maxRecordsPerPartition": "-5"}, "not a positive whole number"),
        ({"maxBytesPerPartition": "1MB"}, "`maxBytesPerPartition`='1MB' is not a positive whole number"),
        ({"kafka.bootstrap.servers": "broker"}, "'broker', which is not host:port"),
        ({"startingOffsets": "earlist"}, "latest, group, a time before now such as -10m, or JSON.*'earlist'"),
        ({"failOnDataLos": "false"}, "`failondatalos` is not an option; did you mean `failOnDataLoss`"),
        ({"kafka.isolation_level": "x"}, "did you mean `kafka.isolation.level`"),
        ({"isolation.level": "read_committed"}, "did you mean `kafka.isolation.level`"),
        ({"delivry": "exactly-once"}, "did you mean `delivery`"),
        ({"option.subscribe": "orders"}, "topics cannot be tables.*use CREATE TEMPORARY VIEW"),
        ({"kafka.auto.offset.reset": "latest"}, "reset` is not supported: set `startingOffsets`"),
        ({"kafka.key.deserializer": "x"}, "keys are always binary"),
        ({"kafka.value.deserializer": "x"}, "values are always binary"),
        ({"kafka.enable.auto.commit": "true"}, "checkpoint"),
        ({"kafka.interceptor.classes": "x"}, "interceptors"),
        (
            {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"},
            "PLAIN needs `sasl.jaas.config`",
        ),
        ({"kafka.ssl.provider": "x"}, "`ssl.provider`=x needs settings of the Java"),
        ({"kafka.fetch.max.wait.ms": "soon"}, "`fetch.max.wait.ms`=soon is not allowed: it takes an int"),
    ],
)
def test_refusals_name_the_option(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_common_options({**BASE, **given})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingOffsets": "latest"}, "`startingOffsets` of a batch query cannot be latest"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "`startingOffsets` of a batch query cannot be latest"),
        ({"endingOffsets": "earliest"}, "`endingOffsets` of a batch query cannot be earliest"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "`endingOffsets` of a batch query cannot be earliest"),
        (
            {"startingOffsets": '{"t":{"0":1}}', "endingOffsets": '{"t":{"1":1}}'},
            "must name the same partitions; not so: t-0, t-1",
        ),
        (
            {"startingOffsets": '{"t":{"0":9}}', "endingOffsets": '{"t":{"0":8}}'},
            "`startingOffsets` of t-0 is 9, above `endingOffsets`, 8",
        ),
    ],
)
def test_a_batch_query_must_have_something_to_read(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_batch_options({**BASE, **given})


def test_latest_is_an_end_above_every_start() -> None:
    parsed = parse_batch_options(
        {**BASE, "startingOffsets": '{"t":{"0":9}}', "endingOffsets": '{"t":{"0":-1}}'}
    )

    assert AtOffsets({T0: -1}) == parsed.ending


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("endingOffsets", "not valid in a streaming query"),
        ("endingOffsetsByTimestamp", "not valid in a streaming query"),
        ("endingTimestamp", "not valid in a streaming query"),
        ("maxBytesPerPartition", "not valid in a streaming query: .* use `maxRecordsPerPartition`"),
    ],
)
def test_what_a_stream_refuses(name: str, message: str) -> None:
    with pytest.raises(OptionError, match=f"`{name}` is {message}"):
        parse_stream_options({**BASE, name: "1"})


def test_missing_servers_and_selection_are_told_apart() -> None:
    with pytest.raises(OptionError, match="must be set to host:port"):
        parse_common_options({"subscribe": "t"})
    with pytest.raises(OptionError, match=r"exactly one of subscribe, .* found none"):
        parse_common_options({"kafka.bootstrap.servers": "b:1"})


def test_limits_of_a_trigger() -> None:
    limits = parse_stream_options(
        {**BASE, "minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "10", "maxTriggerDelay": "90s"}
    ).trigger

    assert (10, 10, 90_000, None) == (
        limits.offsets_min,
        limits.offsets_max,
        limits.delay_ms_max,
        limits.bytes_max,
    )
    assert 900_000 == parse_stream_options(BASE).trigger.delay_ms_max


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"minOffsetsPerTrigger": "11", "maxOffsetsPerTrigger": "10"}, "`minOffsetsPerTrigger`=11 is above"),
        ({"maxTriggerDelay": "15 minutes"}, "`maxTriggerDelay`='15 minutes' is not a time such as 15m"),
        ({"maxTriggerDelay": "1w"}, "is not a time"),
        ({"startingOffsets": "-10"}, "`startingOffsets`='-10' is not a time before now such as -10m"),
        ({"startingOffsets": "-10 parsecs"}, "is not a time before now"),
        ({"startingOffsets": "-P1M"}, "is not a time before now"),
        ({"fetchOffset.numRetries": "0"}, "`fetchOffset.numRetries`='0' is not a positive"),
        ({"kafka.max.poll.records": "many"}, "max.poll.records"),
        ({"kafka.group.id": " "}, "`kafka.group.id` is empty"),
        ({"columns": " , "}, "`columns`=' , ' names no column"),
        ({"pushdown": "perframe"}, "`pushdown`='perframe' is neither false nor per-frame"),
        (
            {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "/none"},
            "`ssl.truststore.location`",
        ),
        ({"kafka.sasl.login.class": "X"}, "sasl.login.class"),
    ],
)
def test_refused_values_of_further_options(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message) as refused:
        parse_stream_options({**BASE, **given})
    assert 1 == len(str(refused.value).splitlines())


@pytest.mark.parametrize(
    ("text", "span_ms"),
    [
        ("-10m", 600_000),
        ("-1h 30m", 5_400_000),
        ("-10 minutes", 600_000),
        ("-2 Days", 172_800_000),
        ("-PT10M", 600_000),
        ("-P1DT1S", 86_401_000),
        ("-500ms", 500),
    ],
)
def test_relative_starts(text: str, span_ms: int) -> None:
    assert Ago(span_ms) == parse_stream_options({**BASE, "startingOffsets": text}).starting
    assert Ago(span_ms) == parse_batch_options({**BASE, "startingOffsets": text}).starting


def test_columns_do_not_depend_on_case() -> None:
    """Neither do Spark's own names of columns, unless `spark.sql.caseSensitive` is set."""
    asked = parse_batch_options({**BASE, "columns": "VALUE, timestamptype, value"}).columns

    assert ["value", "timestampType"] == source_schema(include_headers=False, columns=asked).names
    with pytest.raises(OptionError, match="`columns` names Valu; the columns are key, value, "):
        source_schema(include_headers=False, columns=["Valu"])


def test_pushdown_is_for_frames_that_are_read_with_one_filter() -> None:
    """Spark 4.3 reads a frame again with the filter of an earlier read, and a source cannot see it."""
    assert parse_batch_options({**BASE, "pushdown": " Per-Frame "}).push_down
    assert not parse_batch_options({**BASE, "pushdown": "False"}).push_down
    assert not parse_batch_options(BASE).push_down

    with pytest.raises(OptionError, match="`pushdown`=true is not supported: ") as refused:
        parse_common_options({**BASE, "pushdown": "TRUE"})

    assert 1 == len(str(refused.value).splitlines())
    for alternative in ("`pushdown`=per-frame", "`startingTimestamp`", "`endingTimestamp`", "`assign`"):
        assert alternative in str(refused.value)


def test_start_at_the_group() -> None:
    assert AtCommitted() == parse_stream_options({**BASE, "startingOffsets": "GROUP"}).starting
    with pytest.raises(OptionError, match="expected latest or JSON"):
        parse_batch_options({**BASE, "endingOffsets": "group"})


def test_the_group_of_a_query_is_stable_over_restarts() -> None:
    """Limits and the start may change between two runs; the selection and the prefix are the query."""
    first = parse_stream_options({**BASE, "startingOffsets": "earliest"}).group_id

    assert (
        first
        == parse_stream_options({**BASE, "startingOffsets": "group", "maxOffsetsPerTrigger": "5"}).group_id
    )
    assert first.startswith("spark-kafka-source-")
    assert first != parse_stream_options({**BASE, "subscribe": "other"}).group_id
    assert (
        "mine-" + first.rsplit("-", 1)[1] == parse_stream_options({**BASE, "groupIdPrefix": "mine"}).group_id
    )


def test_an_admin_client_takes_the_connection_settings() -> None:
    """The commits use a client of another kind, which refuses the settings of fetches."""
    parsed = parse_stream_options(
        {**BASE, "kafka.request.timeout.ms": "5000", "kafka.fetch.min.bytes": "7", "kafka.group.id": "g"}
    )

    assert {
        "client.id": "kalda-spark",
        "bootstrap.servers": BASE["kafka.bootstrap.servers"],
        "request.timeout.ms": "5000",
    } == parsed.connection
    AdminConfig.from_properties(parsed.connection)


def test_names_of_others_are_no_mistake() -> None:
    """Applications share options between source and sink, and Spark passes on what it does not know."""
    of_others = {
        "topic": "t",
        "delivery": "exactly-once",
        "kafka.linger.ms": "5",
        "path": "p",
        "mergeSchema": "x",
    }

    assert Subscribe(("orders",)) == parse_batch_options({**BASE, **of_others}).selection


def test_every_documented_option_is_known() -> None:
    """An option that is read and not in the list would be refused as a misspelling of another."""
    page = Path("docs/how-to/spark.md").read_text()
    documented = {
        name
        for row in re.findall(r"^\| (`[^|]*) \|", page, re.MULTILINE)
        for name in re.findall(r"`([A-Za-z.]+)`", row)
        if not name.startswith(("kafka.", "value.", "spark."))
    }

    missing = {*SOURCE_OPTIONS, *SINK_OPTIONS} - documented
    columns = {"value", "key", "partition", "headers", "timestamp"}
    assert (set(), {"checkpointLocation"}) == (
        documented - {*SOURCE_OPTIONS, *SINK_OPTIONS, *columns},
        missing,
    )


def test_a_message_is_one_line() -> None:
    with pytest.raises(OptionError) as refused:
        parse_batch_options({**BASE, "startingOffsets": '{\n "t": 5\n}', "endingOffsets": "latest"})

    assert 1 == len(str(refused.value).splitlines())
    assert "one two" == str(OptionError("one\n  two"))
