"""The directories of the release before are read by this one, and the other way round.

`tests/compat/test_rolling_upgrade.py` rolls a cluster under load.
"""

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from kalda import Admin, Consumer, NewTopic, Producer
from kalda.common.types import TopicPartition
from kalda.testing import KaldaProcess
from tests.previous_release import NoPreviousReleaseError, previous_command

ROUNDS = 3
RECORDS = 50
READ_SECONDS = 60.0
PARTITION = TopicPartition("numbers", 0)


@pytest.fixture
def previous(tmp_path: Path) -> list[str]:
    """What runs `kalda` of the release before."""
    try:
        return previous_command(tmp_path / "previous")
    except NoPreviousReleaseError as error:
        pytest.skip(str(error))


def test_the_sources_are_those_of_before(previous: list[str], tmp_path: Path) -> None:
    where = [*previous[:-2], "-c", "import kalda; print(kalda.__file__)"]
    found = subprocess.run(where, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    assert str(tmp_path / "previous" / "src" / "kalda" / "__init__.py") == found


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_each_release_goes_on_with_the_directory_of_the_other(
    previous: list[str], tmp_path: Path, is_killed: bool
) -> None:
    """Records, transactions, offsets of groups, settings and the coordination server's data."""
    commands: list[Sequence[str] | None] = [previous, None]
    expected: list[bytes] = []
    for round_number in range(ROUNDS):
        process = KaldaProcess(tmp_path / "data", command=commands[round_number % 2])
        process.start()
        try:
            use(process.bootstrap, round_number, expected)
        finally:
            (process.kill if is_killed else process.stop)()
        process.check_log()


def use(bootstrap: str, round_number: int, expected: list[bytes]) -> None:
    """Write in transactions; a group reads what it has not seen, and another reader all that there is."""
    if round_number == 0:
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topics([NewTopic(PARTITION.topic, 1, config={"segment.bytes": "1024"})])
    written = [b"%d-%d" % (round_number, number) for number in range(RECORDS)]
    with Producer(bootstrap_servers=bootstrap, transactional_id="writer") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(PARTITION.topic, b"aborted")
        producer.flush()
        producer.abort_transaction()
        with producer.transaction():
            for value in written:
                producer.send(PARTITION.topic, value)
    expected += written
    with Consumer(
        PARTITION.topic,
        bootstrap_servers=bootstrap,
        group_id="readers",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        assert written == read(consumer, len(written)), "the group goes on where it was"
        consumer.commit()
    with Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign([PARTITION])
        consumer.seek_to_beginning()
        assert expected == read(consumer, len(expected))
        end = consumer.end_offsets([PARTITION])[PARTITION]
        assert end == consumer.position(PARTITION), "no transaction is open"


def read(consumer: Consumer, count: int) -> list[bytes | None]:
    """Return the next values."""
    deadline = time.monotonic() + READ_SECONDS
    found: list[bytes | None] = []
    while len(found) < count and time.monotonic() < deadline:
        found += [record.value for record in consumer.poll(timeout_s=1.0)]
    return found
