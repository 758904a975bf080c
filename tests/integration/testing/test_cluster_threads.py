"""What is left of a cluster in the program's own process after its end."""

import threading
import time

import kafka

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
