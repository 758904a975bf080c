"""`kalda testing` as a test in another language uses it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

COMMAND = [sys.executable, "-m", "kalda", "testing"]
WAIT_SECONDS = 60


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the commands keep their data, to see that nothing stays."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


class Running:
    """The command, with pipes."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self.ready = self.read()

    def read(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, line: object) -> Any:
        """Send a line and return the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(line).encode() + b"\n")
        self.process.stdin.flush()
        return self.read()


@contextmanager
def running(*options: str) -> Iterator[Running]:
    with subprocess.Popen(
        [*COMMAND, "--json", *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            yield Running(process)
        finally:
            process.kill()


def wait_removed(directory: Path) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while list(directory.iterdir()):
        assert time.monotonic() < deadline, list(directory.iterdir())
        time.sleep(0.01)


def topics(bootstrap: str) -> set[str]:
    return set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=WAIT_SECONDS).topics)


def produce(config: dict[str, Any], topic: str) -> None:
    producer = Producer(config)
    errors: list[Any] = []
    producer.produce(topic, b"1", on_delivery=lambda error, _: errors.append(error))
    assert 0 == producer.flush(WAIT_SECONDS)
    assert [None] == errors


def test_the_cluster_ends_when_stdin_is_closed(temporary: Path) -> None:
    """The pipe closes with the test, however that ends."""
    with running("--brokers", "2") as command:
        assert {"bootstrap", "coordination", "pid"} == set(command.ready)
        assert 2 == len(command.ready["bootstrap"].split(","))
        produce({"bootstrap.servers": command.ready["bootstrap"]}, "orders")
        assert command.process.stdin is not None
        command.process.stdin.close()
        assert 0 == command.process.wait(WAIT_SECONDS)
    wait_removed(temporary)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_the_cluster_ends_by_signals_and_leaves_nothing(number: signal.Signals, temporary: Path) -> None:
    with running() as command:
        command.process.send_signal(number)
        expected = -9 if number == signal.SIGKILL else 0
        assert expected == command.process.wait(WAIT_SECONDS)
    wait_removed(temporary)


def test_the_cluster_ends_with_its_parent_where_stdin_is_no_pipe(temporary: Path) -> None:
    """As where a shell starts it in the background."""
    code = f"""
import subprocess, sys
command = subprocess.Popen({[*COMMAND, "--json"]!r}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
print(command.stdout.readline().decode(), flush=True)
"""
    parent = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, timeout=WAIT_SECONDS
    )
    pid = json.loads(parent.stdout)["pid"]
    with suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(WAIT_SECONDS)
    assert not psutil.pid_exists(pid)
    wait_removed(temporary)


def test_namespaces_are_opened_and_closed_by_lines() -> None:
    with running() as command:
        one, other = command.ask({"namespace": {}}), command.ask({"namespace": {"name": "shop"}})
        assert "shop" == other["namespace"]
        produce({"bootstrap.servers": one["bootstrap"]}, "orders")
        assert {"orders"} == topics(one["bootstrap"])
        assert set() == topics(other["bootstrap"])
        assert {"close": "shop"} == command.ask({"close": "shop"})
        assert "no namespace 'shop' is open, only 1" in command.ask({"close": "shop"})["error"]


def test_brokers_are_killed_and_started_by_lines() -> None:
    with running("--brokers", "2") as command:
        assert {"kill": 1} == command.ask({"kill": 1})
        assert {"error": "broker 1 does not run"} == command.ask({"kill": 1})
        assert {"start": 1} == command.ask({"start": 1})
        assert {"partition": [[0], [1]]} == command.ask({"partition": [[0], [1]]})
        assert {"heal": True} == command.ask({"heal": True})
        assert {"faults": ["broker:kill@0"]} == command.ask({"faults": ["broker:kill@0"]})
        assert {"faults": None} == command.ask({"faults": None})
        assert {"error": "broker 0 does not run"} == command.ask({"kill": 0})


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ({"kil": 0}, "there is no operation 'kil', only namespace, close, start"),
        ([], "a line is an object with one operation"),
        ({"kill": 0, "start": 1}, "a line is an object with one operation"),
        ({"kill": "0"}, "kill takes the number of a broker, not '0'"),
        ({"kill": 7}, "there is no member 7"),
        ({"namespace": {"nam": "a"}}, "namespace takes {} or"),
        ({"namespace": {"name": 1}}, "is a text, not 1"),
        ({"namespace": {"name": "a b"}}, "a b"),
        ({"close": 1}, "no namespace 1 is open, and no other"),
        ({"partition": [0, 1]}, "partition takes groups"),
        ({"partition": [[0.5]]}, "not 0.5"),
        ({"faults": 7}, "faults takes texts"),
        ({"faults": "prodce:NOT_LEADER"}, "prodce"),
    ],
)
def test_a_wrong_line_is_answered_with_what_is_allowed(control: Running, line: object, error: str) -> None:
    assert error in control.ask(line)["error"]


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TMPDIR", str(tmp_path_factory.mktemp("control")))
        with running() as command:
            yield command


def test_a_secured_cluster_prints_how_its_users_connect() -> None:
    with running("--security", "sasl_ssl", "--user", "alice") as command:
        users = command.ready["users"]
        assert {"admin", "alice"} == set(users)
        assert "SASL_SSL" == users["alice"]["java"]["security.protocol"]
        produce(users["admin"]["librdkafka"], "orders")


def test_options_that_are_wrong_end_the_command_with_a_message() -> None:
    for options, message in (
        (["--set", "num.partitons=3"], "did you mean `num.partitions`?"),
        (["--user", "alice"], "--user has no effect without --security"),
        (["--security", "ssl", "--user", "a b"], "names have letters"),
    ):
        done = subprocess.run(
            [*COMMAND, *options],
            capture_output=True,
            text=True,
            check=False,
            timeout=WAIT_SECONDS,
            stdin=subprocess.DEVNULL,
            env={**os.environ},
        )
        assert 2 == done.returncode
        assert message in done.stderr
