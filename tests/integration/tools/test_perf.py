"""`kalda perf`: the columns of Kafka's tools, and the same figures as JSON."""

import json
import re
from pathlib import Path

import pytest

from tests.integration.tools.commands import Commands


@pytest.fixture
def topic(kalda: Commands, request: pytest.FixtureRequest) -> str:
    name = str(request.node.name.removeprefix("test_"))[:100]
    kalda("topics", "create", name, "--partitions", 2, "--replication-factor", 1)
    return name


def test_produce_prints_kafkas_line(kalda: Commands, topic: str) -> None:
    done = kalda("perf", "produce", "--topic", topic, "--num-records", 2000, "--record-size", 100)

    number = r"\d+\.\d"
    assert re.fullmatch(
        rf"2000 records sent, {number} records/sec \({number}\d MB/sec\), {number}\d ms avg latency, "
        rf"{number}\d ms max latency, \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99.9th\.\n",
        done.stdout,
    )


def test_produce_keeps_to_its_throughput_and_reports_intervals(kalda: Commands, topic: str) -> None:
    options = ("--throughput", 400, "--reporting-interval", 500, "--payload-monotonic", "--json")
    done = kalda("perf", "produce", "--topic", topic, "--num-records", 800, *options)

    *windows, total = (json.loads(line) for line in done.stdout.splitlines())
    assert len(windows) >= 2
    assert 800 == total["total"]["records"]
    assert total["total"]["recordsPerSecond"] <= 420
    assert {"records", "recordsPerSecond", "mbPerSecond", "latencyAverageMs", "latencyMaxMs"} == set(
        windows[0]["window"]
    )


def test_produce_takes_values_from_a_file(kalda: Commands, topic: str, tmp_path: Path) -> None:
    payloads = tmp_path / "payloads"
    payloads.write_text("a|b|c")
    kalda(
        "perf", "produce", "--topic", topic, "--num-records", 10,
        "--payload-file", payloads, "--payload-delimiter", "|",
    )  # fmt: skip
    done = kalda.refused("perf", "produce", "--topic", topic, "--num-records", 10)
    assert "give exactly one of --record-size, --payload-file and --payload-monotonic" in done.stderr
