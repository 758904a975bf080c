"""A broker and clients run without what only Linux has; see `tests.other_systems`."""

from collections.abc import Callable

import pytest

from tests.other_systems import run_as_on

PRODUCE_AND_CONSUME = """
from kalda import Consumer, Producer, TopicPartition

def produce_and_consume(bootstrap, topic):
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(3):
            producer.send(topic, b"%d" % number * 100_000, partition=0)
        producer.flush()
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        records = []
        while len(records) < 3:
            records += consumer.poll(30)
    assert [b"0", b"1", b"2"] == [record.value[:1] for record in records]
"""


def test_a_cluster_of_tests_runs_without_what_only_linux_has() -> None:
    """Developers run it on macOS."""
    program = (
        PRODUCE_AND_CONSUME
        + """
from kalda.testing import Cluster

with Cluster(brokers=1) as cluster:
    produce_and_consume(cluster.bootstrap, "topic")
"""
    )
    ended = run_as_on("macos", program)

    assert ("", 0) == (ended.stderr, ended.returncode)


def test_clients_run_without_what_windows_lacks(bootstrap: str, topic_name: Callable[[str], str]) -> None:
    program = PRODUCE_AND_CONSUME + "import sys\nproduce_and_consume(*sys.argv[1:])\n"
    ended = run_as_on("windows", program, bootstrap, topic_name("windows"))

    assert ("", 0) == (ended.stderr, ended.returncode)


@pytest.mark.parametrize("words", [["topics", "list"], ["cluster", "describe"]])
def test_tools_run_without_what_windows_lacks(bootstrap: str, words: list[str]) -> None:
    program = "from kalda.cli import main\nmain()\n"
    ended = run_as_on("windows", program, *words, "--bootstrap-server", bootstrap)

    assert ("", 0) == (ended.stderr, ended.returncode)
