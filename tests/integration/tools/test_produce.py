"""`kalda produce`: what lines become, read back by another client."""

import json
import uuid
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest

from tests.integration.tools.commands import Commands

Record = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


@pytest.fixture
def topic(kalda: Commands, request: pytest.FixtureRequest) -> str:
    name = f"{request.node.name.removeprefix('test_')[:100]}-{uuid.uuid4().hex[:6]}"
    kalda("topics", "create", name, "--partitions", 2, "--replication-factor", 1)
    return name


@pytest.fixture
def consumed(kalda: Commands, topic: str) -> Callable[[int], list[Record]]:
    """Reads records as partition, key, value, headers."""

    def consume(count: int) -> list[Record]:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": kalda.bootstrap, "group.id": "check"})
        try:
            consumer.assign(
                [
                    confluent_kafka.TopicPartition(topic, partition, confluent_kafka.OFFSET_BEGINNING)
                    for partition in (0, 1)
                ]
            )
            found = consumer.consume(count, 20)
        finally:
            consumer.close()
        return sorted(
            ((each.partition(), each.key(), each.value(), each.headers() or []) for each in found),
            key=lambda record: (record[2] or b"", record[0]),
        )

    return consume


def test_lines_with_keys(kalda: Commands, topic: str, consumed: Callable[[int], list[Record]]) -> None:
    """Equal keys go to the partition that a Java producer chooses for them."""
    done = kalda("produce", topic, "--parse-key", "--key-separator", ":", stdin="a:1\nb:2\na:3\nä:4:5\n")

    assert ("", "4 records acknowledged\n") == (done.stdout, done.stderr)
    records = consumed(4)
    assert [(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), ("ä".encode(), b"4:5")] == [
        record[1:3] for record in records
    ]
    assert records[0][0] == records[2][0]


def test_properties_of_kafkas_reader(
    kalda: Commands, topic: str, consumed: Callable[[int], list[Record]], tmp_path: Path
) -> None:
    file = tmp_path / "reader.properties"
    file.write_text("headers.separator=;\nnull.marker=nothing\n")
    options: list[str | Path] = [
        *("--reader-config", file, "--property", "parse.key=true"),
        *("--reader-property", "parse.headers=true", "--reader-property", "null.marker=NULL"),
    ]
    kalda("produce", "--topic", topic, *options, stdin="h:1;g:NULL\tk\tv\nNULL\tNULL\tw\n")

    assert [(b"k", b"v", [("h", b"1"), ("g", None)]), (None, b"w", [])] == [
        record[1:] for record in consumed(2)
    ]


def test_json_lines_print_where_each_record_is(
    kalda: Commands, topic: str, consumed: Callable[[int], list[Record]]
) -> None:
    lines = (
        '{"value": {"a": 1}, "partition": 1, "headers": {"h": "1"}}\n{"keyBase64": "/w==", "value": "{b}"}\n'
    )
    done = kalda("produce", topic, "--json-lines", "--json", "--sync", stdin=lines)

    first, second = map(json.loads, done.stdout.splitlines())
    assert (topic, 1, 0) == (first["topic"], first["partition"], first["offset"])
    assert {"topic", "partition", "offset", "timestamp"} == set(second)
    assert [(1, None, b'{"a":1}', [("h", b"1")]), (second["partition"], b"\xff", b"{b}", [])] == consumed(2)


def test_files_formats_and_fixed_parts(
    kalda: Commands, topic: str, consumed: Callable[[int], list[Record]], tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("00ff\n")
    second.write_text("01\n")
    options = ("--format", "hex", "--key", "7", "--key-format", "short", "--header", "h=1", "--partition", 1)
    settings = (
        "--acks",
        "1",
        "--compression-codec",
        "zstd",
        "--command-property",
        "enable.idempotence=false",
    )
    kalda("produce", topic, "--file", first, "--file", second, *options, *settings)

    assert [(1, b"\0\7", b"\0\xff", [("h", b"1")]), (1, b"\0\7", b"\1", [("h", b"1")])] == consumed(2)


def test_a_line_that_is_no_record_ends_the_command(
    kalda: Commands, topic: str, consumed: Callable[[int], list[Record]]
) -> None:
    done = kalda.run("produce", topic, "--parse-key", stdin="k\tv\nno key\nk\tw\n")

    assert (
        1,
        r"kalda: line 2 has no key separator '\t': 'no key'; the lines before it were sent" + "\n",
    ) == (
        done.code,
        done.stderr,
    )
    assert [b"v"] == [record[2] for record in consumed(1)]


def test_records_that_brokers_refuse_are_named(kalda: Commands, topic: str) -> None:
    kalda("configs", "alter", "--topic", topic, "--add-config", "max.message.bytes=200")
    done = kalda.run("produce", topic, "--sync", stdin=f"ok\n{'x' * 500}\n")

    refused, last = done.stderr.splitlines()
    assert refused.startswith("kalda: line 2: ")
    assert (1, "kalda: 1 of 2 records were not acknowledged") == (done.code, last)


def test_wrong_arguments(kalda: Commands, topic: str) -> None:
    done = kalda.refused("produce")
    assert (2, "kalda: name one topic: kalda produce TOPIC, or --topic TOPIC\n") == (done.code, done.stderr)
    done = kalda.refused("produce", topic, "--property", "parse.kye=true")
    assert "--reader-property parse.kye is unknown; known are parse.key, key.separator, " in done.stderr
    done = kalda.refused("produce", topic, "--partition", 2)
    assert f"--partition: topic {topic} has no partition 2; it has 2" in done.stderr
    done = kalda.refused("produce", topic, "--command-property", "lingerms=5")
    assert (2, True) == (done.code, "linger.ms" in done.stderr)


def test_kafkas_options_for_single_settings(kalda: Commands, topic: str, tmp_path: Path) -> None:
    """Each stands for a setting, and wins over the file."""
    file = tmp_path / "producer.properties"
    file.write_text("acks=7\nbatch.size=1000\n")
    arguments = ("produce", topic, "--producer.config", file, "--request-required-acks", "all")

    kalda(*arguments, "--timeout", 5, "--producer-property", "retries=3", "--max-memory-bytes", 100_000)
    refused = kalda.refused(*arguments, "--batch-size", 5_000_000_000)
    assert "`batch.size`=5000000000 is not allowed" in refused.stderr
    assert "--timeout=-1 is not allowed" in kalda.refused("produce", topic, "--timeout", "-1").stderr
