"""kazoo's clients in tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kazoo.client import KazooClient

START_SECONDS_MAX = 30.0


@contextmanager
def zookeeper_client(hosts: str, **options: Any) -> Iterator[KazooClient]:
    """Connect; the client's threads end with the block, or they would go on trying for ever."""
    client = KazooClient(hosts, **options)
    try:
        client.start(START_SECONDS_MAX)
        yield client
    finally:
        client.stop()
        client.close()
