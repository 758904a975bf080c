"""`kalda dump-log` on the files of a broker that has stopped."""

import json
import shutil
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kalda.testing import KaldaProcess
from tests.integration.tools.commands import Commands

SETTINGS = {
    "log.index.interval.bytes": "100",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
kalda = Commands("")


def fill(bootstrap: str) -> None:
    """Write two transactions, one of them aborted, and commit the offset of a group."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic("flights", 1, 1)]).values():
        future.result(60)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": "tower"})
    producer.init_transactions(10)
    for is_committed in (False, True):
        producer.begin_transaction()
        for number in range(20):
            producer.produce("flights", key=b"k%d" % number, value=b"departs", headers=[("gate", b"7")])
            producer.flush(10)
        (producer.commit_transaction if is_committed else producer.abort_transaction)(10)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "screens", "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe(["flights"])
        assert 20 == len(consumer.consume(20, 20))
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


@pytest.fixture(scope="module")
def log_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("dump") / "data"
    with KaldaProcess(directory, settings=SETTINGS) as process:
        fill(process.bootstrap)
    (found,) = directory.rglob("flights-0")
    return found.parent


def json_lines(*arguments: str | Path) -> list[dict[str, Any]]:
    return [
        json.loads(line) for line in kalda("dump-log", *map(str, arguments), "--json").stdout.splitlines()
    ]


def test_every_file_of_a_partition_is_dumped(log_directory: Path) -> None:
    directory = log_directory / "flights-0"
    done = kalda("dump-log", str(directory), "--print-data-log")

    dumped = [line for line in done.stdout.splitlines() if line.startswith("Dumping ")]
    suffixes = [Path(line).suffix for line in dumped]
    assert [".index", ".log", ".timeindex", ".txnindex", ".snapshot", "", ".metadata"] == suffixes
    assert f"Dumping {directory}/00000000000000000000.log\nLog starting offset: 0\n" in done.stdout
    assert "sequence: 0 headerKeys: [gate] key: k0 payload: departs\n" in done.stdout
    assert " endTxnMarker: ABORT coordinatorEpoch: 0\n" in done.stdout
    assert "version: 0 producerId: 0 firstOffset: 0 lastOffset: 20 lastStableOffset: 21\n" in done.stdout
    assert "leaderEpoch: 0 startOffset: 0\n" in done.stdout
    assert "" == done.stderr

    lines = json_lines(directory, "--print-data-log")
    records = [line for line in lines if line["kind"] == "record"]
    assert [*range(42)] == [record["offset"] for record in records]
    assert ("k0", "departs", ["gate"]) == tuple(records[0][name] for name in ("key", "payload", "headerKeys"))
    assert "COMMIT" == records[-1]["endTxnMarker"]


def test_internal_topics_are_decoded(log_directory: Path) -> None:
    offsets = log_directory / "__consumer_offsets-0/00000000000000000000.log"
    done = kalda("dump-log", "--offsets-decoder", "--files", str(offsets), "--skip-record-metadata")
    assert (
        '| key: {"type":"1","data":{"group":"screens","topic":"flights","partition":0}} '
        'payload: {"version":"3","data":{"offset":'
    ) in done.stdout
    keys = [line["key"] for line in json_lines("--offsets-decoder", offsets) if line["kind"] == "record"]
    assert {"type": "2", "data": {"group": "screens"}} in keys

    transactions = log_directory / "__transaction_state-0/00000000000000000000.log"
    done = kalda("dump-log", "--transaction-log-decoder", str(transactions))
    assert 'key: {"type":"0","data":{"transactionalId":"tower"}} payload: {"version":"1",' in done.stdout
    payloads = [line.get("payload") for line in json_lines("--transaction-log-decoder", transactions)]
    found = [payload["data"]["transactionPartitions"] for payload in payloads if payload is not None]
    assert [{"topic": "flights", "partitionIds": [0]}] in found


def test_indexes_are_checked(log_directory: Path) -> None:
    index = log_directory / "flights-0/00000000000000000000.index"
    time_index = index.with_suffix(".timeindex")

    done = kalda("dump-log", str(index), str(time_index), "--verify-index-only")
    assert [f"Dumping {index}", f"Dumping {time_index}"] == done.stdout.splitlines()
    done = kalda("dump-log", str(index), str(time_index), "--index-sanity-check")
    assert f"{index} passed sanity check." in done.stdout
    assert f"{time_index} passed sanity check." in done.stdout


def test_damage_is_one_line_with_its_position_and_exit_code_1(log_directory: Path, tmp_path: Path) -> None:
    copy = tmp_path / "flights-0"
    shutil.copytree(log_directory / "flights-0", copy)
    log = copy / "00000000000000000000.log"
    second = json_lines(log)[2]["position"]
    data = bytearray(log.read_bytes())
    data[second + 80] ^= 0xFF
    log.write_bytes(data + b"torn")

    done = kalda.run("dump-log", str(log))
    assert 1 == done.code
    crc, torn, last = done.stderr.splitlines()
    assert crc.startswith(f"kalda: {log}, position {second}: batch at offset 1 has CRC ")
    assert f"kalda: {log}, position {len(data)}: Found 4 invalid bytes at the end of {log.name}" == torn
    assert "kalda: 2 faults found" == last
    done = kalda.run("dump-log", str(log), "--json")
    problems = [json.loads(line) for line in done.stdout.splitlines() if '"problem"' in line]
    assert [second, len(data)] == [problem["position"] for problem in problems]


def test_wrong_arguments_are_one_line_and_exit_code_2(tmp_path: Path) -> None:
    assert (2, "kalda: no file is named: kalda dump-log FILE..., or --files FILE,...\n") == (
        kalda.run("dump-log").code,
        kalda.run("dump-log").stderr,
    )
    missing = tmp_path / "missing.log"
    done = kalda.run("dump-log", str(missing))
    assert (2, f"kalda: {missing}: No such file or directory\n") == (done.code, done.stderr)
