"""What Kalda's producer wrote is read by Java's consumer, and the reverse: every codec, transactions
included."""

import pytest

from kalda import Admin, Consumer, NewTopic, Producer, TopicPartition
from kalda.clients.consumer.consumer_config import Isolation
from kalda.clients.producer.producer_config import CompressionType
from kalda.testing import KaldaProcess
from tests.compat.conftest import JavaTool

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
COUNT = 500
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"


@pytest.mark.parametrize("codec", CODECS)
def test_java_reads_what_we_wrote(codec: CompressionType, kalda: KaldaProcess, java_tool: JavaTool) -> None:
    with Producer(bootstrap_servers=kalda.bootstrap, compression_type=codec, linger_ms=20) as producer:
        for number in range(COUNT):
            producer.send(
                "t",
                b"value-%d" % number,
                key=b"key-%d" % number,
                headers=[("number", b"%d" % number)],
                timestamp_ms=1_700_000_000_000 + number,
            )
    printed = java_tool(
        CONSOLE_CONSUMER,
        *("--bootstrap-server", kalda.bootstrap, "--topic", "t", "--from-beginning"),
        *("--max-messages", str(COUNT), "--timeout-ms", "60000"),
        *(
            argument
            for name in ("timestamp", "offset", "headers", "key")
            for argument in ("--property", f"print.{name}=true")
        ),
    )
    expected = [
        f"CreateTime:{1_700_000_000_000 + n}\tOffset:{n}\tnumber:{n}\tkey-{n}\tvalue-{n}"
        for n in range(COUNT)
    ]

    assert expected == printed.splitlines()


@pytest.mark.parametrize("codec", CODECS)
def test_we_read_what_java_wrote(codec: str, kalda: KaldaProcess, java_tool: JavaTool) -> None:
    lines = "".join(f"h:{n}\tkey-{n}:value-{n}\n" for n in range(COUNT))
    java_tool(
        CONSOLE_PRODUCER,
        *("--bootstrap-server", kalda.bootstrap, "--topic", "t", "--compression-codec", codec),
        *(
            argument
            for setting in ("parse.key=true", "key.separator=:", "parse.headers=true")
            for argument in ("--property", setting)
        ),
        *("--property", "headers.key.separator=:", "--property", "headers.delimiter=\t"),
        text=lines,
    )
    found = _records(kalda.bootstrap, "t", COUNT)

    assert [(b"key-%d" % n, b"value-%d" % n, [("h", b"%d" % n)]) for n in range(COUNT)] == found


def test_java_reads_our_committed_transactions_only(kalda: KaldaProcess, java_tool: JavaTool) -> None:
    with Producer(bootstrap_servers=kalda.bootstrap, transactional_id="ours") as producer:
        producer.init_transactions()
        for number in range(10):
            producer.begin_transaction()
            producer.send("t", b"%d" % number)
            producer.flush(timeout_s=30)
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    printed = java_tool(
        CONSOLE_CONSUMER,
        *("--bootstrap-server", kalda.bootstrap, "--topic", "t", "--from-beginning"),
        *("--isolation-level", "read_committed", "--max-messages", "5", "--timeout-ms", "60000"),
    )

    assert ["0", "2", "4", "6", "8"] == printed.splitlines()


def test_we_read_javas_committed_transactions(kalda: KaldaProcess, java_tool: JavaTool) -> None:
    with Admin(bootstrap_servers=kalda.bootstrap) as admin:
        admin.create_topics([NewTopic("t", partitions=1, replication_factor=1)])
    java_tool(
        PERFORMANCE,
        *("--topic", "t", "--num-records", "2000", "--record-size", "100", "--throughput", "-1"),
        *("--transactional-id", "java", "--transaction-duration-ms", "20"),
        *("--producer-props", f"bootstrap.servers={kalda.bootstrap}"),
    )

    assert 2000 == len(_records(kalda.bootstrap, "t", 2000, isolation_level="read_committed"))


def _records(
    bootstrap: str, topic: str, count: int, *, isolation_level: Isolation = "read_uncommitted"
) -> list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]]:
    found: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = []
    with Consumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level=isolation_level
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        for record in consumer:
            found.append((record.key, record.value, list(record.headers)))
            if len(found) == count:
                break
    return found
