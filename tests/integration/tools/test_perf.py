"""`kalda perf`: the columns of Kafka's tools, and the same figures as JSON."""

import json
import re
import uuid
from pathlib import Path

import pytest

from tests.integration.tools.commands import Commands


@pytest.fixture
def topic(kalda: Commands, request: pytest.FixtureRequest) -> str:
    name = f"{request.node.name.removeprefix('test_')[:100]}-{uuid.uuid4().hex[:6]}"
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


def test_produce_takes_several_settings_behind_one_option(kalda: Commands, topic: str) -> None:
    """Scripts for Kafka's tool give them so; the address may be one of them."""
    settings = (f"bootstrap.servers={kalda.bootstrap}", "acks=1", "enable.idempotence=false")
    rest = ("--topic", topic, "--num-records", 3, "--record-size", 1)
    elsewhere = Commands("127.0.0.1:1")
    for option in ("--producer-props", "--command-property"):
        done = elsewhere("perf", "produce", option, *settings, *rest)
        assert done.stdout.startswith("3 records sent, ")

    done = kalda.run("perf", "produce", *rest, "acks")
    assert 2 == done.code
    assert "kalda: --command-property: 'acks' is not a setting: write name=value\n" == done.stderr


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


def test_consume_prints_kafkas_columns(kalda: Commands, topic: str) -> None:
    kalda("perf", "produce", "--topic", topic, "--num-records", 3000, "--record-size", 100)
    done = kalda("perf", "consume", "--topic", topic, "--messages", 3000)

    header, line = done.stdout.splitlines()
    names, values = header.split(", "), line.split(", ")
    assert ["start.time", "end.time", "data.consumed.in.MB", "MB.sec", "data.consumed.in.nMsg"] == names[:5]
    assert (len(names), "3000") == (len(values), values[4])
    assert pytest.approx(0.2861, abs=0.0001) == float(values[2])
    total = json.loads(kalda("perf", "consume", "--topic", topic, "--messages", 3000, "--json").stdout)
    assert names == list(total["total"])


def test_consume_shows_intervals_and_says_when_records_are_missing(kalda: Commands, topic: str) -> None:
    kalda("perf", "produce", "--topic", topic, "--num-records", 100, "--record-size", 10)
    options = ("--timeout", 3000, "--reporting-interval", 1, "--show-detailed-stats")
    done = kalda.refused("perf", "consume", "--topic", topic, "--messages", 200, *options)

    header, *lines = done.stdout.splitlines()
    assert header.startswith("time, threadId, data.consumed.in.MB, ")
    assert len(lines) >= 1
    assert "100" == lines[-1].split(", ")[4]
    assert "kalda: only 100 of 200 records came: there was none for 3000 ms (--timeout)\n" == done.stderr


def test_end_to_end_creates_its_topic_and_prints_kafkas_lines(kalda: Commands) -> None:
    options = ("--num-records", 50, "--record-size", 20)
    done = kalda("perf", "end-to-end", "--topic", "end-to-end", *options)

    first, average, percentiles = done.stdout.splitlines()
    assert re.fullmatch(r"0\t\d+\.\d{4}", first)
    assert re.fullmatch(r"Avg latency: \d+\.\d{4} ms", average)
    assert re.fullmatch(r"Percentiles: 50th = [\d.]+, 99th = [\d.]+, 99.9th = [\d.]+", percentiles)
    assert 'Topic "end-to-end" does not exist.' in done.stderr
    document = kalda.json("perf", "end-to-end", "--topic", "end-to-end", "--acks", 1, *options)
    assert {"latencyAverageMs", "latencyP50Ms", "latencyP99Ms", "latencyP99.9Ms"} == set(document)


def test_produce_sends_in_transactions(kalda: Commands, topic: str) -> None:
    options = ("--payload-monotonic", "--throughput", 100, "--transaction-duration-ms", 200)
    kalda("perf", "produce", "--topic", topic, "--num-records", 60, *options)

    (listed,) = kalda.json("transactions", "list")["transactions"]
    assert listed["transactional_id"].startswith("performance-producer-")
    assert "CompleteCommit" == listed["state"]
    consumed = kalda("consume", topic, "--isolation-level", "read_committed").stdout.splitlines()
    assert sorted(map(str, range(60))) == sorted(consumed)
    ends = sum(int(row[2]) for row in kalda("offsets", topic).rows)
    assert ends >= 60 + 2, "a marker for each of several transactions"


def test_metrics_are_printed_on_request(kalda: Commands, topic: str) -> None:
    records = ("--topic", topic, "--num-records", 10, "--print-metrics")
    produced = kalda("perf", "produce", *records, "--record-size", 10).stdout
    consumed = kalda("perf", "consume", *records).stdout
    document = json.loads(
        kalda("perf", "produce", *records, "--record-size", 10, "--json").stdout.splitlines()[1]
    )

    name = "producer-metrics:record-send-total:{client-id=perf-producer-client}"
    assert re.search(rf"^{name} +: 10\.000$", produced, re.MULTILINE)
    assert re.search(r"^Metric Name +Value$", consumed, re.MULTILINE)
    assert "consumer-fetch-manager-metrics:records-consumed-total:" in consumed
    assert 10 == document["metrics"][name]
