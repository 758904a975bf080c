"""Stream frameworks for Python against a broker, each installed from the index into a venv of its own."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kalda import Admin, Consumer, NewTopic, Producer, serializers

PROGRAMS = Path(__file__).with_name("frameworks")
WAIT_SECONDS = 90
CUSTOMERS = 7
ORDERS = 140


@dataclass(frozen=True)
class Framework:
    """A framework's packages, and how its program is started; `counts` where it keeps a count by customer."""

    name: str
    packages: tuple[str, ...]
    command: tuple[str, ...]
    counts: bool = True


FRAMEWORKS = (
    Framework(
        "faststream-confluent",
        ("faststream[confluent]==0.7.8",),
        ("faststream_program.py", "faststream.confluent"),
        counts=False,
    ),
    Framework(
        "faststream-aiokafka",
        ("faststream[kafka]==0.7.8",),
        ("faststream_program.py", "faststream.kafka"),
        counts=False,
    ),
    Framework(
        "faust", ("faust-streaming==0.15.3",), ("faust_program.py", "worker", "-l", "warn", "--without-web")
    ),
    Framework("quix", ("quixstreams==3.28.1",), ("quix_program.py",)),
)


@pytest.fixture
def python(framework: Framework, tmp_path: Path) -> Path:
    """Return the interpreter of a venv with the framework's packages."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python"
    install = [str(python), "-m", "pip", "install", "--quiet", "--only-binary", ":all:", *framework.packages]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{framework.packages} cannot be installed: {done.stderr[-300:]}")
    return python


class Workers:
    """Processes of the framework's program, as members of one group."""

    def __init__(self, framework: Framework, python: Path, bootstrap: str, directory: Path) -> None:
        self._command = [str(python), *framework.command]
        self._environment = {**os.environ, "BOOTSTRAP": bootstrap, "NAME": framework.name}
        self._directory = directory
        self._started = 0

    @contextmanager
    def one(self) -> Iterator["subprocess.Popen[bytes]"]:
        """Run a process, with a directory of its own for its state, for the block."""
        self._started += 1
        state = self._directory / f"state-{self._started}"
        with (
            state.with_suffix(".log").open("wb") as log,
            subprocess.Popen(
                self._command,
                cwd=PROGRAMS,
                env={**self._environment, "STATE": str(state)},
                stdout=log,
                stderr=log,
            ) as process,
        ):
            try:
                yield process
            except BaseException:
                print(state.with_suffix(".log").read_text())
                raise
            finally:
                process.kill()


def send(bootstrap: str, topic: str, first: int) -> None:
    with Producer(bootstrap_servers=bootstrap, value_serializer=serializers.json()) as producer:
        for number in range(first, first + ORDERS):
            order = {"customer": f"customer-{number % CUSTOMERS}", "number": number}
            producer.send(topic, key=b"%d" % number, value=order)


def results_of(bootstrap: str, topic: str, orders: int) -> list[dict[str, Any]]:
    """Return the results once there is one for each of `orders` orders."""
    found: list[dict[str, Any]] = []
    deadline = time.monotonic() + WAIT_SECONDS
    with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        while len({each["number"] for each in found}) < orders:
            assert time.monotonic() < deadline, f"{len(found)} results of {orders} orders"
            found += [json.loads(record.value or b"") for record in consumer.poll(timeout_s=1.0)]
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
def test_a_framework_survives_the_loss_of_a_process(
    framework: Framework, python: Path, bootstrap: str, tmp_path: Path
) -> None:
    """Two processes share the topics; the other one, and later a new one, take over with the state."""
    orders, results = f"{framework.name}-orders", f"{framework.name}-results"
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(orders, partitions=4), NewTopic(results, partitions=4)])
    workers = Workers(framework, python, bootstrap, tmp_path)

    with workers.one():
        with workers.one() as killed:
            send(bootstrap, orders, 0)
            results_of(bootstrap, results, ORDERS)
            killed.kill()
            send(bootstrap, orders, ORDERS)
            results_of(bootstrap, results, 2 * ORDERS)
        with workers.one():
            send(bootstrap, orders, 2 * ORDERS)
            found = results_of(bootstrap, results, 3 * ORDERS)

    assert set(range(3 * ORDERS)) == {each["number"] for each in found}
    if framework.counts:
        highest = {each["customer"]: 0 for each in found}
        for each in found:
            highest[each["customer"]] = max(highest[each["customer"]], each["count"])
        assert all(count >= 3 * ORDERS // CUSTOMERS for count in highest.values()), highest
