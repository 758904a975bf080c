"""The tools of the documents that look at offsets of groups in ZooKeeper, or set them."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kalda import Producer
from kalda.clients.legacy import Consumer
from kalda.testing import KaldaProcess
from tests import forked_commands
from tests.integration.tools.commands import KALDA, Commands
from tests.integration.zookeeper_client import zookeeper_client


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KaldaProcess]:
    with KaldaProcess(tmp_path_factory.mktemp("offsets") / "data") as process:
        with Producer(bootstrap_servers=process.bootstrap) as producer:
            for number in range(10):
                producer.send("t", b"%d" % number)
        yield process


@pytest.fixture
def kalda(process: KaldaProcess) -> Commands:
    return Commands(process.bootstrap)


def consume(process: KaldaProcess, group: str, count: int, storage: str = "zookeeper") -> str:
    """Read messages as a group; return the name of the consumer."""
    connector = Consumer.create(
        {
            "zk.connect": process.zookeeper,
            "groupid": group,
            "autooffset.reset": "smallest",
            "offsets.storage": storage,
            "dual.commit.enabled": False,
        }
    )
    (stream,) = connector.create_message_streams({"t": 1})["t"]
    for _ in range(count):
        next(stream)
    connector.shutdown()
    return connector.consumer_id


@pytest.mark.parametrize("storage", ["zookeeper", "kafka"])
def test_offset_checker_prints_the_lag(kalda: Commands, process: KaldaProcess, storage: str) -> None:
    consume(process, f"lag-{storage}", 4, storage)

    done = kalda(
        "legacy", "ConsumerOffsetChecker", "--zookeeper", process.zookeeper, "--group", f"lag-{storage}",
        "--topic", "t", "--broker-info",
    )  # fmt: skip

    heading, row, title, address = done.stdout.splitlines()
    assert ["Group", "Topic", "Pid", "Offset", "logSize", "Lag", "Owner"] == heading.split()
    assert [f"lag-{storage}", "t", "0", "4", "10", "6", "none"] == row.split()
    assert ("BROKER INFO", f"0 -> {process.bootstrap}") == (title, address)


def test_offset_checker_names_owners_and_says_what_it_does_not_know(
    kalda: Commands, process: KaldaProcess
) -> None:
    connector = Consumer.create({"zk.connect": process.zookeeper, "groupid": "owned"})
    connector.create_message_streams({"t": 1})

    (row,) = kalda(
        "legacy", "ConsumerOffsetChecker", "--zkconnect", process.zookeeper, "--group", "owned"
    ).rows
    connector.shutdown()

    assert ["owned", "t", "0", "unknown", "10", "unknown", f"{connector.consumer_id}-0"] == row


def test_offsets_are_exported_and_imported(kalda: Commands, process: KaldaProcess, tmp_path: Path) -> None:
    consume(process, "exported", 3)
    where = ("--zkconnect", process.zookeeper)
    file = tmp_path / "offsets"

    kalda("legacy", "ExportZkOffsets", *where, "--group", "exported", "--output-file", file)
    assert "/consumers/exported/offsets/t/0:3\n" == file.read_text()
    consume(process, "exported", 5)
    kalda("legacy", "ImportZkOffsets", *where, "--input-file", file)
    kalda("legacy", "ExportZkOffsets", *where, "--output-file", file)

    assert "/consumers/exported/offsets/t/0:3" in file.read_text().splitlines()


@pytest.mark.parametrize(("where", "offset"), [("earliest", 0), ("latest", 10)])
def test_offsets_are_set_to_an_end(
    kalda: Commands, process: KaldaProcess, tmp_path: Path, where: str, offset: int
) -> None:
    properties = tmp_path / "consumer.properties"
    properties.write_text(f"zk.connect={process.zookeeper}\ngroupid=moved-{where}\n")

    done = kalda("legacy", "UpdateOffsetsInZK", where, properties, "t")

    assert (
        f"updating partition 0 with new offset: {offset}\nupdated the offset for 1 partitions\n"
        == done.stdout
    )
    file = tmp_path / "offsets"
    options = ("--zkconnect", process.zookeeper, "--group", f"moved-{where}")
    kalda("legacy", "ExportZkOffsets", *options, "--output-file", file)
    assert f"/consumers/moved-{where}/offsets/t/0:{offset}\n" == file.read_text()


def test_simple_consumer_performance_prints_the_columns(kalda: Commands, process: KaldaProcess) -> None:
    common = (
        "legacy",
        "SimpleConsumerPerformance",
        "--server",
        f"kafka://{process.bootstrap}",
        "--topic",
        "t",
    )

    header, line = kalda(*common, "--messages", 100).stdout.splitlines()

    assert (
        "start.time, end.time, fetch.size, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec"
        == header
    )
    columns = line.split(", ")
    assert ("1048576", "0.0000", "10") == (columns[2], columns[3], columns[5])
    detailed = ("--show-detailed-stats", "--hide-header", "--reporting-interval", 5)
    assert 1 == len(kalda(*common, "--messages", 10, *detailed).stdout.splitlines())


def test_consumer_performance_prints_the_columns(kalda: Commands, process: KaldaProcess) -> None:
    common = (
        "legacy",
        "ConsumerPerformance",
        "--zookeeper",
        process.zookeeper,
        "--topic",
        "t",
        "--threads",
        1,
    )

    header, line = kalda(*common, "--messages", 10).stdout.splitlines()

    assert (
        "start.time, end.time, fetch.size, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec"
        == header
    )
    assert ("1048576", "10") == (line.split(", ")[2], line.split(", ")[5])
    detailed = kalda(
        *common, "--messages", 10, "--show-detailed-stats", "--hide-header", "--reporting-interval", 4
    )
    assert ["4", "8", "10"] == [each.split(", ")[5] for each in detailed.stdout.splitlines()]


def test_consumer_performance_leaves_no_group_behind(kalda: Commands, process: KaldaProcess) -> None:
    common = ("legacy", "ConsumerPerformance", "--zookeeper", process.zookeeper, "--topic", "t")

    kalda(*common, "--messages", 10, "--threads", 1)

    groups = kalda("zk", "ls", "/consumers", "--zookeeper", process.zookeeper).stdout
    assert "perf-consumer" not in groups


def test_consumer_performance_reads_all_again_as_a_group_that_has_offsets(
    kalda: Commands, process: KaldaProcess
) -> None:
    """As Kafka's tool, which deleted the group before each run."""
    consume(process, "measured", 8)
    common = ("legacy", "ConsumerPerformance", "--zookeeper", process.zookeeper, "--topic", "t")

    done = kalda(*common, "--messages", 10, "--threads", 1, "--group", "measured", "--hide-header")

    assert "10" == done.stdout.split(", ")[5]


def test_consumer_shell_prints_messages(kalda: Commands, process: KaldaProcess, tmp_path: Path) -> None:
    properties = tmp_path / "consumer.properties"
    properties.write_text(
        f"zk.connect={process.zookeeper}\ngroupid=shell\nautooffset.reset=smallest\nconsumer.timeout.ms=2000\n"
    )

    done = kalda("legacy", "ConsumerShell", "--props", properties, "--topic", "t")

    assert [
        *(f"consumed: {number}" for number in range(10)),
        "Received 10 messages",
    ] == done.stdout.splitlines()


def test_consumer_shell_ends_quietly_when_nobody_reads(process: KaldaProcess, tmp_path: Path) -> None:
    properties = tmp_path / "consumer.properties"
    properties.write_text(f"zk.connect={process.zookeeper}\ngroupid=pipe\nautooffset.reset=smallest\n")
    command = [*KALDA, "legacy", "ConsumerShell", "--props", str(properties), "--topic", "pipe"]

    with Producer(bootstrap_servers=process.bootstrap) as producer:
        producer.send("pipe", b"0").result(60)
        shell: forked_commands.Popen[bytes] = forked_commands.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        with shell:
            assert shell.stdout is not None
            assert b"consumed: 0\n" == shell.stdout.readline()
            shell.stdout.close()
            while shell.poll() is None:
                producer.send("pipe", b"x").result(60)
            assert shell.stderr is not None
            assert b"" == shell.stderr.read()


def test_topics_that_were_deleted_do_not_hide_the_others(kalda: Commands, process: KaldaProcess) -> None:
    consume(process, "left-over", 2)
    file = process.directory.parent / "left-over"
    file.write_text("/consumers/left-over/offsets/deleted/0:7\n")
    kalda("legacy", "ImportZkOffsets", "--zkconnect", process.zookeeper, "--input-file", file)

    (row,) = kalda(
        "legacy", "ConsumerOffsetChecker", "--zkconnect", process.zookeeper, "--group", "left-over"
    ).rows

    assert ["left-over", "t", "0", "2", "10", "8", "none"] == row


def test_partition_without_a_leader_does_not_hide_the_others(kalda: Commands, process: KaldaProcess) -> None:
    kalda("topics", "create", "led", "--partitions", 2)
    state = "/brokers/topics/led/partitions/1/state"
    with zookeeper_client(process.zookeeper) as client:
        data = json.loads(client.get(state)[0])
        client.set(state, json.dumps({**data, "leader": -1}).encode())

    rows = kalda(
        *("legacy", "ConsumerOffsetChecker", "--zkconnect", process.zookeeper),
        *("--group", "none", "--topic", "led", "--socket.timeout.ms", 1_000),
    ).rows

    assert [["0", "unknown", "0"], ["1", "unknown", "unknown"]] == [row[2:5] for row in rows]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ConsumerOffsetChecker", "--group", "absent"), "group absent has neither owners nor offsets"),
        (("ImportZkOffsets", "--input-file", "RELATIVE"), "line 1 is '/consumers/../offsets/t/0:1'"),
        (("ImportZkOffsets", "--input-file", "DIGITS"), "line 1 is '/consumers/g/offsets/t/0:\u0663'"),
        (("ImportZkOffsets", "--input-file", "HUGE"), "line 1 is '/consumers/g/offsets/t/2147483648:1'"),
        (("ExportZkOffsets", "--group", "none", "--output-file", "x"), "group none has no offsets"),
        (("ImportZkOffsets", "--input-file", "FILE"), "line 2 is 'nonsense'; expected /consumers/GROUP/"),
        (("ImportZkOffsets", "--input-file", "missing"), "--input-file=missing: No such file"),
        (("ConsumerOffsetChecker", "--group", "g", "--topic", "absent"), "topic absent does not exist"),
    ],
)
def test_mistakes_are_one_line(
    kalda: Commands, process: KaldaProcess, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    files = {
        "FILE": "/consumers/g/offsets/t/0:1\nnonsense\n",
        "RELATIVE": "/consumers/../offsets/t/0:1\n",
        "DIGITS": "/consumers/g/offsets/t/0:\u0663\n",
        "HUGE": "/consumers/g/offsets/t/2147483648:1\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    given = [str(tmp_path / each) if each in files else each for each in arguments]

    done = kalda.run("legacy", given[0], "--zkconnect", process.zookeeper, *given[1:])

    assert done.code in (1, 2)
    assert message in done.stderr
    assert 1 == len(done.stderr.splitlines())


def test_servers_that_are_not_there(kalda: Commands) -> None:
    done = kalda.run("legacy", "SimpleConsumerPerformance", "--server", "x", "--topic", "t", "--messages", 1)

    assert (2, True) == (done.code, "--server=x is not kafka://HOST:PORT" in done.stderr)
