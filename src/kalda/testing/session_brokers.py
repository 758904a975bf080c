"""The brokers of one test session: its clusters, what they log, and what its tests have of them now."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from kalda.testing.broker_logs import BrokerLogs
from kalda.testing.cluster_pool import ClusterPool
from kalda.testing.cluster_threads import ClusterError
from kalda.testing.failure_report import report_of
from kalda.testing.kafka import Kafka, KafkaCluster, KafkaFacilities, RunningTest
from kalda.testing.kafka_mark import ClusterSpec

_F = TypeVar("_F", bound=KafkaFacilities)


class _InUse:
    """What a test has, and what its report needs."""

    def __init__(self, facilities: KafkaFacilities, cluster: KafkaCluster) -> None:
        self.facilities: Final = facilities
        self.cluster: Final = cluster
        self.begun_at: Final = time.time()


class SessionBrokers:
    """Gives tests what their marks ask for; in each worker of pytest-xdist there is one."""

    def __init__(self) -> None:
        self.logs: Final = BrokerLogs()
        """What the brokers log."""
        self._pool: Final = ClusterPool()
        self._in_use: Final[list[_InUse]] = []
        self.logs.install()

    def prepare_kafka(self, spec: ClusterSpec) -> None:
        """Start the shared cluster of a test that will come, in the background."""
        self._pool.prepare_shared(spec)

    def prepare_cluster(self, spec: ClusterSpec) -> None:
        """Start a cluster for a test that will come, in the background."""
        self._pool.prepare_fresh(spec)

    @contextmanager
    def kafka_for(self, spec: ClusterSpec, test: RunningTest | None = None) -> Iterator[Kafka]:
        """Give what a spec asks for, for the block: a namespace of a shared cluster."""
        cluster = self._pool.lease(spec)
        try:
            with (
                cluster.namespace() as namespace,
                self._used(Kafka(namespace, spec.brokers), cluster, test) as kafka,
            ):
                yield kafka
            cluster.check()
        except ClusterError:
            # The tests that follow get another one.
            self._pool.discard(spec)
            raise
        finally:
            self._pool.release(cluster)

    @contextmanager
    def cluster_for(self, spec: ClusterSpec, test: RunningTest | None = None) -> Iterator[KafkaCluster]:
        """Give what a spec asks for, for the block."""
        cluster = self._pool.take(spec)
        try:
            with self._used(cluster, cluster, test):
                yield cluster
            cluster.check()
        finally:
            self._pool.give_back(cluster)

    def reports(self) -> list[str]:
        """Return a report of each `Kafka` and `KafkaCluster` that is in use, the newest first."""
        return [
            report_of(each.facilities, self.logs.of(each.cluster, each.begun_at))
            for each in reversed(self._in_use)
        ]

    def close(self) -> None:
        """End all clusters."""
        try:
            self._pool.close()
        finally:
            self.logs.remove()

    @contextmanager
    def _used(self, facilities: _F, cluster: KafkaCluster, test: RunningTest | None) -> Iterator[_F]:
        facilities._begin(test or RunningTest())
        used = _InUse(facilities, cluster)
        self._in_use.append(used)
        try:
            yield facilities
        finally:
            self._in_use.remove(used)
            facilities._end()
