"""A plan of faults in a cluster of processes: signals, and what the brokers do themselves."""

import threading
from pathlib import Path

import pytest

import kalda
from kalda.faults import FaultError
from kalda.testing import ProcessCluster


def test_processes_have_the_faults_of_a_plan(tmp_path: Path) -> None:
    settings = {"kalda.faults.api.enable": "true"}
    with ProcessCluster(tmp_path, brokers=2, settings=settings) as cluster:
        with kalda.Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([kalda.NewTopic("orders", 1, 2)])
        cluster.apply_faults("produce:NOT_LEADER*1,topic=orders; broker:pause@1,for=300ms")
        with kalda.Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
            producer.send("orders", value=b"x").result(60)
        assert [1] == cluster.faults_applied()
        cluster.clear_faults()
        assert [] == cluster.faults_applied()
        cluster.apply_faults("broker:kill@1,for=10ms")
        for _ in range(1200):
            if cluster.broker(1).is_running:
                break
            threading.Event().wait(0.05)
        assert cluster.broker(1).is_running
        for wrong in ("disk:full@0", "link:cut@0-1", "session:expire@0"):
            with pytest.raises(FaultError, match="processes cannot have this fault"):
                cluster.apply_faults(wrong)
