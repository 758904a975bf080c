"""Apache Kafka's own tools and Java clients against a Kalda broker and its files."""

import json
import random
import re
import time
from pathlib import Path

import pytest

from kalda.testing import KaldaProcess
from tests.compat.conftest import JavaTool
from tests.integration.clients.clients import ConfluentClient, Message

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def dump(java_tool: JavaTool, files: list[Path]) -> str:
    names = ",".join(str(path) for path in files)
    return java_tool("kafka.tools.DumpLogSegments", "--deep-iteration", "--files", names)


@pytest.mark.parametrize("stop", ["clean", "kill"])
def test_dump_log_segments_reads_our_files(
    stop: str, kalda: KaldaProcess, java_tool: JavaTool, tmp_path: Path
) -> None:
    """Logs, both indexes and producer snapshots are Kafka's own format, so that its tools read them."""
    messages = [Message(b"k%d" % n, b"v" * 200, (("h", b"1"),), 1_700_000_000_000 + n) for n in range(30_000)]
    client = ConfluentClient(kalda.bootstrap)
    for codec in CODECS:
        client.produce("dumped", messages, codec=codec)
    if stop == "clean":
        kalda.stop()
    else:
        kalda.kill()
        kalda.start()
        kalda.stop()
    [directory] = (tmp_path / "data").rglob("dumped-0")
    logs = sorted(directory.glob("*.log"))
    assert len(logs) > 3

    text = dump(java_tool, logs)
    assert "isvalid: false" not in text
    assert 30_000 * len(CODECS) == text.count("| offset: ")
    for suffix in ("*.index", "*.timeindex", "*.snapshot"):
        files = sorted(directory.glob(suffix))
        assert files, suffix
        text = dump(java_tool, files)
        for complaint in (
            "Mismatches",
            "Indexed offset",
            "sanity",
            "Found timestamp mismatch",
            "out of order",
        ):
            assert complaint not in text, text


def test_java_admin_tools(kalda: KaldaProcess, java_tool: JavaTool) -> None:
    """kafka-topics, kafka-configs and kafka-get-offsets of today's release."""
    server = ("--bootstrap-server", kalda.bootstrap)
    topics = "org.apache.kafka.tools.TopicCommand"
    java_tool(
        topics, *server, "--create", "--topic", "t", "--partitions", "3", "--config", "retention.ms=5000"
    )
    described = java_tool(topics, *server, "--describe", "--topic", "t")
    assert "PartitionCount: 3" in described
    assert "retention.ms=5000" in described
    java_tool(topics, *server, "--alter", "--topic", "t", "--partitions", "5")
    assert "PartitionCount: 5" in java_tool(topics, *server, "--describe", "--topic", "t")
    configs = ("kafka.admin.ConfigCommand", *server, "--entity-type", "topics", "--entity-name", "t")
    java_tool(*configs, "--alter", "--add-config", "retention.ms=7000")
    assert "retention.ms=7000" in java_tool(*configs, "--describe")
    offsets = java_tool("org.apache.kafka.tools.GetOffsetShell", *server, "--topic", "t")
    assert "t:0:0" in offsets
    java_tool(topics, *server, "--delete", "--topic", "t")
    assert "t" not in java_tool(topics, *server, "--list").split()


@pytest.mark.parametrize("codec", CODECS)
def test_java_producer_and_consumer(codec: str, kalda: KaldaProcess, java_tool: JavaTool) -> None:
    """The Java producer is idempotent by default; the consumer reads by assignment."""
    lines = [f"line {number}" for number in range(1000)]
    java_tool(
        "org.apache.kafka.tools.ConsoleProducer",
        *("--bootstrap-server", kalda.bootstrap, "--topic", "lines", "--compression-codec", codec),
        text="\n".join(lines) + "\n",
    )
    read = java_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", kalda.bootstrap, "--topic", "lines", "--partition", "0"),
        *("--offset", "earliest", "--max-messages", "1000", "--timeout-ms", "20000"),
    )
    assert lines == read.splitlines()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_java_group_tool(protocol: str, kalda: KaldaProcess, java_tool: JavaTool, tmp_path: Path) -> None:
    """Read, describe, reset, delete offsets, delete. What is stored is what Java's decoder knows."""
    server = ("--bootstrap-server", kalda.bootstrap)
    ConfluentClient(kalda.bootstrap).produce(
        "t", [Message(None, b"%d" % n, (), 1_000 + n) for n in range(30)]
    )
    read = java_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *(*server, "--topic", "t", "--group", "g", "--from-beginning"),
        *(
            "--consumer-property",
            f"group.protocol={protocol}",
            "--max-messages",
            "30",
            "--timeout-ms",
            "60000",
        ),
    )
    # Kafka 4.2 and later print what replaces an option first.
    assert [str(n) for n in range(30)] == [line for line in read.splitlines() if line.isdecimal()]

    def group(*arguments: str) -> str:
        return java_tool("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *server, *arguments)

    def offset_and_lag() -> list[str]:
        [line] = [each.split() for each in group("--describe", "--group", "g").splitlines() if " t " in each]
        return [line[3], line[5]]

    assert ["30", "0"] == offset_and_lag()
    group("--reset-offsets", "--group", "g", "--topic", "t", "--to-offset", "10", "--execute")
    assert ["10", "20"] == offset_and_lag()
    group("--reset-offsets", "--group", "g", "--all-topics", "--shift-by", "5", "--execute")
    assert ["15", "15"] == offset_and_lag()
    assert "Successful" in group("--delete-offsets", "--group", "g", "--topic", "t")
    assert "g" in group("--list").split()
    assert "successful" in group("--delete", "--group", "g")
    assert "g" not in group("--list").split()

    kalda.stop()
    logs = [path for path in (tmp_path / "data").rglob("__consumer_offsets-*/*.log") if path.stat().st_size]
    names = ",".join(str(path) for path in logs)
    text = java_tool("kafka.tools.DumpLogSegments", "--deep-iteration", "--offsets-decoder", "--files", names)
    kinds = set(re.findall(r'key: {"type":"(\d+)"', text))
    assert {"classic": {"1", "2"}, "consumer": {"1", "3", "4", "5", "6", "7", "8"}}[protocol] <= kinds
    if protocol == "consumer":
        # Without it Java takes the member for one of the classic protocol.
        assert '"classicMemberMetadata":null' in text


def test_dump_log_segments_reads_a_cleaned_log(java_tool: JavaTool, tmp_path: Path) -> None:
    """Merged segments, batches with gaps, empty batches, delete horizons: all as Kafka has it."""
    settings = {
        "log.segment.bytes": "1048576",
        "log.cleanup.policy": "compact",
        "log.cleaner.backoff.ms": "50",
        "log.cleaner.min.cleanable.ratio": "0.01",
    }
    with KaldaProcess(tmp_path / "data", settings=settings) as process:
        client = ConfluentClient(process.bootstrap)
        for part, codec in enumerate(CODECS):
            messages = [
                Message(
                    b"k%d" % (number % (700 + part)),
                    random.Random(number).randbytes(100).hex().encode() if number % 50 else None,
                    (("h", b"1"),),
                    1_700_000_000_000 + number,
                )
                for number in range(20_000)
            ]
            client.produce("cleaned", messages, codec=codec)
        [directory] = (tmp_path / "data").rglob("cleaned-0")
        wait_cleaned(directory)

    text = dump(java_tool, sorted(directory.glob("*.log")))
    assert "isvalid: false" not in text
    assert 700 < text.count("| offset: ") < 50_000
    assert "deleteHorizonMs: OptionalLong[" in text
    for suffix in ("*.index", "*.timeindex"):
        text = dump(java_tool, sorted(directory.glob(suffix)))
        for complaint in ("Mismatches", "Indexed offset", "sanity", "timestamp mismatch", "out of order"):
            assert complaint not in text, text


def wait_cleaned(directory: Path) -> None:
    """Wait until the cleaner has nothing left to do in a partition: all but the active segment is clean.

    Earlier, a stop can fall between the replacement of two groups of segments. The tombstones of the first
    are then gone for newer ones in the second, which has no delete horizon yet.
    """
    active = max(int(log.stem) for log in directory.glob("*.log"))
    assert active > 80_000, sorted(directory.iterdir())
    checkpoint = directory.parent / "cleaner-offset-checkpoint"
    deadline = time.monotonic() + 60
    while not checkpoint.exists() or int(checkpoint.read_text().split()[-1]) < active:
        assert time.monotonic() < deadline, sorted(directory.iterdir())
        time.sleep(0.1)


def test_java_moves_replicas_between_log_directories(java_tool: JavaTool, tmp_path: Path) -> None:
    """kafka-reassign-partitions with log_dirs, and kafka-log-dirs."""
    first, second = (str(tmp_path / "data" / name) for name in ("a", "b"))
    kalda = KaldaProcess(tmp_path / "data", settings={"log.dirs": f"{first},{second}"})
    kalda.start()
    try:
        messages = [Message(b"k", b"v" * 1000, (), 1_700_000_000_000)] * 5000
        ConfluentClient(kalda.bootstrap).produce("moved", messages)
        server = ("--bootstrap-server", kalda.bootstrap)
        reassign = ("org.apache.kafka.tools.reassign.ReassignPartitionsCommand", *server)
        describe = ("org.apache.kafka.tools.LogDirsCommand", *server, "--describe", "--topic-list", "moved")
        for directory in (second, first):
            file = tmp_path / "plan.json"
            entry = {"topic": "moved", "partition": 0, "replicas": [0], "log_dirs": [directory]}
            file.write_text(json.dumps({"version": 1, "partitions": [entry]}))
            plan = ("--reassignment-json-file", str(file))
            done = java_tool(*reassign, *plan, "--execute", "--replica-alter-log-dirs-throttle", "100000000")
            assert "Successfully started" in done, done
            deadline = time.monotonic() + 60
            while "moved-0-0 completed" not in (done := java_tool(*reassign, *plan, "--verify")):
                assert time.monotonic() < deadline, done
            found = json.loads(java_tool(*describe).splitlines()[-1])
            [broker] = found["brokers"]
            places = {each["logDir"]: each["partitions"] for each in broker["logDirs"]}
            [replica] = places.pop(directory)
            assert ("moved-0", 0, False) == (replica["partition"], replica["offsetLag"], replica["isFuture"])
            assert [[]] == list(places.values())
    finally:
        kalda.stop()
