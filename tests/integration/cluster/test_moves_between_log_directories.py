"""Replicas move between the log directories of their brokers while real clients write and read (KIP-113)."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kalda import Admin
from kalda.clients.admin.log_dirs import TopicPartitionReplica
from kalda.common.types import TopicPartition
from kalda.testing import Cluster
from tests.chaos.ordered_load import Ledger, LibrdkafkaLoad, LibrdkafkaReader
from tests.integration.cluster.helpers import create_topic, wait_until

TOPIC = "ordered"
PARTITIONS = 3
PROGRESS_SECONDS = 30.0
SETTINGS = {
    # Many segments, and some read while their files are removed.
    "log.segment.bytes": "65536",
    "log.segment.delete.delay.ms": "500",
    "replica.lag.time.max.ms": "120000",
}


def place(cluster: Cluster, broker_id: int, partition: int) -> Path:
    partitions = cluster.server(broker_id).services.replica_manager.partitions
    return Path(partitions[TopicPartition(TOPIC, partition)].log.directory).parent


def move_all(cluster: Cluster, admin: Admin) -> Callable[[], bool]:
    """Move each replica to the other directory of its broker; return whether all are there."""
    targets = {}
    for broker_id in cluster.running:
        first, second = cluster.log_directories_of(broker_id)
        for partition in range(PARTITIONS):
            source = place(cluster, broker_id, partition)
            replica = TopicPartitionReplica(TOPIC, partition, broker_id)
            targets[replica] = second if source == first else first
    result = admin.alter_replica_log_dirs(
        {replica: str(path) for replica, path in targets.items()}, outcomes=True
    )
    assert {} == result.errors
    return lambda: all(
        place(cluster, replica.broker_id, replica.partition) == path for replica, path in targets.items()
    )


@pytest.mark.parametrize("brokers", [1, 3])
def test_nothing_is_lost_while_replicas_move_to_and_fro(brokers: int) -> None:
    with Cluster(brokers, settings=SETTINGS, log_directories_per_broker=2) as cluster:
        create_topic(cluster.bootstrap, TOPIC, partitions=PARTITIONS, replicas=brokers)
        ledger = Ledger(PARTITIONS)
        load = LibrdkafkaLoad(cluster.bootstrap, TOPIC, ledger, records_per_second=1500)
        reader = LibrdkafkaReader(cluster.bootstrap, TOPIC, ledger)
        try:
            load.start()
            reader.start()
            with Admin(bootstrap_servers=cluster.bootstrap) as admin:
                for _ in range(4):
                    load.wait_progress(PROGRESS_SECONDS)
                    wait_until(move_all(cluster, admin))
            load.wait_progress(PROGRESS_SECONDS)
            cluster.wait_in_sync(TOPIC)
            load.stop()
            reader.wait_all_read()
        finally:
            load.abandon()
            reader.stop()
        ledger.check_all_read()
        assert [] == [*load.errors, *ledger.violations, *reader.errors]
        late = LibrdkafkaReader(cluster.bootstrap, TOPIC, again := Ledger(PARTITIONS))
        again.acknowledged = ledger.acknowledged
        try:
            late.start()
            late.wait_all_read()
        finally:
            late.stop()
        assert [] == [*again.violations, *late.errors]
        check_that_old_directories_are_gone(cluster)


def check_that_old_directories_are_gone(cluster: Cluster) -> None:
    """Each replica is in one directory, and the rest of its moves is removed."""

    def names() -> list[str]:
        return [
            name
            for broker_id in cluster.running
            for directory in cluster.log_directories_of(broker_id)
            for name in os.listdir(directory)
            if name.startswith(TOPIC)
        ]

    expected = sorted(f"{TOPIC}-{partition}" for partition in range(PARTITIONS) for _ in cluster.running)
    wait_until(lambda: expected == sorted(names()))


def test_leaders_change_while_replicas_move() -> None:
    """A follower that truncates its log while it is copied has no records of the old leader in the copy."""
    # A producer that waited for an election sends batches of up to a megabyte.
    settings = {**SETTINGS, "log.segment.bytes": "1200000"}
    with Cluster(3, settings=settings, log_directories_per_broker=2) as cluster:
        create_topic(cluster.bootstrap, TOPIC, partitions=PARTITIONS, replicas=3)
        ledger = Ledger(PARTITIONS)
        load = LibrdkafkaLoad(cluster.bootstrap, TOPIC, ledger, records_per_second=600)
        reader = LibrdkafkaReader(cluster.bootstrap, TOPIC, ledger)
        try:
            load.start()
            reader.start()
            for victim in range(3):
                load.wait_progress(PROGRESS_SECONDS)
                with Admin(bootstrap_servers=cluster.bootstrap) as admin:
                    move_all(cluster, admin)
                cluster.kill(victim)
                load.wait_progress(PROGRESS_SECONDS)
                cluster.start(victim)
                cluster.wait_in_sync(TOPIC)
            load.stop()
            reader.wait_all_read()
        finally:
            load.abandon()
            reader.stop()
        ledger.check_all_read()
        assert [] == [*load.errors, *ledger.violations, *reader.errors]
        check_that_old_directories_are_gone(cluster)
