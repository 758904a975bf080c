"""A cluster of processes under load: killed, stopped, restarted; every record is accounted for.

`make chaos` does this at random and for long; here each kind of end has its turn.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from kalda.testing import ProcessCluster
from tests.chaos.cluster_rounds import wait_in_sync
from tests.chaos.ordered_load import Ledger, LibrdkafkaLoad, LibrdkafkaReader, OrderedLoad
from tests.chaos.replica_check import check_replicas
from tests.integration.cluster.helpers import create_topic, leaders, wait_until

TOPIC = "ordered"
PARTITIONS = 6
BROKERS = 3
RECORDS_PER_SECOND = 1_000
PROGRESS_SECONDS = 30.0
SETTINGS = {
    "min.insync.replicas": "2",
    "zookeeper.session.timeout.ms": "4000",
    "replica.lag.time.max.ms": "5000",
}

pytestmark = pytest.mark.timeout(180)


@dataclass
class Loaded:
    """A cluster with a producer of numbered records and a reader of them."""

    cluster: ProcessCluster
    load: OrderedLoad

    def wait_progress(self) -> None:
        """Return when every partition has acknowledged something new."""
        self.load.wait_progress(PROGRESS_SECONDS)


@contextmanager
def loaded_cluster(directory: Path) -> Iterator[Loaded]:
    """Run a cluster under load; at the end nothing may be lost, twice, or different between replicas."""
    ledger = Ledger(PARTITIONS)
    with ProcessCluster(directory, brokers=BROKERS, settings=SETTINGS) as cluster:
        create_topic(cluster.bootstrap, TOPIC, partitions=PARTITIONS)
        load = LibrdkafkaLoad(cluster.bootstrap, TOPIC, ledger, records_per_second=RECORDS_PER_SECOND)
        reader = LibrdkafkaReader(cluster.bootstrap, TOPIC, ledger)
        try:
            reader.start()
            load.start()
            load.wait_progress(PROGRESS_SECONDS)
            yield Loaded(cluster, load)
            load.wait_progress(PROGRESS_SECONDS)
            load.stop()
            reader.wait_all_read()
            wait_in_sync(cluster.bootstrap)
        finally:
            load.abandon()
            reader.stop()
        for broker_id in range(BROKERS):
            cluster.stop(broker_id)
    ledger.check_all_read()
    assert [] == [*load.errors, *ledger.violations, *reader.errors]
    for partition in range(PARTITIONS):
        assert ledger.next_offsets[partition] == check_replicas(cluster.log_directories, TOPIC, partition)


def test_a_killed_leader_costs_nothing_but_its_session(tmp_path: Path) -> None:
    with loaded_cluster(tmp_path) as loaded:
        cluster = loaded.cluster
        victim = leaders(cluster.bootstrap, TOPIC)[0]
        cluster.kill(victim)
        loaded.wait_progress()
        assert victim not in leaders(cluster.bootstrap, TOPIC).values()
        cluster.start(victim)


def test_a_rolling_restart_never_makes_a_client_fail(tmp_path: Path) -> None:
    """Each broker hands its leaders over first; records wait in the client for moments, none fails."""
    with loaded_cluster(tmp_path) as loaded:
        for broker_id in range(BROKERS):
            loaded.cluster.restart(broker_id)
            wait_in_sync(loaded.cluster.bootstrap)


def test_a_paused_leader_that_wakes_serves_nothing_old(tmp_path: Path) -> None:
    """SIGSTOP for longer than the session: the split brain of a process that was replaced meanwhile."""
    with loaded_cluster(tmp_path) as loaded:
        cluster = loaded.cluster
        victim = leaders(cluster.bootstrap, TOPIC)[0]
        others = ",".join(
            address for number, address in enumerate(cluster.bootstrap.split(",")) if number != victim
        )
        cluster.pause(victim)
        wait_until(lambda: victim not in leaders(others, TOPIC).values())
        cluster.resume(victim)


def test_the_coordinator_killed_and_the_brokers_with_it(tmp_path: Path) -> None:
    """Everything goes at once, as when a machine does; what was acknowledged is in the logs."""
    with loaded_cluster(tmp_path) as loaded:
        cluster = loaded.cluster
        cluster.kill_coordinator()
        for broker_id in range(BROKERS):
            cluster.kill(broker_id)
        cluster.start_coordinator()
        for broker_id in range(BROKERS):
            cluster.broker(broker_id).start_nowait()
        for broker_id in range(BROKERS):
            cluster.broker(broker_id).wait_ready()
