"""The Spark source against Spark's own Kafka connector: the same cases give the same rows and offsets.

Spark's connector 4.2.0 runs on PySpark 4.2.0, this source on the PySpark of the project, both against one
broker of ours.
"""

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

from benchmarks.apache_kafka import NotAvailableError
from benchmarks.spark_official import official_connector
from tests.compat.spark_options.cases import BASE_MS, BATCH, DIFFERENT, STREAM, Case
from tests.shared_broker import shared_broker

pytestmark = pytest.mark.timeout(1800)

CHILD = Path(__file__).parent / "spark_options" / "child.py"
_CHILD_SECONDS = 900
_PARTITIONS = {
    "plain": 3,
    "times": 2,
    "trimmed": 1,
    "empty": 1,
    "headers": 1,
    "random": 2,
    "skewed": 3,
    "transactions": 1,
}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with the topics of the cases."""
    with shared_broker(tmp_path_factory.mktemp("options")) as bootstrap:
        fill_topics(bootstrap)
        yield bootstrap


@pytest.fixture(scope="module")
def official() -> tuple[Path, list[str]]:
    """The interpreter with PySpark 4.2.0 and the jars of its connector."""
    try:
        return official_connector()
    except NotAvailableError as error:
        pytest.skip(str(error))


def fill_topics(bootstrap: str) -> None:
    """Create the topics of the cases with the same records each time."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    # The records are years old.
    config = {"retention.ms": "-1"}
    topics = [
        confluent_kafka.admin.NewTopic(name, count, 1, config=config) for name, count in _PARTITIONS.items()
    ]
    for future in admin.create_topics(topics).values():
        future.result(30)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number in range(90):
        key = None if number % 7 == 0 else b"k%d" % number
        value = None if number % 11 == 0 else b"v%d" % number
        producer.produce("plain", value, key, number % 3, timestamp=BASE_MS + number * 1000)
    for number in range(60):
        # Each third record is a minute late.
        time_ms = BASE_MS + number * 1000 - (60_000 if number % 3 == 0 else 0)
        producer.produce("times", b"t%d" % number, partition=number % 2, timestamp=time_ms)
        producer.produce("trimmed", b"r%d" % number, partition=0, timestamp=BASE_MS + number)
    for partition, count in enumerate((200, 20, 1)):
        for number in range(count):
            producer.produce("skewed", b"s%d" % number, partition=partition, timestamp=BASE_MS + number)
    cases: list[Any] = [None, [("a", b"1")], [("a", None), ("a", b""), ("b", b"\x00\xff")], [("", b"x")]]
    for number, headers in enumerate(cases):
        producer.produce("headers", b"h", partition=0, headers=headers or [], timestamp=BASE_MS + number)
    fill_random(producer)
    assert 0 == producer.flush(30)
    trimmed = confluent_kafka.TopicPartition("trimmed", 0, 25)
    admin.delete_records([trimmed])[trimmed].result(30)
    fill_transactions(bootstrap)


def fill_random(producer: confluent_kafka.Producer) -> None:
    """10,000 records of any bytes in keys, values and headers."""
    chance = random.Random(11)

    def some_bytes(limit: int) -> bytes | None:
        return None if chance.random() < 0.1 else chance.randbytes(chance.randrange(limit))

    for number in range(10_000):
        headers = [(f"h{chance.randrange(9)}", some_bytes(20)) for _ in range(chance.randrange(4))]
        time_ms = BASE_MS + chance.randrange(10_000_000)
        producer.produce(
            "random", some_bytes(200), some_bytes(40), number % 2, timestamp=time_ms, headers=headers
        )
        producer.poll(0)


def fill_transactions(bootstrap: str) -> None:
    """Committed and aborted transactions; the log ends with a marker, and gaps are all over."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": "options"})
    producer.init_transactions(30)
    for number in range(20):
        producer.begin_transaction()
        for index in range(5):
            producer.produce(
                "transactions", b"x%d-%d" % (number, index), partition=0, timestamp=BASE_MS + number
            )
        if number % 3 == 0:
            producer.flush(30)
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)


def run_cases(
    cases: Sequence[Case], source: str, bootstrap: str, python: Path, jars: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Run the cases in a process with a Spark of its own."""
    # Both wait for records that do not exist, and for brokers, for two minutes unless the options say less.
    common = {"kafka.bootstrap.servers": bootstrap, "kafkaConsumer.pollTimeoutMs": "4000"}
    complete = [
        each | {"options": common | each["options"]}
        if each["kind"] == "batch"
        else each | {"steps": [common | step for step in each["steps"]]}
        for each in cases
    ]
    environment = os.environ | {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
    done = subprocess.run(
        [str(python), str(CHILD)],
        input=json.dumps({"source": source, "jars": list(jars), "cases": complete}),
        capture_output=True,
        text=True,
        timeout=_CHILD_SECONDS,
        env=environment,
        check=False,
    )
    assert 0 == done.returncode, done.stderr[-3000:]
    outcomes: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return outcomes


def essence(outcome: dict[str, Any]) -> dict[str, Any]:
    """What both sources must agree on: rows, schema, batches and offsets, or the kind of failure."""
    if "error" in outcome:
        return {"error": outcome["error"]}
    # How many tasks read an empty range is no result.
    return {name: value for name, value in outcome.items() if name != "tasks"}


def test_the_same_cases_have_the_same_outcomes(address: str, official: tuple[Path, list[str]]) -> None:
    """Rows, schemas, sizes of batches, logged offsets and kinds of failures."""
    python, jars = official
    cases = [*BATCH, *STREAM]
    assert len({case["name"] for case in cases}) == len(cases) >= 60

    theirs = run_cases(cases, "kafka", address, python, jars)
    ours = run_cases(cases, "kalda", address, Path(sys.executable), ())

    different = {
        name: {"official": theirs[name], "ours": ours[name]}
        for name in theirs
        if essence(theirs[name]) != essence(ours[name])
    }
    unexpected = {name: outcomes for name, outcomes in different.items() if name not in DIFFERENT}
    assert {} == unexpected, json.dumps(unexpected, indent=1)[:8000]
    assert set(DIFFERENT) == set(different)


def test_an_error_of_an_option_is_one_line(address: str, official: tuple[Path, list[str]]) -> None:
    """A user reads the message in a notebook: Spark's own words, ours, and the SQL state."""
    cases = [
        each
        for each in (*BATCH, *STREAM)
        if each["name"] in {"two selections", "latest as start", "stream with an end"}
    ]

    outcomes = run_cases(cases, "kalda", address, Path(sys.executable), ())

    assert {"refused": 3} == {"refused": sum(each.get("error") == "refused" for each in outcomes.values())}
    assert all(each["lines"] <= 2 for each in outcomes.values()), outcomes


def test_a_checkpoint_goes_to_this_source_and_back(
    address: str, official: tuple[Path, list[str]], tmp_path: Path
) -> None:
    """Spark's connector, this source, Spark's connector: 100,000 records, each read once."""
    python, jars = official
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": address})
    admin.create_topics([confluent_kafka.admin.NewTopic("handover", 2, 1)])["handover"].result(30)
    options = {"subscribe": "handover", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "15000"}
    case = {
        "name": "handover",
        "kind": "stream",
        "steps": [options],
        "checkpoint": str(tmp_path),
        "spans": True,
    }
    spans: list[list[int]] = []
    turns: tuple[tuple[str, Path, list[str], int], ...] = (
        ("kafka", python, jars, 40_000),
        ("kalda", Path(sys.executable), [], 30_000),
    )
    for source, interpreter, jar_files, count in (*turns, ("kafka", python, jars, 30_000)):
        producer = confluent_kafka.Producer({"bootstrap.servers": address})
        for number in range(count):
            producer.produce("handover", b"%d" % number, partition=number % 2)
            producer.poll(0)
        assert 0 == producer.flush(60)
        outcome = run_cases([case], source, address, interpreter, jar_files)["handover"]
        assert "error" not in outcome, outcome
        assert {"handover": {"0", "1"}} == {name: set(each) for name, each in outcome["offsets"].items()}
        spans += outcome["rows"]

    for partition in range(2):
        next_offset = 0
        for _, count, first, last, distinct in sorted(
            (span for span in spans if span[0] == partition), key=lambda span: span[2]
        ):
            assert [next_offset, count, count] == [first, last - first + 1, distinct]
            next_offset = last + 1
        assert 50_000 == next_offset
