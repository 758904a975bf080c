"""A broker that is killed while it moves replicas between its log directories: during the copying and around
the replacement. `test_log_dir_move_crashes` kills it at every single file operation, in memory."""

import contextlib
import random
import time
from functools import partial
from pathlib import Path

import pytest

from kalda import Admin
from kalda.clients.admin.log_dirs import TopicPartitionReplica
from kalda.testing import KaldaProcess, KaldaProcessError
from tests.chaos.log_check import check_log
from tests.chaos.ordered_load import Ledger, LibrdkafkaLoad, LibrdkafkaReader
from tests.integration.cluster.helpers import create_topic, wait_until

TOPIC = "ordered"
PARTITIONS = 2
ROUNDS = 5
PROGRESS_SECONDS = 60.0
LATEST_KILL_SECONDS = 0.6


@pytest.mark.timeout(240)
def test_kills_during_moves_lose_nothing(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    choice = random.Random(seed)
    directories = [tmp_path / "data" / name for name in ("a", "b")]
    kalda = KaldaProcess(
        tmp_path / "data",
        settings={
            "log.dirs": ",".join(map(str, directories)),
            # A producer that waited for a start sends batches of up to a megabyte.
            "log.segment.bytes": "1200000",
            "log.segment.delete.delay.ms": "200",
            # Some kills come while records are copied.
            "replica.alter.log.dirs.io.max.bytes.per.second": "2000000",
        },
    )
    kalda.start()
    create_topic(kalda.bootstrap, TOPIC, partitions=PARTITIONS, replicas=1)
    ledger = Ledger(PARTITIONS)
    load = LibrdkafkaLoad(kalda.bootstrap, TOPIC, ledger, records_per_second=2000)
    reader = LibrdkafkaReader(kalda.bootstrap, TOPIC, ledger)
    try:
        load.start()
        reader.start()
        for number in range(ROUNDS):
            load.wait_progress(PROGRESS_SECONDS)
            target = directories[number % 2]
            move(kalda.bootstrap, target)
            time.sleep(choice.random() * LATEST_KILL_SECONDS)
            kalda.kill()
            kalda.start()
            wait_until(partial(is_moved, kalda.bootstrap, target))
        load.wait_progress(PROGRESS_SECONDS)
        load.stop()
        reader.wait_all_read()
    finally:
        load.abandon()
        reader.stop()
        with contextlib.suppress(KaldaProcessError):
            kalda.stop()
    ledger.check_all_read()
    assert [] == [*load.errors, *ledger.violations, *reader.errors], f"seed {seed}"
    names = sorted(path.name for path in target.glob(f"{TOPIC}-*"))
    assert [f"{TOPIC}-{partition}" for partition in range(PARTITIONS)] == names
    for partition in range(PARTITIONS):
        newest = max(ledger.acknowledged[partition])
        assert newest < check_log(target / f"{TOPIC}-{partition}").next_offset, f"seed {seed}"


def move(bootstrap: str, target: Path) -> None:
    replicas = [TopicPartitionReplica(TOPIC, partition, 0) for partition in range(PARTITIONS)]
    with Admin(bootstrap_servers=bootstrap) as admin:
        assert {} == admin.alter_replica_log_dirs(dict.fromkeys(replicas, str(target)), outcomes=True).errors


def is_moved(bootstrap: str, target: Path) -> bool:
    replicas = [TopicPartitionReplica(TOPIC, partition, 0) for partition in range(PARTITIONS)]
    with contextlib.suppress(ConnectionError), Admin(bootstrap_servers=bootstrap) as admin:
        found = admin.describe_replica_log_dirs(replicas, outcomes=True).results.values()
        return {str(target)} == {each.current_replica_log_dir for each in found}
    return False
