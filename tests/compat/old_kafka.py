"""Brokers of old releases of Apache Kafka, which run on Kalda's coordination server."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.apache_kafka import (
    NotAvailableError,
    free_ports,
    maven_jars,
    stop_process,
    wait_accepting,
)
from kalda.testing.process_cluster import ZooKeeperProcess

# The ZooKeeper clients of Kafka 0.10 and 2.1 do not work on Java 17, which has no javax.xml.bind either.
ZOOKEEPER = "org.apache.zookeeper:zookeeper:3.5.7"
RELEASES = {
    "0.10.2.2": ("org.apache.kafka:kafka_2.12:0.10.2.2", ZOOKEEPER, "javax.xml.bind:jaxb-api:2.3.1"),
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
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


@dataclass(frozen=True, slots=True)
class OldKafka:
    """The addresses of one broker and of its ZooKeeper."""

    bootstrap: str
    zookeeper: str


@contextmanager
def old_kafka(version: str, directory: Path) -> Iterator[OldKafka]:
    """Run a broker of a release.

    Raises:
        NotAvailableError: there is no Java, or the jars cannot be had.
    """
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
            yield OldKafka(f"127.0.0.1:{port}", f"127.0.0.1:{zookeeper_port}")
        finally:
            stop_process(process)
