"""Reads a topic with the old high-level consumer, and appends a line for each message to a file.

Run as ``python -m tests.chaos.connector_reader PROPERTIES TOPIC STREAMS FILE``; SIGTERM shuts it
down in order.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kalda.clients.config.properties_source import PropertiesSource
from kalda.clients.errors import ClientError
from kalda.clients.legacy import Consumer, ConsumerConnector, KafkaStream

START_S: Final = 60.0
SESSION_TIMEOUT_MS: Final = 2_000


class ConnectorReader:
    """A connector whose streams are read by threads; each line is partition, offset, value and time."""

    def __init__(self, properties: PropertiesSource, topic: str, streams: int, file: Path) -> None:
        self._file: Final = os.open(file, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        self._connector, made = joined(properties, topic, streams)
        self._threads: Final = [
            threading.Thread(target=self._read, args=[each], daemon=True) for each in made
        ]
        for each in self._threads:
            each.start()

    def close(self) -> None:
        """Leave the group, once every thread has written its message."""
        self._connector.shutdown()
        for each in self._threads:
            each.join(30)
        os.close(self._file)

    def _read(self, stream: "KafkaStream[Any, Any]") -> None:
        for each in stream:
            value = each.raw_message.payload or b""
            line = b"%d %d %s %.4f\n" % (each.partition, each.offset, value, time.monotonic())
            os.write(self._file, line)


def joined(
    properties: PropertiesSource, topic: str, streams: int
) -> "tuple[ConsumerConnector, list[KafkaStream[Any, Any]]]":
    """Return a connector with its streams; try again while ZooKeeper is away, as a supervisor does."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            connector = Consumer.create(properties)
            try:
                return connector, connector.create_message_streams({topic: streams})[topic]
            except ClientError:
                connector.shutdown()
                raise
        except ClientError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def settings(zookeeper: str, group: str, storage: str, *, is_dual: bool) -> Mapping[str, object]:
    """Return the settings of a reader."""
    return {
        "zookeeper.connect": zookeeper,
        "group.id": group,
        "auto.offset.reset": "smallest",
        "auto.commit.interval.ms": 300,
        "offsets.storage": storage,
        "dual.commit.enabled": is_dual,
        "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
        "rebalance.backoff.ms": 300,
        "rebalance.max.retries": 30,
    }


def main() -> None:
    """Read until SIGTERM."""
    properties, topic, streams, file = sys.argv[1:]
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    reader = ConnectorReader(Path(properties), topic, int(streams), Path(file))
    # With an end, because a signal that another thread gets does not end a wait of this one.
    while not ended.wait(0.2):
        pass
    reader.close()


if __name__ == "__main__":
    main()
