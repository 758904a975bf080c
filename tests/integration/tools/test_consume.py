"""`kalda consume`: which records it prints, in which form, and when it ends."""

import json
import os
import pty
import signal
import subprocess
import time
import uuid
from collections.abc import Callable
from functools import partial

import pytest

from kalda import Producer, TopicPartition
from kalda.clients.admin.admin import Admin
from tests import forked_commands
from tests.integration.tools.commands import KALDA, Commands

START_MS = 1_700_000_000_000


@pytest.fixture
def topic(kalda: Commands, request: pytest.FixtureRequest) -> str:
    name = f"{request.node.name.removeprefix('test_')[:100]}-{uuid.uuid4().hex[:6]}"
    kalda("topics", "create", name, "--partitions", 2, "--replication-factor", 1)
    return name


@pytest.fixture
def fill(kalda: Commands, topic: str) -> Callable[[int], None]:
    """Writes records 0, 1, ... alternately to both partitions, a second apart."""

    def write(count: int) -> None:
        with Producer(bootstrap_servers=kalda.bootstrap) as producer:
            for number in range(count):
                producer.send(
                    topic,
                    b"value %d" % number,
                    b"key %d" % number,
                    [("h", b"%d" % number)],
                    number % 2,
                    START_MS + 1000 * number,
                )
            producer.flush(30)

    return write


def lines(kalda: Commands, *arguments: str | int) -> list[str]:
    return sorted(kalda("consume", *arguments).stdout.splitlines())


def test_it_prints_from_the_beginning_to_the_end(
    kalda: Commands, topic: str, fill: Callable[[int], None]
) -> None:
    fill(10)
    done = kalda("consume", topic)

    assert [f"value {number}" for number in range(10)] == sorted(done.stdout.splitlines())
    assert "10 records consumed\n" == done.stderr
    assert [] == lines(kalda, topic, "--offset", "latest")


def test_json_lines_can_be_produced_again(kalda: Commands, topic: str, fill: Callable[[int], None]) -> None:
    fill(3)
    done = kalda("consume", topic, "--json")

    records = sorted((json.loads(line) for line in done.stdout.splitlines()), key=lambda each: each["value"])
    assert {
        "topic": topic,
        "partition": 1,
        "offset": 0,
        "timestamp": START_MS + 1000,
        "timestampType": "CreateTime",
        "leaderEpoch": 0,
        "key": "key 1",
        "value": "value 1",
        "headers": [{"key": "h", "value": "1"}],
    } == records[1]
    kalda("topics", "create", f"{topic}-copy", "--partitions", 2, "--replication-factor", 1)
    kalda("produce", f"{topic}-copy", "--json-lines", stdin=done.stdout)
    copied = kalda("consume", f"{topic}-copy", "--json").stdout.replace(f"{topic}-copy", topic)
    assert sorted(done.stdout.splitlines()) == sorted(copied.splitlines())


def test_the_parts_of_a_line(kalda: Commands, topic: str, fill: Callable[[int], None]) -> None:
    fill(1)
    printed = [f"--print-{part}" for part in ("key", "offset", "partition", "timestamp", "headers", "epoch")]

    assert [f"CreateTime:{START_MS}|Partition:0|Offset:0|Epoch:0|h:0|key 0|value 0"] == (
        lines(kalda, topic, *printed, "--key-separator", "|")
    )
    properties = ("print.key=true", "print.value=false", "key.deserializer=StringDeserializer")
    for name in ("--property", "--formatter-property"):
        options = [word for each in properties for word in (name, each)]
        assert ["key 0"] == lines(kalda, topic, *options)
    assert [b"value 0".hex()] == lines(kalda, topic, "--format", "hex")


def test_offsets_times_and_limits(kalda: Commands, topic: str, fill: Callable[[int], None]) -> None:
    fill(10)

    assert ["value 6", "value 8"] == lines(kalda, topic, "--partition", 0, "--offset", 3)
    assert ["value 8", "value 9"] == lines(kalda, topic, "--offset", "-1")
    assert ["value 7", "value 8", "value 9"] == lines(kalda, topic, "--from-time", START_MS + 6001)
    assert ["value 9"] == lines(kalda, topic, "--from-time", "2023-11-14T22:13:29Z")
    assert [] == lines(kalda, topic, "--from-time", "PT1H")
    assert ["value 0", "value 2"] == lines(kalda, topic, "--partition", 0, "--max-messages", 2)
    assert [] == lines(kalda, topic, "--partition", 0, "--offset", 1000)
    started = time.monotonic()
    assert 10 == len(lines(kalda, topic, "--from-beginning", "--timeout-ms", 1500))
    assert time.monotonic() - started > 1.5
    assert 10 == len(lines(kalda, topic, "--max-messages", 20, "--until-end"))


def test_following_prints_new_records_until_it_is_interrupted(
    kalda: Commands, topic: str, fill: Callable[[int], None]
) -> None:
    fill(4)
    process = forked_commands.Popen(
        [*KALDA, "consume", topic, "--follow", "--max-messages", "3", "--bootstrap-server", kalda.bootstrap],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        # Written again and again, as the start of the process takes a while.
        with Producer(bootstrap_servers=kalda.bootstrap) as producer:
            while process.poll() is None:
                producer.send(topic, b"new").result(60)
                time.sleep(0.1)
        stdout, stderr = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert "new\nnew\nnew\n" == stdout
    assert (0, "3 records consumed\n") == (process.returncode, stderr)


def test_a_group_goes_on_where_it_was(kalda: Commands, topic: str, fill: Callable[[int], None]) -> None:
    fill(6)
    assert 4 == len(lines(kalda, topic, "--group", "screens", "--max-messages", 4))
    assert 2 == len(lines(kalda, topic, "--group", "screens"))
    assert [] == lines(kalda, topic, "--group", "screens")

    with Admin(bootstrap_servers=kalda.bootstrap) as admin:
        offsets = admin.list_consumer_group_offsets(["screens"])["screens"]
    assert {0: 3, 1: 3} == {
        each.partition: found.offset
        for each, found in offsets.items()
        if found is not None and each.topic == topic
    }
    assert TopicPartition(topic, 0) in offsets


def test_aborted_records_are_left_out_under_read_committed(kalda: Commands, topic: str) -> None:
    import confluent_kafka

    producer = confluent_kafka.Producer({"bootstrap.servers": kalda.bootstrap, "transactional.id": "tower"})
    producer.init_transactions(10)
    for value, is_committed in ((b"aborted", False), (b"committed", True)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(10)  # an abort drops what was not sent
        (producer.commit_transaction if is_committed else producer.abort_transaction)(10)

    assert ["aborted", "committed"] == lines(kalda, topic)
    assert ["committed"] == lines(kalda, topic, "--isolation-level", "read_committed")


def test_topics_by_pattern(kalda: Commands, topic: str, fill: Callable[[int], None]) -> None:
    fill(2)

    assert 2 == len(lines(kalda, "--include", f"{topic[:-2]}.."))
    done = kalda.refused("consume", "--include", "nothing.*")
    assert (1, "kalda: no topic matches --include=nothing.*\n") == (done.code, done.stderr)


def test_records_that_are_not_of_the_format(kalda: Commands, topic: str, fill: Callable[[int], None]) -> None:
    fill(2)
    done = kalda.refused("consume", topic, "--format", "long", "--partition", 0)
    expected = f"kalda: the record at offset 0 of {topic}-0: 7 bytes are not long, which has 8; "
    assert (1, f"{expected}--skip-message-on-error leaves such records out\n") == (done.code, done.stderr)
    done = kalda("consume", topic, "--format", "long", "--skip-message-on-error")
    assert ("", "0 records consumed") == (done.stdout, done.stderr.splitlines()[-1])


def test_wrong_arguments(kalda: Commands, topic: str) -> None:
    for arguments, message in (
        ([], "name the topics: kalda consume TOPIC..., or --include REGEX"),
        ([topic, "--offset", "5"], "--offset with a number needs --partition"),
        ([topic, "--offset", "x"], "--offset=x is not allowed: it takes a number, earliest, latest, or -N"),
        ([topic, "--from-beginning", "--offset", "1"], "--from-beginning, --offset and --from-time exclude"),
        (
            [topic, "--from-time", "yesterday"],
            "--from-time=yesterday is not allowed: it takes a date",
        ),
        ([topic, "--group", "g", "--from-time", "PT1H"], "--offset and --from-time exclude --group"),
        ([topic, "--follow", "--until-end"], "--until-end and --follow exclude each other"),
        (
            [topic, "--property", "print.kye=true"],
            "--formatter-property print.kye is unknown; known are print",
        ),
    ):
        done = kalda.refused("consume", *arguments)
        assert (2, True) == (done.code, message in done.stderr), done
    done = kalda.refused("consume", "nowhere")
    assert (1, "kalda: topic nowhere does not exist\n") == (done.code, done.stderr)
    done = kalda.refused("consume", f"{topic}x")
    assert (1, f"kalda: topic {topic}x does not exist; did you mean `{topic}`?\n") == (
        done.code,
        done.stderr,
    )


def test_a_number_of_records_that_is_not_there_is_waited_for_and_reported(
    kalda: Commands, topic: str, fill: Callable[[int], None]
) -> None:
    """Otherwise the command looks as if it did not work."""
    fill(1)
    done = kalda("consume", topic, "-n", 3, "--timeout-ms", 1500)

    expected = [f"waiting at the end of {topic} for 2 more records; Ctrl-C ends", "1 record consumed"]
    assert expected == done.stderr.splitlines()


def test_ctrl_c_ends_following_in_order(kalda: Commands, topic: str, fill: Callable[[int], None]) -> None:
    """It is the usual end of --follow, so it is no failure."""
    fill(1)
    process = forked_commands.Popen(
        [*KALDA, "consume", topic, "--follow", "--from-beginning", "--bootstrap-server", kalda.bootstrap],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell without a terminal starts background commands, perhaps this test run, with SIGINT ignored.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    with process:
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            process.send_signal(signal.SIGINT)
            stdout, stderr = process.communicate(timeout=30)
        finally:
            process.kill()
    assert ("value 0\n", "") == (first, stdout)
    assert (0, "1 record consumed\n") == (process.returncode, stderr)


def test_a_terminal_does_not_execute_what_records_hold(kalda: Commands, topic: str) -> None:
    """Anybody who may produce could otherwise take over the terminal of an operator."""
    with Producer(bootstrap_servers=kalda.bootstrap) as producer:
        producer.send(topic, b"\x1b[31mred\x07").result(60)
    end, other = pty.openpty()
    try:
        done = forked_commands.run(
            [*KALDA, "consume", topic, "--bootstrap-server", kalda.bootstrap],
            stdin=subprocess.DEVNULL,
            stdout=other,
            stderr=subprocess.PIPE,
            timeout=60,
            check=True,
        )
        shown = os.read(end, 4096)
    finally:
        os.close(end)
        os.close(other)
    assert (b"\\x1b[31mred\\x07\r\n", b"1 record consumed\n") == (shown, done.stderr)
    assert "\x1b[31mred\x07\n" == kalda("consume", topic).stdout
