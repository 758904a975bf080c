"""Runs the clients and tools of old releases of Apache Kafka, each from its own jars."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.apache_kafka import maven_jars

RELEASES: Final = ("0.8.2.2", "0.10.2.2", "1.1.1", "2.8.2", "3.9.1", "4.1.1", "4.4.0")
"""The last ones of the lines that other documents name; all of them run on the same Java."""

_SECONDS: Final = 120


class JavaRelease:
    """The command-line programs of one release, run with these options of the JVM.

    Raises:
        NotAvailableError: the jars cannot be fetched.
    """

    def __init__(self, name: str, options: Sequence[str] = ()) -> None:
        self.name: Final = name
        self._options: Final = ("-XX:TieredStopAtLevel=1", "-Xmx256m", *options)
        self.number: Final = tuple(map(int, name.split(".")))
        scala = "2.11" if self.number < (1,) else "2.12" if self.number < (2,) else "2.13"
        artifacts = [f"org.apache.kafka:kafka_{scala}:{name}"]
        if self.number >= (3, 9):
            artifacts.append(f"org.apache.kafka:kafka-tools:{name}")
        self._jars: Final = maven_jars(f"console-{name}", (*artifacts, "org.slf4j:slf4j-nop:1.7.36"))

    @property
    def has_old_clients(self) -> bool:
        """Whether the Scala clients are there: the consumer of ZooKeeper and the first producer."""
        return self.number < (2,)

    @property
    def has_new_consumer(self) -> bool:
        """Whether groups are coordinated by brokers."""
        return self.number >= (0, 9)

    @property
    def config_command(self) -> str:
        """The main class of ``kafka-configs.sh``."""
        return f"{'org.apache.kafka.tools' if self.number >= (4, 4) else 'kafka.admin'}.ConfigCommand"

    def config_option(self, client: str) -> str:
        """Return the option of a console client that names its file of settings (KIP-1147)."""
        return "--command-config" if self.number >= (4, 2) else f"--{client}.config"

    @property
    def has_zookeeper_tools(self) -> bool:
        """Whether the tools write znodes themselves."""
        return self.number < (3,)

    def command(self, main_class: str, *arguments: str) -> list[str]:
        """Return the command that runs a main class."""
        return ["java", *self._options, "-cp", f"{self._jars}/*", main_class, *arguments]

    def run(self, main_class: str, *arguments: str, text: str = "") -> str:
        """Run a main class; return its output, both streams if it failed."""
        done = subprocess.run(
            self.command(main_class, *arguments),
            input=text,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        assert 0 == done.returncode, f"{self.name} {main_class}: {done.stdout}{done.stderr}"
        return done.stdout

    def produce(
        self, bootstrap: str, topic: str, codec: str, lines: Sequence[str], *, by_old: bool = False
    ) -> None:
        """Produce lines with the console producer."""
        package = "org.apache.kafka.tools" if self.number >= (4,) else "kafka.tools"
        server = "--bootstrap-server" if self.number >= (2, 5) else "--broker-list"
        choice: tuple[str, ...] = ()
        if self.number < (0, 9):
            choice = () if by_old else ("--new-producer",)
        elif by_old:
            choice = ("--old-producer",)
        self.run(
            f"{package}.ConsoleProducer",
            *(server, bootstrap, "--topic", topic, "--compression-codec", codec),
            *choice,
            text="".join(f"{line}\n" for line in lines),
        )

    def consume(self, server: Sequence[str], topic: str, count: int, *options: str) -> list[str]:
        """Return `count` lines of a topic, read by the console consumer from the server that options name."""
        return self.run(*self.consumer(server, topic, "--max-messages", str(count), *options)).split()

    def consumer(self, server: Sequence[str], topic: str, *options: str) -> list[str]:
        """Return the main class and the arguments of the console consumer."""
        is_moved = self.number >= (3, 9)
        main = (
            "org.apache.kafka.tools.consumer.ConsoleConsumer" if is_moved else "kafka.tools.ConsoleConsumer"
        )
        choice = ("--new-consumer",) if server[0] != "--zookeeper" and self.number < (0, 11) else ()
        patience = ("--timeout-ms", "20000") if self.number >= (0, 9) else ()
        return [main, *server, *choice, *patience, "--topic", topic, *options]


def write_properties(path: Path, **settings: object) -> str:
    """Write a properties file; underscores stand for dots."""
    path.write_text("".join(f"{name.replace('_', '.')}={value}\n" for name, value in settings.items()))
    return str(path)
