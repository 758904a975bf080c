"""Brokers that end while nobody is there to take their leaderships: soon, cleanly, and with one warning."""

from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from kalda.testing import ProcessCluster
from tests.integration.clients.clients import ConfluentClient, Message
from tests.integration.cluster.helpers import create_topic

TOPIC = "led"
BROKERS = 3
PARTITIONS = 6

END_SECONDS_MAX = 25.0
"""Brokers took 30 s and more when they waited for what could not come; without load they take 2 s."""

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ProcessCluster]:
    """A cluster with records in partitions that all brokers replicate."""
    with ProcessCluster(tmp_path, brokers=BROKERS) as cluster:
        create_topic(cluster.bootstrap, TOPIC, partitions=PARTITIONS)
        ConfluentClient(cluster.bootstrap).produce(TOPIC, [Message(None, b"x")] * 100)
        yield cluster


def controller_id(cluster: ProcessCluster) -> int:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster.bootstrap})
    return int(admin.list_topics(timeout=60).controller_id)


def check_ended_cleanly(cluster: ProcessCluster, broker_id: int, reason: str) -> None:
    """The broker marked its logs as clean, and warned once of the partitions that it led to the end."""
    assert (cluster.log_directories[broker_id] / ".kafka_cleanshutdown").exists()
    lines = cluster.broker(broker_id).log().splitlines()
    warnings = [line for line in lines if "stops while it leads" in line]
    assert 1 == len(warnings)
    assert reason in warnings[0]


def test_everything_stops_at_the_same_moment(cluster: ProcessCluster) -> None:
    """As when a machine shuts down: coordination is gone first, and nobody can move a leadership."""
    cluster.stop_all(END_SECONDS_MAX)
    for broker_id in range(BROKERS):
        check_ended_cleanly(cluster, broker_id, "ZooKeeper has not answered")
    cluster.start_coordinator()
    for broker_id in range(BROKERS):
        cluster.broker(broker_id).start_nowait()
    for broker_id in range(BROKERS):
        cluster.broker(broker_id).wait_ready()
    assert 100 == len(ConfluentClient(cluster.bootstrap).consume(TOPIC, 100))


def test_brokers_stop_while_coordination_is_paused(cluster: ProcessCluster) -> None:
    """Its sessions seem to last, as nothing is heard of their end."""
    cluster.pause_coordinator()
    for broker_id in range(BROKERS):
        cluster.broker(broker_id).stop_nowait()
    for broker_id in range(BROKERS):
        cluster.broker(broker_id).wait_stopped(END_SECONDS_MAX)
        check_ended_cleanly(cluster, broker_id, "ZooKeeper has not answered")


def test_brokers_stop_while_the_controller_is_paused(cluster: ProcessCluster) -> None:
    """The kernel accepts connections for it; no answer ever comes."""
    controller = controller_id(cluster)
    cluster.pause(controller)
    others = [broker_id for broker_id in range(BROKERS) if broker_id != controller]
    for broker_id in others:
        cluster.broker(broker_id).stop_nowait()
    for broker_id in others:
        cluster.broker(broker_id).wait_stopped(END_SECONDS_MAX)
        check_ended_cleanly(cluster, broker_id, f"controller {controller} at ")


def test_the_last_broker_of_a_cluster_names_what_it_leads(cluster: ProcessCluster) -> None:
    for broker_id in range(BROKERS):
        cluster.stop(broker_id, END_SECONDS_MAX)
    check_ended_cleanly(cluster, BROKERS - 1, "no other broker is left")
    log = "".join(cluster.broker(broker_id).log() for broker_id in range(BROKERS - 1))
    assert "stops while it leads" not in log
