"""What tests with real brokers cost: sessions of pytest with the fixtures of `kalda.testing`.

Tests use the same names, and each looks for the records of others. `tests/integration/testing` runs a part.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.end_to_end import Figure

TESTS: Final = 1_000
_WORKERS: Final = 2
_STARTS: Final = 5
_FIRST: Final = re.compile(r"^first test after ([\d.]+) s, ([\d.]+) s of the processor$", re.MULTILINE)

SHARED_CLUSTER: Final = '''
import pytest


@pytest.mark.parametrize("number", range({tests}))
def test_orders(kafka, number):
    """Topic, group and transactional id have the same names in each test."""
    value = b"%d" % number
    assert kafka.admin().list_topics() == {{}}
    topic = kafka.topic("orders", partitions=2)
    producer = kafka.producer(transactional_id="shop")
    producer.init_transactions()
    with producer.transaction():
        producer.send(topic, value)
    consumer = kafka.consumer(topic, group_id="billing", isolation_level="read_committed")
    assert next(consumer).value == value
    consumer.commit()
    assert [record.value for record in kafka.records(topic)] == [value]
    kafka.assert_committed("billing", topic, records=1)
'''

FRESH_CLUSTERS: Final = """
import pytest


@pytest.mark.parametrize("number", range({tests}))
def test_orders(kafka_cluster, number):
    value = b"%d" % number
    topic = kafka_cluster.topic("orders")
    kafka_cluster.producer().send(topic, value).result(60)
    assert [record.value for record in kafka_cluster.records(topic)] == [value]
"""

_FIRST_TEST: Final = """
def test_first(kafka):
    kafka.topic("orders")
"""

_CONFTEST: Final = """
import sys
import time


def pytest_collection_finish(session):
    session.config.collected_at = time.perf_counter(), time.process_time()


def pytest_runtest_call(item):
    begin, used = item.config.collected_at
    seconds, processor = time.perf_counter() - begin, time.process_time() - used
    print(f"first test after {seconds} s, {processor} s of the processor", file=sys.__stdout__)
"""


@dataclass(frozen=True, slots=True)
class SessionResult:
    """How a session of pytest ended."""

    output: str
    seconds: float
    processor_seconds: float
    """Of pytest, its workers, and all brokers, which run in them."""


def run_session(directory: Path, files: dict[str, str], *options: str) -> SessionResult:
    """Write the files of a suite and run it; returns also where tests failed."""
    for name, text in {"pytest.ini": "[pytest]\n", **files}.items():
        (directory / name).write_text(text)
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment.pop("KALDA_CHECK_INVARIANTS", None)  # as a user's tests run
    used, begin = os.times(), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "kalda", *options],
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    seconds, now = time.perf_counter() - begin, os.times()
    processor = now.children_user + now.children_system - used.children_user - used.children_system
    return SessionResult(done.stdout, seconds, processor)


def run() -> list[Figure]:
    """Run both suites on two workers, and sessions of one test."""
    figures: list[Figure] = []
    for what, text in (("shared cluster", SHARED_CLUSTER), ("fresh clusters", FRESH_CLUSTERS)):
        result = _checked({"test_orders.py": text.format(tests=TESTS)}, "-p", "xdist", "-n", str(_WORKERS))
        figures.append((f"{TESTS} tests, {what}, {_WORKERS} workers", result.seconds, "s"))
        figures.append(("the same, processor time", result.processor_seconds, "s"))
    files = {"test_first.py": _FIRST_TEST, "conftest.py": _CONFTEST}
    firsts = [_FIRST.findall(_checked(files, "-s").output)[0] for _ in range(_STARTS)]
    figures.append(
        (f"collection to first test, best of {_STARTS}", min(float(each) for each, _ in firsts), "s")
    )
    figures.append(("the same, processor time", min(float(each) for _, each in firsts), "s"))
    return figures


def _checked(files: dict[str, str], *options: str) -> SessionResult:
    with tempfile.TemporaryDirectory(prefix="kalda-sessions-") as directory:
        result = run_session(Path(directory), files, *options)
    assert " passed" in result.output, result.output[-5_000:]
    assert "failed" not in result.output, result.output[-5_000:]
    return result
