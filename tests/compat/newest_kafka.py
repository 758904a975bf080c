"""Clusters of three brokers, of Kalda and of the newest Apache Kafka, for the same checks of Java's tools."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.apache_kafka import maven_jars
from benchmarks.apache_kafka_cluster import ApacheKafkaCluster
from kalda.testing import ProcessCluster
from tests.compat.java_releases import JavaRelease

NEWEST: Final = "4.4.0"
KALDA: Final = "kalda"
APACHE: Final = f"apache-{NEWEST}"
TARGETS: Final = (KALDA, APACHE)

_TOOLS: Final = "org.apache.kafka.tools"
_ANYBODY: Final = {"super.users": "User:ANONYMOUS"}
_AUTHORIZERS: Final = {
    KALDA: "kafka.security.authorizer.AclAuthorizer",
    APACHE: "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
}


@dataclass(frozen=True)
class Site:
    """A running cluster and the tools of the newest release."""

    name: str
    bootstrap: str
    release: JavaRelease

    @property
    def is_kalda(self) -> bool:
        """Whether Kalda's brokers serve it."""
        return self.name == KALDA

    def tool(self, name: str, *arguments: str, text: str = "") -> str:
        """Run a tool against the cluster; return what it printed."""
        return self.release.run(
            f"{_TOOLS}.{name}", "--bootstrap-server", self.bootstrap, *arguments, text=text
        )

    def run(self, name: str, *arguments: str) -> str:
        """Run a tool that names its server in another way."""
        return self.release.run(f"{_TOOLS}.{name}", *arguments)

    def create_topic(self, name: str, *arguments: str) -> None:
        """Create a topic, of 3 partitions with 2 replicas unless the arguments say otherwise."""
        counts = () if arguments else ("--partitions", "3", "--replication-factor", "2")
        self.tool("TopicCommand", "--create", "--topic", name, *counts, *arguments)

    def produce(self, topic: str, lines: list[str]) -> None:
        """Write lines with the console producer."""
        self.tool("ConsoleProducer", "--topic", topic, text="".join(f"{line}\n" for line in lines))

    def consume(self, topic: str, count: int, *arguments: str) -> list[str]:
        """Read as many lines with the console consumer, from the beginning."""
        read = self.tool(
            "consumer.ConsoleConsumer",
            *("--topic", topic, "--from-beginning", "--max-messages", str(count)),
            *("--timeout-ms", "60000", *arguments),
        )
        return read.splitlines()


@contextmanager
def running(name: str, directory: Path) -> Iterator[Site]:
    """Run a cluster of `TARGETS`.

    Raises:
        NotAvailableError: Java, Maven or a jar is missing.
    """
    release = JavaRelease(NEWEST)
    settings = {"authorizer.class.name": _AUTHORIZERS[name], **_ANYBODY, "auto.create.topics.enable": "false"}
    if name == KALDA:
        with ProcessCluster(directory, brokers=3, settings=settings) as kalda:
            yield Site(name, kalda.bootstrap, release)
    else:
        with ApacheKafkaCluster(version=NEWEST, settings=settings, heap="512m") as apache:
            yield Site(name, apache.bootstrap, release)


def streams_jars() -> Path:
    """Return the directory of the jars of Kafka Streams.

    Raises:
        NotAvailableError: they cannot be had.
    """
    return maven_jars(
        f"kafka-streams-{NEWEST}",
        (f"org.apache.kafka:kafka-streams:{NEWEST}", "org.slf4j:slf4j-nop:1.7.36"),
    )
