"""Clusters that a session keeps ready."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kalda.common.config_def import ConfigError
from kalda.testing.cluster_pool import READY_MAX, SHARED_MAX, ClusterPool, PoolClosedError
from kalda.testing.kafka import KafkaCluster
from kalda.testing.kafka_mark import ClusterSpec

WAIT_SECONDS = 60
WRONG = ClusterSpec(settings=(("num.partitons", "3"),))


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterPool]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    pool = ClusterPool()
    yield pool
    pool.close()
    assert [] == list(tmp_path.iterdir())


def spec(number: int) -> ClusterSpec:
    return ClusterSpec(settings=(("num.partitions", str(number)),))


def wait_ended(cluster: KafkaCluster) -> None:
    cluster.wait_until(lambda: not cluster.running and not cluster.directory.exists())


def wait_live(pool: ClusterPool, count: int) -> None:
    """Return when so many clusters live and nothing is left to do."""
    deadline = time.monotonic() + WAIT_SECONDS
    while count != len(pool._live) or pool._jobs:
        assert time.monotonic() < deadline, f"{len(pool._live)} clusters live"
        time.sleep(0.01)


def test_tests_share_a_cluster_by_its_spec(pool: ClusterPool) -> None:
    pool.prepare_shared(spec(1))
    one, same, other = pool.lease(spec(1)), pool.lease(spec(1)), pool.lease(spec(2))

    assert one is same
    assert one is not other
    for cluster in (one, same, other):
        pool.release(cluster)
    assert one is pool.lease(spec(1))
    pool.release(one)


def test_a_cluster_of_one_test_is_new_and_ends_with_it(pool: ClusterPool) -> None:
    pool.prepare_fresh(spec(1))
    one, other = pool.take(spec(1)), pool.take(spec(1))

    assert one is not other
    pool.give_back(one)
    wait_ended(one)
    assert [0] == other.running
    pool.give_back(other)


def test_clusters_that_nobody_takes_are_few(pool: ClusterPool) -> None:
    for number in range(1, 8):
        pool.prepare_fresh(spec(number))
    pool.give_back(pool.take(spec(7)))
    wait_live(pool, READY_MAX - 1)


def test_shared_clusters_that_no_test_uses_are_few(pool: ClusterPool) -> None:
    """Each test of a suite may have another mark."""
    used = pool.lease(spec(1))
    clusters = []
    for number in range(2, SHARED_MAX + 4):
        cluster = pool.lease(spec(number))
        pool.release(cluster)
        clusters.append(cluster)
    wait_live(pool, SHARED_MAX + 1)
    assert [0] == used.running
    assert [] == clusters[0].running
    pool.release(used)


def test_a_discarded_cluster_ends_when_its_last_test_has(pool: ClusterPool) -> None:
    broken, same = pool.lease(spec(1)), pool.lease(spec(1))
    pool.discard(spec(1))
    other = pool.lease(spec(1))

    assert broken is not other
    pool.release(broken)
    assert [0] == same.running
    pool.release(same)
    wait_ended(broken)
    pool.release(other)


def test_a_cluster_that_does_not_start_is_an_error_of_each_test(pool: ClusterPool) -> None:
    pool.prepare_shared(WRONG)
    for _ in range(2):
        with pytest.raises(ConfigError, match="partitons"):
            pool.lease(WRONG)
        with pytest.raises(ConfigError, match="partitons"):
            pool.take(WRONG)


def test_a_session_that_is_over_has_no_clusters(pool: ClusterPool) -> None:
    cluster = pool.lease(spec(1))
    pool.close()

    assert [] == cluster.running
    with pytest.raises(PoolClosedError):
        pool.lease(spec(1))
    with pytest.raises(PoolClosedError):
        pool.take(spec(1))
    pool.close()
