"""A follower whose fetches name offsets, epochs and ids that are not its own: what the leader believes."""

import random
from pathlib import Path
from typing import Any

import pytest

from kalda.common import invariants
from kalda.common.errors import ErrorCode
from kalda.protocol.messages.fetch import ReplicaState
from kalda.storage.log_types import FetchIsolation
from tests.unit.broker.data_path_fakes import TOPIC_ID, batch
from tests.unit.broker.leading_fakes import BROKER_ID, Leading

MAX = 2**63 - 1
NUMBERS = (-MAX - 1, -2, -1, 0, 1, 2, 3, 4, 99, 2**31, MAX)
EPOCHS = (-(2**31), -1, 0, 2, 3, 4, 2**31 - 1)


async def test_random_fetches_commit_nothing_that_the_honest_follower_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replica 2 is honest and has two of three records; the liar calls itself anything else."""
    monkeypatch.setattr(invariants, "enabled", True)
    broker = await Leading.open(tmp_path)
    await broker.lead()
    for value in (b"a", b"b", b"c"):
        broker.produce(batch(value))
    assert 0 == broker.follow(2, 2)
    partition = broker.partition()
    before = partition.log.read(0, 10_000, FetchIsolation.LOG_END).records.read()
    for seed in range(400):
        chance = random.Random(seed)
        replica, offset = chance.choice((3, 3, BROKER_ID, 99, -5, 2**31 - 1)), chance.choice(NUMBERS)
        options: dict[str, Any] = {
            "current_leader_epoch": chance.choice(EPOCHS),
            "last_fetched_epoch": chance.choice(EPOCHS),
            "log_start_offset": chance.choice(NUMBERS),
            "max_bytes": chance.choice((-1, 0, 2**31 - 1)),
            "partition_max_bytes": chance.choice((-1, 0, 2**31 - 1)),
            "session_id": chance.choice((0, 0, 7, 2**31 - 1)),
            "session_epoch": chance.choice((-1, 0, 1)),
        }
        if chance.random() < 0.5:
            broker.fetch({0: offset}, version=12, replica_id=replica, **options)
        else:
            state = ReplicaState(replica_id=replica, replica_epoch=chance.choice((-1, 5, 6)))
            broker.fetch({0: offset}, version=15, replica_state=state, topic_id=TOPIC_ID, **options)
        assert partition.log.high_watermark <= 2, f"seed {seed}"
        assert {2, 3} == set(partition.followers), f"seed {seed}"
        assert -1 <= partition.followers[3].log_end_offset <= 3, f"seed {seed}"
    assert before == partition.log.read(0, 10_000, FetchIsolation.LOG_END).records.read()
    assert ErrorCode.NONE == broker.follow(2, 3)
    broker.close()
