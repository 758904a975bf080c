"""Holds the brokers of one test session: its clusters, their logs, and the tests' present use of them."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from kalda.faults import FaultPlan
from kalda.testing.broker_logs import BrokerLogs
from kalda.testing.cluster_pool import ClusterPool
from kalda.testing.cluster_threads import ClusterError
from kalda.testing.failure_report import report_of
from kalda.testing.kafka import Kafka, KafkaCluster, KafkaFacilities, RunningTest
from kalda.testing.kafka_mark import KafkaMark

_REPORTS_MAX: Final = 3
"""How many reports a failed test has at most; each may take some seconds where brokers are down."""

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

    def prepare_kafka(self, mark: KafkaMark) -> None:
        """Start the shared cluster of a test that will come, in the background."""
        if mark.faults is None:
            self._pool.prepare_shared(mark.cluster)
        else:
            self._pool.prepare_fresh(mark.cluster)

    def prepare_cluster(self, mark: KafkaMark) -> None:
        """Start a cluster for a test that will come, in the background."""
        self._pool.prepare_fresh(mark.cluster)

    @contextmanager
    def kafka_for(self, mark: KafkaMark, test: RunningTest | None = None) -> Iterator[Kafka]:
        """Give what a mark asks for, for the block: a namespace of a shared cluster.

        With faults it is a cluster of its own, so that no other test meets them.
        """
        if mark.faults is not None:
            with self._own(mark) as cluster, self._used(Kafka(cluster, cluster.size), cluster, test) as kafka:
                yield kafka
            return
        cluster = self._pool.lease(mark.cluster)
        try:
            with (
                cluster.namespace() as namespace,
                self._used(Kafka(namespace, cluster.size), cluster, test) as kafka,
            ):
                yield kafka
            cluster.check()
        except ClusterError:
            # The tests that follow get another one.
            self._pool.discard(mark.cluster)
            raise
        finally:
            self._pool.release(cluster)

    @contextmanager
    def cluster_for(self, mark: KafkaMark, test: RunningTest | None = None) -> Iterator[KafkaCluster]:
        """Give what a mark asks for, for the block: brokers of its own."""
        with self._own(mark) as cluster, self._used(cluster, cluster, test):
            yield cluster

    @contextmanager
    def _own(self, mark: KafkaMark) -> Iterator[KafkaCluster]:
        plan = None if mark.faults is None else FaultPlan.parse(mark.faults)
        cluster = self._pool.take(mark.cluster)
        try:
            if plan is not None:
                cluster.apply_faults(plan)
            yield cluster
            cluster.check()
        finally:
            self._pool.give_back(cluster)

    def reports(self) -> list[str]:
        """Return reports of what is in use, the newest first; it may be of fixtures of wider scopes."""
        newest = self._in_use[: -_REPORTS_MAX - 1 : -1]
        return [report_of(each.facilities, self.logs.of(each.cluster, each.begun_at)) for each in newest]

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
