"""A broker that is killed at any moment keeps what it acknowledged, and starts with any tail."""

import os
import random
import shutil
from collections.abc import Iterable
from pathlib import Path

import confluent_kafka
import pytest

from kalda.testing import KaldaProcess
from tests.chaos.acknowledged_load import read_partition
from tests.chaos.copier_clients import KALDA, LIBRDKAFKA
from tests.chaos.kill_rounds import create_topics, run
from tests.chaos.log_check import check_log
from tests.integration.clients.clients import ConfluentClient, Message

ROUNDS = {LIBRDKAFKA: 15, KALDA: 8}
"""In the gate, by client; `make chaos` runs two hundred."""
TAIL_ROUNDS = 3
TAILS = 5
"""Logs with a bad tail at each start: a start takes longer than everything else here."""


@pytest.mark.timeout(240)
@pytest.mark.parametrize("client", ROUNDS)
def test_kills_under_load_lose_nothing(tmp_path: Path, client: str) -> None:
    """acks=1 and acks=all, plain and idempotent producers; the logs stay valid by Kafka's rules."""
    report = run(ROUNDS[client], random.SystemRandom().randrange(1_000_000), tmp_path, client=client)

    assert report.acknowledged > 1_000


@pytest.mark.timeout(240)
def test_no_tail_stops_a_start(tmp_path: Path) -> None:
    """Power loss leaves a cut or nonsense tail: the valid prefix survives and writes go on."""
    seed = random.SystemRandom().randrange(1_000_000)
    choice = random.Random(seed)
    kalda = KaldaProcess(tmp_path / "data")
    kalda.start()
    topics = [f"acks-tail-{number}" for number in range(TAILS)]
    create_topics(kalda.bootstrap, topics)
    append_to_each(kalda.bootstrap, topics, range(20))
    kalda.kill()
    logs: dict[str, Path] = {}
    for topic in topics:
        [logs[topic]] = (tmp_path / "data").rglob(f"{topic}-0/00000000000000000000.log")
    kept = tmp_path / "kept"
    shutil.copytree(tmp_path / "data", kept)
    for _ in range(TAIL_ROUNDS):
        shutil.rmtree(tmp_path / "data")
        shutil.copytree(kept, tmp_path / "data")
        cuts = {topic: break_tail(log, choice) for topic, log in logs.items()}
        kalda.start()
        found = {topic: read_partition(kalda.bootstrap, topic, 0) for topic in topics}
        append_to_each(kalda.bootstrap, topics, [1000])
        kalda.kill()
        for topic, values in found.items():
            assert {offset: offset for offset in range(len(values))} == values, f"seed {seed}: {topic}"
            kept_at_least = int(20 * cuts[topic]) - 1
            assert len(values) >= kept_at_least, f"seed {seed}: {topic}: more was dropped than the tail"
            assert len(values) + 1 == check_log(logs[topic].parent).next_offset, f"seed {seed}: {topic}"


def append_to_each(bootstrap: str, topics: list[str], numbers: Iterable[int]) -> None:
    """Append the numbers to each topic, a batch for each."""
    errors: list[object] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0}
    )
    for number in numbers:
        for topic in topics:
            producer.produce(
                topic, b"%d" % number, partition=0, on_delivery=lambda error, _: errors.append(error)
            )
        assert 0 == producer.flush(60)
    assert {None} == set(errors)


def break_tail(log: Path, choice: random.Random) -> float:
    """Cut a log anywhere, put noise behind, and empty its index; return the share that is whole."""
    whole = log.read_bytes()
    cut = choice.randrange(len(whole))
    log.write_bytes(whole[:cut] + choice.randbytes(choice.randrange(0, 200)))
    os.truncate(log.with_suffix(".index"), 0)
    return cut / len(whole)


def test_a_clean_stop_ends_with_zero_and_starts_again(tmp_path: Path) -> None:
    """SIGTERM is how operators stop a broker; nothing needs recovery after it."""
    kalda = KaldaProcess(tmp_path / "data")
    kalda.start()
    ConfluentClient(kalda.bootstrap).produce("clean", [Message(b"k", b"7")])
    kalda.stop()

    kalda.start()
    try:
        assert {0: 7} == read_partition(kalda.bootstrap, "clean", 0)
    finally:
        kalda.stop()


def test_a_second_process_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    """Two writers would destroy the log; the error says who holds it."""
    from kalda.testing import KaldaProcessError

    with KaldaProcess(tmp_path / "data") as first:
        second = KaldaProcess(tmp_path / "data")
        with pytest.raises(KaldaProcessError) as caught:
            second.start()
        assert str(first.pid) in str(caught.value)
        assert "Traceback" not in str(caught.value)
