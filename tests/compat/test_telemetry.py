"""Apache Kafka with a plugin for clients' metrics reads what Kalda's clients push (KIP-714)."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.apache_kafka import ApacheKafka, NotAvailableError, kafka_jars
from kalda import Producer
from kalda.common.types import uuid_to_text
from tests.compat.conftest import JavaTool

SOURCE = Path(__file__).parent / "java/TelemetryToFile.java"


@pytest.fixture
def pushed(tmp_path: Path) -> Path:
    """The file that the plugin writes."""
    return tmp_path / "pushed.txt"


@pytest.fixture
def kafka(tmp_path: Path, pushed: Path) -> Iterator[ApacheKafka]:
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    try:
        jars = kafka_jars()
        subprocess.run(
            ["javac", "-cp", f"{jars}/*", "-d", str(plugins), str(SOURCE)], check=True, timeout=120
        )
    except (NotAvailableError, FileNotFoundError) as error:
        pytest.skip(str(error))
    settings = {"metric.reporters": "TelemetryToFile", "telemetry.file": str(pushed)}
    with ApacheKafka(settings=settings, plugins=plugins) as broker:
        yield broker


def test_a_broker_with_a_plugin_reads_our_metrics(
    kafka: ApacheKafka, pushed: Path, java_tool: JavaTool
) -> None:
    java_tool(
        "org.apache.kafka.tools.ClientMetricsCommand",
        *("--bootstrap-server", kafka.bootstrap, "--alter", "--name", "all"),
        *("--metrics", "org.apache.kafka.producer.", "--interval", "200"),
    )
    with Producer(bootstrap_servers=kafka.bootstrap, client_id="ours", transactional_id="t-1") as producer:
        instance = producer.client_instance_id(30)
        producer.init_transactions()
        with producer.transaction():
            for _ in range(50):
                producer.send("topic", b"v")
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and "record.send.total sum 50.0" not in _text(pushed):
            time.sleep(0.1)

    lines = [line.split(" ") for line in _text(pushed).splitlines()]
    assert {(uuid_to_text(instance), "ours", "transactional_id=t-1")} == {
        (line[0], line[1], line[3]) for line in lines
    }
    assert {"more", "last"} == {line[2] for line in lines}
    sums = {line[4]: float(line[6]) for line in lines if line[5] == "sum"}
    deltas = [float(line[6]) for line in lines if line[4] == "org.apache.kafka.producer.record.send.total"]
    assert 50.0 == sum(deltas), "Apache Kafka asks for differences"
    assert "org.apache.kafka.producer.request.total" in sums


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""
