"""The start of a cluster in the program's own process, and what is left of it after its end."""

import contextlib
import threading
import time

import kafka
import pytest

from kalda.broker.context.broker_context import BrokerContext
from kalda.broker.server import BrokerServer
from kalda.testing import Cluster

WAIT_SECONDS = 30


def conversion_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("conversion-")]


def test_a_killed_broker_leaves_no_threads_that_converted_records() -> None:
    with Cluster(brokers=1) as cluster:
        producer = kafka.KafkaProducer(bootstrap_servers=cluster.bootstrap)
        producer.send("converted", b"value").get(timeout=WAIT_SECONDS)
        producer.close()
        # Fetch requests of these versions get messages of the old format.
        reader = kafka.KafkaConsumer(
            "converted",
            bootstrap_servers=cluster.bootstrap,
            auto_offset_reset="earliest",
            api_version=(0, 9),
            consumer_timeout_ms=WAIT_SECONDS * 1000,
        )
        assert b"value" == next(reader).value
        reader.close()
        assert conversion_threads()
    deadline = time.monotonic() + WAIT_SECONDS
    while conversion_threads():
        assert time.monotonic() < deadline, "the threads go on"
        time.sleep(0.01)


def test_a_broker_whose_session_ends_before_it_serves_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine with much other work its thread may get no turn for longer than its session lasts."""
    cluster = Cluster(brokers=1)
    open_logs, starts = BrokerServer._open_logs_and_settings, []

    async def open_logs_too_late(server: BrokerServer, undo: contextlib.AsyncExitStack) -> BrokerContext:
        context = await open_logs(server, undo)
        starts.append(server)
        if len(starts) == 1:
            cluster.expire_session(0)
            while True:
                await server._cluster_store.zookeeper.exists("/controller")
        return context

    monkeypatch.setattr(BrokerServer, "_open_logs_and_settings", open_logs_too_late)
    with cluster:
        assert 2 == len(starts)
        assert [0] == list(cluster.running)
