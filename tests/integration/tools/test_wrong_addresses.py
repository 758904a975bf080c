"""Every command that connects ends at the first failure, with advice, where no broker can serve it."""

from collections.abc import Iterator

import pytest

from kalda.testing.process_cluster import ZooKeeperProcess
from tests.integration.tools.commands import Commands

DEAD = "127.0.0.1:1"
COMMANDS = [
    ("consume", "t"),
    ("produce", "t"),
    ("topics", "list"),
    ("groups", "list"),
    ("cluster", "describe"),
    ("offsets", "--topic", "t"),
    ("perf", "produce", "--topic", "t", "--num-records", "1", "--record-size", "1"),
]


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a coordination server."""
    with ZooKeeperProcess(tmp_path_factory.mktemp("zk") / "data") as process:
        yield process.zookeeper


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_refused_connection_ends_a_command(command: tuple[str, ...]) -> None:
    """The time of a command would be over only after 15 s; another error would say so."""
    done = Commands(DEAD).refused(*command)

    (line,) = done.stderr.splitlines()
    assert line.startswith(f"kalda: no broker of `bootstrap.servers`={DEAD} answers: no connection to {DEAD}")
    assert "Connection refused; start a broker there (`kalda start`), or correct the address" in line


def test_a_name_that_does_not_resolve_ends_a_command() -> None:
    done = Commands("nowhere.invalid:9092").refused("topics", "list")

    assert "no broker of `bootstrap.servers`=nowhere.invalid:9092 answers: no connection to" in done.stderr


def test_the_port_of_zookeeper_ends_a_command(zookeeper: str) -> None:
    done = Commands(zookeeper).refused("topics", "list")

    assert "closed by the broker before it answered; is this a listener of Kafka's protocol" in done.stderr


def test_a_command_waits_for_a_broker_that_starts_if_it_is_asked_to() -> None:
    settings = ("--command-property", "bootstrap.wait.ms=-1", "--command-property")
    done = Commands(DEAD).refused("topics", "list", *settings, "default.api.timeout.ms=1500")

    waits, ends = done.stderr.splitlines()
    assert f"No broker of `bootstrap.servers`={DEAD} answers: no connection" in waits
    assert "gave up after 1500 ms" in ends


@pytest.mark.parametrize("command", [("ls",), ("get", "/"), ("shell",)], ids=lambda command: command[0])
def test_zk_names_the_protocol_of_a_kafka_port(kalda: Commands, command: tuple[str, ...]) -> None:
    done = kalda.refused("zk", *command, "--zookeeper", f"{kalda.bootstrap}/chroot")

    assert f"kalda: {kalda.bootstrap} speaks Kafka, not ZooKeeper; --zookeeper=" in done.stderr
