"""A broker that is killed at any moment keeps what it acknowledged, and starts with any tail."""

import os
import random
import shutil
from pathlib import Path

import pytest

from kalda.testing import KaldaProcess
from tests.chaos.kill_rounds import create_topics, read_partition, run
from tests.chaos.log_check import check_log
from tests.integration.clients.clients import ConfluentClient, Message

ROUNDS = 15
"""In the gate; `make chaos` runs two hundred."""
TAIL_ROUNDS = 15


@pytest.mark.timeout(240)
def test_kills_under_load_lose_nothing(tmp_path: Path) -> None:
    """acks=1 and acks=all, plain and idempotent producers; the logs stay valid by Kafka's rules."""
    report = run(ROUNDS, random.SystemRandom().randrange(1_000_000), tmp_path)

    assert report.acknowledged > 1_000


@pytest.mark.timeout(240)
def test_no_tail_stops_a_start(tmp_path: Path) -> None:
    """Power loss leaves a cut or nonsense tail: the valid prefix survives and writes go on."""
    seed = random.SystemRandom().randrange(1_000_000)
    choice = random.Random(seed)
    kalda = KaldaProcess(tmp_path / "data")
    kalda.start()
    create_topics(kalda.bootstrap, ["acks-tail"])
    client = ConfluentClient(kalda.bootstrap)
    for number in range(20):
        client.produce("acks-tail", [Message(None, b"%d" % number)])
    kalda.kill()
    [log] = (tmp_path / "data").rglob("acks-tail-0/00000000000000000000.log")
    whole = log.read_bytes()
    kept = tmp_path / "kept"
    shutil.copytree(tmp_path / "data", kept)
    for _ in range(TAIL_ROUNDS):
        shutil.rmtree(tmp_path / "data")
        shutil.copytree(kept, tmp_path / "data")
        cut = choice.randrange(len(whole))
        noise = choice.randbytes(choice.randrange(0, 200))
        log.write_bytes(whole[:cut] + noise)
        os.truncate(log.with_suffix(".index"), 0)
        kalda.start()
        values = read_partition(kalda.bootstrap, "acks-tail", 0)
        ConfluentClient(kalda.bootstrap).produce("acks-tail", [Message(None, b"1000")])
        assert {offset: offset for offset in range(len(values))} == values, f"seed {seed}"
        assert len(values) >= cut * 20 // len(whole) - 1, f"seed {seed}: more was dropped than the tail"
        kalda.kill()
        assert len(values) + 1 == check_log(log.parent).next_offset, f"seed {seed}"


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
