"""Keeps the streams of NATS in znodes: ``/nats_streams/NAME``, JSON of `StoredStream`.

A stream is a topic; its znode says how clients of NATS see it. Each write is conditional on the version that
was read, so that two brokers do not undo each other's change. A write that gives a stream other subjects also
counts up the version of ``/nats_streams``: its writer knows that version, and the streams of it, or fails.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from kalda.cluster.layout import ensure_paths
from kalda.zookeeper.errors import NoNodeError
from kalda.zookeeper.port import Create, SetData, Stat, WatchCallback, ZooKeeperClient

ROOT: Final = "/nats_streams"

BYTES_MAX: Final = 512 * 1024
"""Of one stream with its durable consumers; ZooKeeper takes 1 MB in a request."""


class StreamTooLargeError(Exception):
    """The state of a stream does not fit into a znode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredConsumer:
    """A durable consumer."""

    created_ns: int
    config: Mapping[str, object]
    start: int
    """The sequence from which on it has delivered."""
    epoch: int
    """Distinguishes its stored state from that of earlier consumers with its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredStream:
    """The stored state of a stream, beside its records."""

    topic_id: str
    created_ns: int
    config: Mapping[str, object]
    first_sequence: int = 1
    """Messages before it are removed."""
    removed: Sequence[tuple[int, int]] = ()
    """Ranges of sequences that were removed by themselves, both ends included, in order."""
    purges: Sequence[tuple[str, int, int]] = ()
    """Pattern, sequence and count: messages before the sequence are removed, but for the last ones."""
    consumers: Mapping[str, StoredConsumer] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the data of the znode.

        Raises:
            StreamTooLargeError: there is too much.
        """
        data = json.dumps(
            {
                "version": 1,
                "topic_id": self.topic_id,
                "created": self.created_ns,
                "config": self.config,
                "first_sequence": self.first_sequence,
                "removed": self.removed,
                "purges": self.purges,
                "consumers": {
                    name: {
                        "created": each.created_ns,
                        "config": each.config,
                        "start": each.start,
                        "epoch": each.epoch,
                    }
                    for name, each in self.consumers.items()
                },
            },
            separators=(",", ":"),
        ).encode()
        if len(data) > BYTES_MAX:
            raise StreamTooLargeError(f"{len(data)} bytes of a stream exceed {BYTES_MAX}")
        return data

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the data of a znode.

        Raises:
            ValueError: it is malformed.
        """
        try:
            found = json.loads(data)
            return cls(
                topic_id=str(found["topic_id"]),
                created_ns=int(found["created"]),
                config=dict(found["config"]),
                first_sequence=int(found["first_sequence"]),
                removed=[(int(first), int(last)) for first, last in found["removed"]],
                purges=[(str(pattern), int(before), int(keep)) for pattern, before, keep in found["purges"]],
                consumers={
                    str(name): StoredConsumer(
                        created_ns=int(each["created"]),
                        config=dict(each["config"]),
                        start=int(each["start"]),
                        epoch=int(each["epoch"]),
                    )
                    for name, each in found["consumers"].items()
                },
            )
        except (AttributeError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"the znode of a stream is malformed: {error!r}") from None


class NatsStreamStore:
    """The streams of one cluster."""

    def __init__(self, zookeeper: ZooKeeperClient) -> None:
        self.zookeeper: Final = zookeeper

    async def read_all(self, watch: WatchCallback | None = None) -> dict[str, tuple[bytes, int]]:
        """Return the data and version of each stream; `watch` reports the next change of any.

        Raises:
            ZooKeeperError: they cannot be read.
        """
        try:
            names = await self.zookeeper.children(ROOT, watch)
        except NoNodeError:
            await ensure_paths(self.zookeeper, [ROOT])
            names = await self.zookeeper.children(ROOT, watch)
        found = await self.zookeeper.get_many([path(name) for name in names], watch)
        return {
            name: (node[0], node[1].version)
            for name, node in zip(names, found, strict=True)
            if node is not None
        }

    async def read(self, name: str) -> tuple[bytes, int] | None:
        """Return the data and version of a stream, None without one.

        Raises:
            ZooKeeperError: it cannot be read.
        """
        (found,) = await self.zookeeper.get_many([path(name)])
        return None if found is None else (found[0], found[1].version)

    async def subjects_version(self) -> int:
        """Return the version of all streams' subjects, which grows with each change.

        Raises:
            ZooKeeperError: it cannot be read.
        """
        found = await self.zookeeper.exists(ROOT)
        if found is None:
            await ensure_paths(self.zookeeper, [ROOT])
            _, found = await self.zookeeper.get(ROOT)
        return found.version

    async def create(self, name: str, stream: StoredStream, subjects_version: int) -> int:
        """Create a stream; return its version.

        Raises:
            StreamTooLargeError: there is too much.
            NodeExistsError: it exists.
            BadVersionError: another broker has changed the subjects of a stream.
            ZooKeeperError: it cannot be written.
        """
        create = Create(path(name), stream.encode())
        await self.zookeeper.multi([SetData(ROOT, b"", subjects_version), create])
        return 0

    async def write(
        self, name: str, stream: StoredStream, version: int, subjects_version: int | None = None
    ) -> int:
        """Replace a stream; return its version. With `subjects_version` its subjects may be others.

        Raises:
            StreamTooLargeError: there is too much.
            NoNodeError, BadVersionError: another broker has changed it, or the subjects of a stream.
            ZooKeeperError: it cannot be written.
        """
        data = stream.encode()
        if subjects_version is None:
            return (await self.zookeeper.set(path(name), data, version)).version
        changes = [SetData(ROOT, b"", subjects_version), SetData(path(name), data, version)]
        _, stat = await self.zookeeper.multi(changes)
        assert isinstance(stat, Stat), "the result of SetData"
        return stat.version

    async def delete(self, name: str) -> None:
        """Delete a stream.

        Raises:
            ZooKeeperError: it cannot be deleted.
        """
        await self.zookeeper.delete(path(name))


def path(name: str) -> str:
    """Return the path of a stream's znode."""
    return f"{ROOT}/{name}"
