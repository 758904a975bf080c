"""Plays a group of old consumers on a coordination server in memory, and writes down what each does.

Commands:

    broker ID | broker-gone ID
    topic NAME BROKER...       a partition for each BROKER, its preferred leader
    grow NAME BROKER...        more partitions
    join NAME SUBSCRIPTION...  TOPIC=STREAMS, or one of white=REGEX and black=REGEX with streams=N;
                               strategy=, retries= (4), backoff= (2 s) and busy= (0 s), how long its program
                               has a message in hand at a stop
    leave NAME                 in order
    expire NAME | reconnect NAME
    stranger-owns TOPIC N | stranger-gone
    forget NAME                somebody deletes the registration
    wait SECONDS

After each command stand the ZooKeeper requests of each consumer and what it decided, in order, with the time
where it went on; then the owners in ZooKeeper. Paths without a slash in front are those of the group.
"""

import asyncio
import uuid
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, cast

from kalda.clients.legacy.consumer.consumer_config import ConsumerConfig
from kalda.clients.legacy.consumer.rebalancer import ConsumerRebalanceFailedError, Rebalancer
from kalda.clients.legacy.consumer.topic_count import Blacklist, ThreadId, TopicCount, Whitelist, by_filter
from kalda.cluster.cluster_store import ClusterStore, NewTopic
from kalda.cluster.schema import BrokerInfo, ListenerEndpoint, ReplicaAssignment, TopicAssignment
from kalda.common.types import TopicPartition
from kalda.zookeeper.errors import NodeExistsError
from kalda.zookeeper.port import Create, Operation, OperationResult, Stat, WatchCallback, ZooKeeperClient
from kalda.zookeeper.server.embedded import EmbeddedClient
from tests.unit.cluster.in_memory import InMemoryZooKeeper
from tests.virtual_time import LoopClock, VirtualTimeLoop

GROUP = "/consumers/g/"
TURNS = 500
"""Turns of the loop until everything at one time has happened."""


class Log:
    """What consumers do, with times; those of one time are sorted by consumer."""

    def __init__(self) -> None:
        self._entries: list[tuple[float, str, str]] = []
        self._last = 0.0

    def add(self, name: str, text: str) -> None:
        now = asyncio.get_running_loop().time()
        self._entries.append((now, name, text.replace(GROUP, "")))

    def take(self) -> Iterator[str]:
        entries, self._entries = self._entries, []
        for time, same_time in groupby(entries, lambda each: each[0]):
            if self._last and time > self._last:
                yield f"after {time - self._last:g} s"
            self._last = time
            for _, name, text in sorted(same_time, key=lambda each: each[1]):
                yield f"  {name} {text}"

    def begin(self) -> None:
        self._last = asyncio.get_running_loop().time()


class RecordedSession:
    """The session of one consumer."""

    def __init__(self, name: str, session: EmbeddedClient, log: Log) -> None:
        self._name = name
        self._session = session
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def children(self, path: str, watch: WatchCallback | None = None) -> list[str]:
        found = await self._session.children(path, watch)
        self._add(f"lists {path}{watching(watch)}: {' '.join(found) or 'nothing'}")
        return found

    async def get_many(
        self, paths: Sequence[str], watch: WatchCallback | None = None
    ) -> list[tuple[bytes, Stat] | None]:
        found = await self._session.get_many(paths, watch)
        if paths:
            absent = "".join(
                f", {path} is absent" for path, each in zip(paths, found, strict=True) if each is None
            )
            self._add(f"reads {' '.join(paths)}{watching(watch)}{absent}")
        return found

    async def exists(self, path: str, watch: WatchCallback | None = None) -> Stat | None:
        stat = await self._session.exists(path, watch)
        is_own = stat is not None and stat.ephemeral_owner == self._session.session_id
        kind = "absent" if stat is None else "its own" if is_own else "there"
        self._add(f"looks at {path}: {kind}")
        return stat

    async def create(self, path: str, data: bytes = b"", ephemeral: bool = False) -> str:
        what = f"creates {path} {data.decode()}"
        try:
            created = await self._session.create(path, data, ephemeral)
        except NodeExistsError:
            self._add(f"{what}: it exists")
            raise
        self._add(what)
        return created

    async def set(self, path: str, data: bytes) -> Stat:
        self._add(f"sets {path} {data.decode()}")
        return await self._session.set(path, data)

    async def delete(self, path: str) -> None:
        self._add(f"deletes {path}")
        await self._session.delete(path)

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        (operation,) = operations
        assert isinstance(operation, Create)
        results = await self._session.multi(operations)
        self._add(f"creates {operation.path}")
        return results

    def _add(self, text: str) -> None:
        self._log.add(self._name, text)


def watching(watch: WatchCallback | None) -> str:
    return " and watches" if watch is not None else ""


class Streams:
    """Stands for the streams of one consumer."""

    def __init__(self, name: str, log: Log, busy_seconds: float) -> None:
        self.is_reading = False
        self._name = name
        self._log = log
        self._busy_seconds = busy_seconds

    def knows(self, brokers: Mapping[int, BrokerInfo]) -> bool:
        return True

    async def stop(self) -> None:
        if self.is_reading:
            self._log.add(self._name, "STOPS reading and commits")
            self.is_reading = False
            await asyncio.sleep(self._busy_seconds)

    def abandon(self) -> None:
        self._log.add(self._name, "ABANDONS its partitions")
        self.is_reading = False

    async def begin(
        self, owned: Mapping[TopicPartition, ThreadId], brokers: Mapping[int, BrokerInfo]
    ) -> None:
        self.is_reading = True
        self._log.add(self._name, f"BEGINS to read {' '.join(map(str, owned)) or 'nothing'}")


class Member:
    """One consumer."""

    def __init__(
        self, name: str, session: EmbeddedClient, log: Log, wanted: TopicCount, fields: Mapping[str, str]
    ) -> None:
        self.session = session
        self._name = name
        self._log = log
        config = ConsumerConfig(
            {
                "group.id": "g",
                "zookeeper.connect": "unused",
                "rebalance.backoff.ms": int(float(fields.get("backoff", "2")) * 1000),
                "rebalance.max.retries": fields.get("retries", "4"),
                "partition.assignment.strategy": fields.get("strategy", "range"),
            }
        )
        streams = Streams(name, log, float(fields.get("busy", "0")))
        recorded = cast(ZooKeeperClient, RecordedSession(name, session, log))
        self.rebalancer = Rebalancer(config, name, wanted, recorded, streams, LoopClock())
        self.task = asyncio.create_task(self._join())

    async def _join(self) -> None:
        try:
            await self.rebalancer.start()
        except ConsumerRebalanceFailedError as error:
            self._log.add(self._name, f"FAILS: {error}")
            await self.leave()

    async def leave(self) -> None:
        await self.rebalancer.stop()
        await self.rebalancer.leave()


class Player:
    """A group on a server, in virtual time that goes on over all commands."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=VirtualTimeLoop)
        self._log = Log()
        self._members: dict[str, Member] = {}
        self._zookeeper: InMemoryZooKeeper
        self._store: ClusterStore
        self._stranger: EmbeddedClient
        self._runner.run(self._start())

    def play(self, commands: list[str]) -> Iterator[str]:
        for command in commands:
            yield f"{command}:"
            self._runner.run(self._run(*command.split()))
            yield from self._log.take()
            yield f"  owners: {self._runner.run(self._owners())}"

    def close(self) -> None:
        """End the tasks of all members."""

        async def end() -> None:
            for member in self._members.values():
                member.task.cancel()
                await member.rebalancer.stop()

        self._runner.run(end())
        self._runner.close()

    async def _start(self) -> None:
        self._zookeeper = InMemoryZooKeeper()
        self._store = await self._zookeeper.cluster()

    async def _run(self, name: str, *words: str) -> None:
        self._log.begin()
        run: Coroutine[Any, Any, None] = getattr(self, f"_{name.replace('-', '_')}")(*words)
        await run
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def _broker(self, number: str) -> None:
        endpoint = ListenerEndpoint("PLAINTEXT", "host", 9000 + int(number))
        await self._store.register_broker(BrokerInfo(int(number), (endpoint,)))

    async def _broker_gone(self, number: str) -> None:
        await self._store.unregister_broker(int(number))

    async def _topic(self, topic: str, *leaders: str) -> None:
        replicas = {number: ReplicaAssignment((int(leader),)) for number, leader in enumerate(leaders)}
        await self._store.create_topics([NewTopic(topic, replicas, {}, uuid.UUID(int=1))])

    async def _grow(self, topic: str, *leaders: str) -> None:
        now = (await self._store.topic_assignments([topic]))[topic]
        more = {
            len(now.partitions) + index: ReplicaAssignment((int(leader),))
            for index, leader in enumerate(leaders)
        }
        await self._store.set_assignment(
            TopicAssignment(topic, now.topic_id, {**now.partitions, **more}, now.version)
        )

    async def _join(self, name: str, *words: str) -> None:
        fields = dict(word.split("=", 1) for word in words)
        streams = int(fields.pop("streams", "1"))
        settings: dict[str, str] = {
            each: fields.pop(each) for each in ("strategy", "retries", "backoff", "busy") if each in fields
        }
        if "white" in fields:
            wanted = by_filter(Whitelist(fields["white"]), streams)
        elif "black" in fields:
            wanted = by_filter(Blacklist(fields["black"]), streams)
        else:
            wanted = TopicCount({topic: int(count) for topic, count in fields.items()})
        session = await self._zookeeper.connect()
        self._members[name] = Member(name, session, self._log, wanted, settings)

    async def _leave(self, name: str) -> None:
        await self._members.pop(name).leave()

    async def _expire(self, name: str) -> None:
        await self._members[name].session.expire()

    async def _reconnect(self, name: str) -> None:
        await self._members[name].session.reconnect()

    async def _stranger_owns(self, topic: str, number: str) -> None:
        self._stranger = await self._zookeeper.connect()
        path = ""
        for part in f"{GROUP}owners/{topic}".strip("/").split("/"):
            path += f"/{part}"
            if await self._stranger.exists(path) is None:
                await self._stranger.create(path)
        await self._stranger.create(f"{path}/{number}", b"stranger-0", ephemeral=True)

    async def _stranger_gone(self) -> None:
        await self._stranger.close()

    async def _forget(self, name: str) -> None:
        await self._store.zookeeper.delete(f"{GROUP}ids/{name}")

    async def _wait(self, seconds: str) -> None:
        await asyncio.sleep(float(seconds))

    async def _owners(self) -> str:
        session = self._store.zookeeper
        if await session.exists(f"{GROUP}owners") is None:
            return "none"
        found = []
        for topic in await session.children(f"{GROUP}owners"):
            for number in await session.children(f"{GROUP}owners/{topic}"):
                data, _ = await session.get(f"{GROUP}owners/{topic}/{number}")
                found.append(f"{topic}-{number}={data.decode()}")
        return " ".join(found) or "none"
