"""Processes as an operator meets them: parents with brokers, deaths, coordination that is away."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import confluent_kafka
import psutil
import pytest

from kalda.testing import BrokerProcess, KaldaProcess, KaldaProcessError, ProcessCluster, ZooKeeperProcess
from tests.integration.clients.clients import ConfluentClient, Message
from tests.integration.cluster.helpers import create_topic, leaders, wait_until

FAST_SESSION = {"zookeeper.session.timeout.ms": "4000"}


def children(kalda: KaldaProcess) -> dict[int, psutil.Process]:
    """The broker processes of a parent, by id."""
    found = {}
    for process in psutil.Process(kalda.pid).children():
        match = re.search(r"broker\.id=(\d+)", " ".join(process.cmdline()))
        assert match is not None
        found[int(match[1])] = process
    return found


def test_three_brokers_serve_one_cluster_and_end_with_their_parent(tmp_path: Path) -> None:
    """The design's `kalda start --brokers N`: ports in a row, one line when all serve, exit 0, clean logs."""
    with KaldaProcess(tmp_path / "data", brokers=3) as kalda:
        ports = [int(address.rpartition(":")[2]) for address in kalda.bootstrap.split(",")]
        assert [ports[0], ports[0] + 1, ports[0] + 2] == ports
        host, _, port = kalda.zookeeper.partition(":")
        socket.create_connection((host, int(port))).close()
        client = ConfluentClient(kalda.bootstrap)
        create_topic(kalda.bootstrap, "spread", partitions=3)
        client.produce("spread", [Message(None, b"%d" % number) for number in range(100)])
        processes = children(kalda)
        assert {0, 1, 2} == processes.keys()
        for broker_id, process in processes.items():
            assert f"{process.pid}\n" == (tmp_path / "data" / f"broker-{broker_id}" / "pid").read_text()
    assert not any(process.is_running() for process in processes.values())
    for broker_id in range(3):
        assert (tmp_path / "data" / f"broker-{broker_id}" / ".kafka_cleanshutdown").exists()


def test_a_killed_parent_leaves_no_orphans(tmp_path: Path) -> None:
    """Brokers without coordination that nobody knows of would hold ports and directories."""
    kalda = KaldaProcess(tmp_path / "data", brokers=2)
    kalda.start()
    processes = list(children(kalda).values())
    kalda.kill()
    # At once: the children of before may still be about to end.
    with kalda:
        assert 2 == len(kalda.bootstrap.split(","))
        assert [] == psutil.wait_procs(processes, timeout=60)[1]


def test_a_broker_that_dies_is_reported_and_the_others_serve_on(tmp_path: Path) -> None:
    """The parent knows at once, so nobody waits for the dead broker's session of 40 seconds."""
    settings = {"zookeeper.session.timeout.ms": "40000"}
    with KaldaProcess(tmp_path / "data", brokers=2, settings=settings) as kalda:
        create_topic(kalda.bootstrap, "led", replicas=2)
        leader = leaders(kalda.bootstrap, "led")[0]
        children(kalda)[leader].kill()
        wait_until(lambda: f"broker {leader} ended with exit code -9" in kalda.log())
        wait_until(lambda: leaders(kalda.bootstrap, "led")[0] == 1 - leader, seconds=30)
        ConfluentClient(kalda.bootstrap).produce("led", [Message(None, b"here")])
        assert kalda.is_running
        with pytest.raises(KaldaProcessError, match="exit code 1"):
            kalda.stop()


def test_a_parent_ends_when_no_broker_is_left(tmp_path: Path) -> None:
    kalda = KaldaProcess(tmp_path / "data", brokers=2)
    kalda.start()
    for process in children(kalda).values():
        process.kill()
    try:
        wait_until(lambda: not kalda.is_running)
    finally:
        kalda.kill()
    assert "no broker is left" in kalda.log()


def test_a_broker_without_coordination_says_so(tmp_path: Path) -> None:
    """At the start it gives up after its time-out, with one line that names the setting."""
    settings = {"zookeeper.connection.timeout.ms": "300"}
    with socket.create_server(("127.0.0.1", 0)) as silent:
        broker = BrokerProcess(
            1, tmp_path / "broker", f"127.0.0.1:{silent.getsockname()[1]}", settings=settings
        )
        with pytest.raises(KaldaProcessError) as caught:
            broker.start()
    assert "exit code 1" in str(caught.value)
    assert "zookeeper.connection.timeout.ms" in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_an_id_in_use_is_refused(tmp_path: Path) -> None:
    """Whoever asks for it waits as long as a session of its own would last; the first one's lasts longer."""
    with (
        ZooKeeperProcess(tmp_path / "zookeeper") as zookeeper,
        BrokerProcess(1, tmp_path / "one", zookeeper.zookeeper),
    ):
        settings = {"zookeeper.session.timeout.ms": "1000"}
        second = BrokerProcess(1, tmp_path / "two", zookeeper.zookeeper, settings=settings)
        with pytest.raises(KaldaProcessError, match="broker id 1 is in use"):
            second.start()


def test_a_generated_id_is_kept(tmp_path: Path) -> None:
    """`--id` left out: above reserved.broker.max.id, and the same at the next start."""
    with ZooKeeperProcess(tmp_path / "zookeeper") as zookeeper:
        for _ in range(2):
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "kalda.cli", "broker", "--dir", str(tmp_path / "broker")),
                    *("--port", "0", "--zookeeper", zookeeper.zookeeper),
                ],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            assert process.stdout is not None
            assert process.stdout.readline().startswith(b"kalda ready bootstrap=")
            process.send_signal(signal.SIGTERM)
            assert 0 == process.wait(60)
            process.stdout.close()
            assert "broker.id=1001\n" in (tmp_path / "broker" / "meta.properties").read_text()


def test_two_signals_in_a_row_still_end_with_a_clean_log(tmp_path: Path) -> None:
    """The second one hurries; it must not turn a shutdown into a crash."""
    with ProcessCluster(tmp_path, brokers=2) as cluster:
        ConfluentClient(cluster.bootstrap).produce("kept", [Message(None, b"value")])
        pid = cluster.broker(0).pid
        os.kill(pid, signal.SIGTERM)
        cluster.stop(0)
        assert (cluster.log_directories[0] / ".kafka_cleanshutdown").exists()


def test_a_zookeeper_process_keeps_what_it_was_told(tmp_path: Path) -> None:
    """kill -9 of the coordination server loses nothing, and the brokers find it again."""
    with ProcessCluster(tmp_path, brokers=2, settings=FAST_SESSION) as cluster:
        create_topic(cluster.bootstrap, "before", replicas=2)
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        cluster.kill_coordinator()
        producer.produce("before", b"without coordination")
        assert 0 == producer.flush(10)
        cluster.start_coordinator()
        create_topic(cluster.bootstrap, "after", replicas=2)
        producer.produce("after", b"with it again")
        assert 0 == producer.flush(10)
        client = ConfluentClient(cluster.bootstrap)
        assert [b"without coordination"] == [each.value for each in client.consume("before", 1)]
