"""Our admin client with old releases of Apache Kafka, which run on Kalda's coordination server."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.apache_kafka import (
    NotAvailableError,
    free_ports,
    maven_jars,
    stop_process,
    wait_accepting,
)
from kalda import Admin, AlterConfigOp, ConfigResource, NewTopic, OffsetSpec, TopicPartition
from kalda.clients.errors import UnsupportedApiError
from kalda.testing.process_cluster import ZooKeeperProcess

# Kafka 2.1's own ZooKeeper client does not work on Java 17.
ZOOKEEPER = "org.apache.zookeeper:zookeeper:3.5.7"
RELEASES = {
    "2.1.1": ("org.apache.kafka:kafka_2.12:2.1.1", ZOOKEEPER),
    "2.8.2": ("org.apache.kafka:kafka_2.13:2.8.2",),
}
PROPERTIES = """\
broker.id=0
listeners=PLAINTEXT://127.0.0.1:{port}
zookeeper.connect=127.0.0.1:{zookeeper_port}
log.dirs={directory}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=3
"""


@contextmanager
def old_kafka(version: str, directory: Path) -> Iterator[str]:
    java = shutil.which("java")
    if java is None:
        raise NotAvailableError("Apache Kafka needs Java and there is no 'java' on the PATH")
    jars = maven_jars(f"kafka-{version}-zookeeper", RELEASES[version])
    port, zookeeper_port = free_ports(2)
    properties, log_path = directory / "server.properties", directory / "broker.log"
    properties.write_text(PROPERTIES.format(port=port, zookeeper_port=zookeeper_port, directory=directory))
    with ZooKeeperProcess(directory / "zookeeper", port=zookeeper_port), log_path.open("wb") as log:
        command = [java, "-Xmx400m", "-cp", f"{jars}/*", "kafka.Kafka", str(properties)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        try:
            wait_accepting(process, port, time.monotonic() + 60, log_path)
            yield f"127.0.0.1:{port}"
        finally:
            stop_process(process)


@pytest.fixture(params=RELEASES)
def admin(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Admin]:
    try:
        with (
            old_kafka(request.param, tmp_path) as bootstrap,
            Admin(bootstrap_servers=bootstrap, default_api_timeout_ms=20_000) as client,
        ):
            yield client
    except NotAvailableError as error:
        pytest.skip(str(error))


def test_topics_settings_groups_and_offsets_are_administered(admin: Admin) -> None:
    """Requests in their old versions, and what replaces those that did not exist."""
    admin.create_topics([NewTopic("t", 2, 1, config={"retention.ms": 5_000_000})]).raise_for_errors()
    first, topic = TopicPartition("t", 0), ConfigResource.topic("t")

    cluster = admin.describe_cluster()
    assert [0] == [node.id for node in cluster.nodes]
    assert {"t"} == admin.list_topics().keys()
    admin.create_partitions({"t": 3}).raise_for_errors()
    assert 3 == len(admin.describe_topics(["t"])["t"].partitions)

    admin.incremental_alter_configs({topic: [AlterConfigOp.set("segment.ms", 100_000)]}).raise_for_errors()
    own = {
        name: entry.value
        for name, entry in admin.describe_configs([topic])[topic].items()
        if not entry.is_default
    }
    assert {"retention.ms": "5000000", "segment.ms": "100000"} == own

    admin.alter_consumer_group_offsets({"g": {first: 0}, "h": {first: 0}}).raise_for_errors()
    offsets = admin.list_consumer_group_offsets(["g", "h", "missing"])
    assert [{first}, {first}, set()] == [set(each) for each in offsets.values()]
    assert ["g", "h"] == [each.group_id for each in admin.list_consumer_groups().all()]
    assert 0 == admin.describe_consumer_groups(["g"])["g"].coordinator_id
    admin.delete_consumer_groups(["g", "h"]).raise_for_errors()

    assert 0 == admin.list_offsets({first: OffsetSpec.latest()})[first].offset
    assert 0 == admin.delete_records({first: -1})[first].low_watermark
    assert [0] == list(admin.describe_log_dirs().results)
    with pytest.raises(UnsupportedApiError, match=r"brokers before 3\.0"):
        admin.list_offsets({first: OffsetSpec.max_timestamp()})[first]
    with pytest.raises(UnsupportedApiError, match="offers no version of ListTransactions"):
        admin.list_transactions().all()
    admin.delete_topics(["t"]).raise_for_errors()
