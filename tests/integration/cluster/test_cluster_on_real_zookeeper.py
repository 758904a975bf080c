"""The same brokers over Apache ZooKeeper 3.9: they cannot tell it from our coordination server."""

from pathlib import Path

import pytest

from kalda.testing import ProcessCluster
from tests.integration.clients.clients import ConfluentClient, Message
from tests.integration.cluster.helpers import create_topic, leaders, wait_until
from tests.integration.real_zookeeper import RealZooKeeper, missing


@pytest.mark.skipif(missing() is not None, reason=missing() or "")
def test_a_leader_killed_and_one_shut_down(tmp_path: Path) -> None:
    settings = {"min.insync.replicas": "2", "zookeeper.session.timeout.ms": "4000"}
    with (
        RealZooKeeper(tmp_path / "zookeeper") as zookeeper,
        ProcessCluster(
            tmp_path, brokers=3, settings=settings, zookeeper=f"{zookeeper.hosts}/kalda"
        ) as cluster,
    ):
        create_topic(cluster.bootstrap, "t")
        client = ConfluentClient(cluster.bootstrap)
        client.produce("t", [Message(None, b"first")])
        killed = leaders(cluster.bootstrap, "t")[0]
        cluster.kill(killed)
        wait_until(lambda: leaders(cluster.bootstrap, "t")[0] not in (killed, -1))
        client.produce("t", [Message(None, b"second")])
        cluster.start(killed)
        cluster.restart(leaders(cluster.bootstrap, "t")[0])
        client.produce("t", [Message(None, b"third")])
        assert [b"first", b"second", b"third"] == [each.value for each in client.consume("t", 3)]
