"""`kalda migrate` replaces the brokers of a running cluster of Apache Kafka 3.9.1, and goes back."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from benchmarks.apache_kafka import NotAvailableError
from kalda import Admin, Consumer, NewTopic, Producer, TopicPartition
from tests.compat import roll_rounds
from tests.compat.swapped_brokers import SwappableCluster

pytestmark = pytest.mark.timeout(900)  # Starts of Java virtual machines, and rolls.

RECORDS = 600
RUN_SECONDS = 300


class Operator:
    """Who runs `kalda migrate` with a plan for the cluster."""

    def __init__(self, cluster: SwappableCluster, directory: Path) -> None:
        self._cluster = cluster
        self.plan = directory / "plan.yml"
        self.journal = directory / "plan.yml.journal"
        steps = ("stop_kafka", "start_kafka", "stop_kalda", "start_kalda")
        commands = [word for step in steps for word in (f"--{step.replace('_', '-')}", cluster.script(step))]
        self.plan.write_text(self.tool("plan", "--bootstrap-server", cluster.bootstrap, *commands))

    def command(self, *words: str) -> list[str]:
        """Return a command line of the tool."""
        return [sys.executable, "-m", "kalda", "migrate", *words]

    def tool(self, *words: str, code: int = 0) -> str:
        """Run the tool to its end; return what it printed."""
        done = subprocess.run(
            self.command(*words), capture_output=True, text=True, timeout=RUN_SECONDS, check=False
        )
        assert code == done.returncode, done.stdout + done.stderr
        return done.stdout

    def run_and_kill(self, verb: str, event: str) -> bool:
        """Run a roll and kill it when its journal has one more line like this; return whether it had one."""
        before = self._lines(event)
        with subprocess.Popen(self.command(verb, str(self.plan)), stdout=subprocess.DEVNULL) as process:
            try:
                while process.poll() is None:
                    if self._lines(event) > before:
                        process.send_signal(signal.SIGKILL)
                        process.wait()
                        return True
                    time.sleep(0.01)
            finally:
                process.kill()
        assert 0 == process.returncode
        return False

    def software(self) -> dict[int, str]:
        """Return what each broker runs."""
        shown = json.loads(self.tool("status", str(self.plan), "--json"))
        return {each["broker"]: each["runs"] for each in shown["brokers"]}

    def _lines(self, event: str) -> int:
        return self.journal.read_text().count(event) if self.journal.exists() else 0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SwappableCluster]:
    try:
        made = SwappableCluster(tmp_path / "cluster", settings=roll_rounds.SETTINGS)
    except NotAvailableError as error:
        pytest.skip(str(error))
    with made:
        yield made


def produce(bootstrap: str) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic("orders", 6, 3)])
    with Producer(bootstrap_servers=bootstrap, acks="all") as producer:
        for number in range(RECORDS):
            producer.send("orders", b"%d" % number, partition=number % 6)
    with Consumer(bootstrap_servers=bootstrap, group_id="readers", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["orders"])
        read(consumer, RECORDS // 2)
        consumer.commit()


def read(consumer: Consumer, count: int) -> list[int]:
    found: list[int] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        found += [int(each.value or b"-1") for each in consumer.poll(timeout_s=1)]
    return found


def all_records(bootstrap: str) -> Sequence[int]:
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("orders", each) for each in range(6)])
        return sorted(read(consumer, RECORDS))


def test_a_roll_that_is_killed_at_each_step_goes_on_and_goes_back(
    cluster: SwappableCluster, tmp_path: Path
) -> None:
    produce(cluster.bootstrap)
    operator = Operator(cluster, tmp_path)
    for event in ("began", "measured", '"stop"', '"gone"', '"start"', '"back"', '"settle"', "swapped"):
        operator.run_and_kill("run", event)
    operator.tool("run", str(operator.plan))
    assert dict.fromkeys((1, 2, 3), "Kalda") == operator.software()
    assert [*range(RECORDS)] == all_records(cluster.bootstrap)
    for event in ('"gone"', '"back"', '"settle"'):
        operator.run_and_kill("back", event)
    # In the middle of the way back, to Kalda again and back.
    operator.run_and_kill("run", '"start"')
    operator.tool("back", str(operator.plan))
    assert dict.fromkeys((1, 2, 3), "Apache Kafka") == operator.software()
    assert [*range(RECORDS)] == all_records(cluster.bootstrap)


def test_a_command_that_fails_stops_the_roll_with_its_words(
    cluster: SwappableCluster, tmp_path: Path
) -> None:
    operator = Operator(cluster, tmp_path)
    text = operator.plan.read_text()
    broken = text.replace(cluster.script("start_kalda", 1), "echo no such unit >&2; exit 5")
    operator.plan.write_text(broken)
    operator.tool("run", str(operator.plan), "--broker", "1", code=1)
    assert "no such unit" in operator.tool("status", str(operator.plan))
    operator.plan.write_text(text)
    operator.tool("run", str(operator.plan), "--broker", "1")
    assert "Kalda" == operator.software()[1]
    operator.tool("back", str(operator.plan))
    assert dict.fromkeys((1, 2, 3), "Apache Kafka") == operator.software()


def test_two_rolls_under_load_lose_and_reorder_nothing(tmp_path: Path) -> None:
    """More of them: ``python -m tests.compat.roll_rounds``."""
    try:
        report = roll_rounds.run(
            tmp_path / "cluster",
            rounds=2,
            seed=1,
            records_per_second=100,
        )
    except NotAvailableError as error:
        pytest.skip(str(error))
    assert 6 == report.swaps.total()
    assert report.copied > 0


@pytest.mark.parametrize("release", ["2.8.2", "3.6.2", "3.9.1"])
def test_the_check_of_a_running_cluster_names_what_was_planted(release: str, tmp_path: Path) -> None:
    settings = {
        "inter.broker.protocol.version": "2.7",
        "com.example.interceptor.class": "com.example.Spy",
        "num.io.threads": "4",
        "offsets.topic.replication.factor": "1",
    }
    try:
        made = SwappableCluster(tmp_path / "cluster", release=release, brokers=1, settings=settings)
    except NotAvailableError as error:
        pytest.skip(str(error))
    with made, Admin(bootstrap_servers=made.bootstrap) as admin:
        admin.create_topics([NewTopic("orders", 1, 1)])
        by_brokers = ["--from", made.bootstrap, "--zookeeper", made.zookeeper_address]
        by_file = ["--from", str(made.directory / "1" / "server.properties")]
        found = [obstacles(each) for each in (by_brokers, by_file)]
    planted = {("look", "inter.broker.protocol.version"), ("stops", "com.example.interceptor.class")}
    of_cluster = {("look", "one broker"), ("look", "single replicas"), ("look", "topic ids")}
    assert [planted | of_cluster, planted] == found


def obstacles(sources: Sequence[str]) -> set[tuple[str, str]]:
    """Return what does not fit."""
    command = [sys.executable, "-m", "kalda", "migrate", "check", "--json", *sources]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    findings = json.loads(done.stdout)["findings"]
    return {(each["verdict"], each["subject"]) for each in findings if each["verdict"] != "fits"}
