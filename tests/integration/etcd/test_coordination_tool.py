"""`kalda coordination` with real engines and brokers: there and back, killed on the way."""

import os
import subprocess
from pathlib import Path

import pytest

from kalda import Admin, Consumer, NewTopic, Producer
from kalda.command.examples import EXAMPLES
from kalda.testing.process import KaldaProcess, KaldaProcessError
from kalda.testing.process_cluster import BrokerProcess, ZooKeeperProcess
from tests import forked_commands
from tests.integration.etcd_servers import EtcdCluster
from tests.integration.etcd_servers import etcd_server as etcd_server
from tests.integration.tools.commands import KALDA, Commands, Done


def tool(*words: str | Path) -> Done:
    """Run `kalda coordination` to its end."""
    return Commands("").run("coordination", *words)


def kill_at(step: int, *words: str) -> None:
    """Run it, and kill it when it has announced so many steps; one that goes on has fewer, and may end."""
    with forked_commands.Popen(
        [*KALDA, "coordination", *words], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=os.environ
    ) as process:
        assert process.stderr is not None
        for _ in range(step):
            process.stderr.readline()
        process.kill()


def right(*words: str) -> str:
    found = tool("status", *words, "--json")
    assert 0 == found.code, found.stderr
    return str(found.json["right"])


def values(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    with Consumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        found: list[bytes | None] = []
        while len(found) < count:
            found += [record.value for record in consumer.poll(30)]
        return found


def test_embedded_to_etcd_and_back_killed_on_the_way(etcd_server: EtcdCluster, tmp_path: Path) -> None:
    """The data, the topics and their settings follow; brokers never start on the wrong engine."""
    directory = tmp_path / "data"
    address = f"etcd://{etcd_server.hosts}/moved-{tmp_path.name}"
    source = f"embedded:{directory}"
    with KaldaProcess(directory) as kalda:
        with Admin(bootstrap_servers=kalda.bootstrap) as admin:
            admin.create_topics([NewTopic("orders", partitions=3)])
        with Producer(bootstrap_servers=kalda.bootstrap) as producer:
            for number in range(30):
                producer.send("orders", b"%d" % number)
        refused = tool("migrate", source, address)
        assert (1, True) == (refused.code, "is for a stopped cluster" in refused.stderr)
        kalda.stop()
    for step in (2, 2, 3, 4):
        kill_at(step, "migrate", source, address)
        assert right(source, address) in (source, address)
    done = tool("migrate", source, address)
    assert (0, address) == (done.code, right(source, address)), done.stderr
    stale = KaldaProcess(directory)
    with pytest.raises(KaldaProcessError, match="has moved from"), stale:
        pass
    with BrokerProcess(0, directory / "broker-0", address) as broker:
        assert sorted(b"%d" % number for number in range(30)) == sorted(
            each or b"" for each in values(broker.bootstrap, "orders", 30)
        )
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            admin.create_topics([NewTopic("later", partitions=1)])
        broker.stop()
    for step in (2, 4):
        kill_at(step, "back", source, address)
        assert right(source, address) in (source, address)
    done = tool("back", source, address)
    assert (0, source) == (done.code, right(source, address)), done.stderr
    with KaldaProcess(directory) as kalda, Admin(bootstrap_servers=kalda.bootstrap) as admin:
        assert {"orders", "later"} <= set(admin.list_topics())
        assert 30 == len(values(kalda.bootstrap, "orders", 30))


def test_examples_move_a_cluster_from_zookeeper_to_etcd(etcd_server: EtcdCluster, tmp_path: Path) -> None:
    """In the order of their use: copy ahead while the cluster runs, migrate, ask, go back."""
    with ZooKeeperProcess(tmp_path / "zookeeper") as coordinator:
        addresses = {
            "zookeeper://zk1:2181": f"zookeeper://{coordinator.zookeeper}",
            "etcd://h1:2379,h2:2379,h3:2379": f"etcd://{etcd_server.hosts}/examples-{tmp_path.name}",
            "embedded:/var/lib/kalda": f"embedded:{tmp_path / 'embedded'}",
        }

        def run(verb: str, *, code: int = 0) -> Done:
            (line,) = EXAMPLES[f"coordination {verb}"]
            words = line.removeprefix("kalda coordination ").split()
            found = tool(*(addresses.get(word, word) for word in words))
            assert code == found.code, (line, found)
            return found

        zookeeper = addresses["zookeeper://zk1:2181"]
        with BrokerProcess(0, tmp_path / "broker", zookeeper) as broker:
            run("copy")
            assert "brokers 0 are registered" in run("migrate", code=1).stderr
            broker.stop()
        assert "the cluster is at etcd://" in run("migrate").stdout
        assert "right: etcd://" in run("status").stdout
        assert "the cluster is at zookeeper://" in run("back").stdout
        with BrokerProcess(0, tmp_path / "broker", zookeeper) as broker:
            broker.stop()


def test_addresses_that_name_no_engine_are_refused(tmp_path: Path) -> None:
    assert 2 == tool("status", "h1:2379", "embedded:x").code
    assert 2 == tool("status", "embedded:x", f"embedded:{Path('x').resolve()}").code
    missing = tool("migrate", f"embedded:{tmp_path}", f"embedded:{tmp_path / 'other'}")
    assert (1, True) == (missing.code, "has no data of a coordination server" in missing.stderr)
