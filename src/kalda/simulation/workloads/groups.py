"""Members of a group that join, leave, are slow and are killed: at least once, one owner, no commit lost."""

import asyncio
from collections.abc import Collection
from functools import partial
from typing import Any, Final, TypeAlias

from kalda.clients.admin.async_admin import AsyncAdmin
from kalda.clients.admin.topics import NewTopic
from kalda.clients.consumer.async_consumer import AsyncConsumer
from kalda.clients.consumer.rebalance_listener import ConsumerRebalanceListener
from kalda.clients.errors import ClientError
from kalda.common.overriding import override
from kalda.common.types import TopicPartition
from kalda.simulation.checks.ownership import CommitCheck, OwnershipCheck
from kalda.simulation.workloads.feeding import Feeder
from kalda.simulation.workloads.reading import polled
from kalda.simulation.world import World

TOPIC: Final = "letters"
GROUP: Final = "readers"
_PARTITIONS: Final = 4
_MEMBERS: Final = 3
_SETTLE_SECONDS: Final = 60.0
_QUIET_SECONDS: Final = 3.0
_STANDS_STILL: Final = 0.15
"""The part of commits before which a member stands still."""

_Consumer: TypeAlias = AsyncConsumer[bytes, bytes]

_KINDS: Final[dict[str, dict[str, Any]]] = {
    "range": {
        "partition_assignment_strategy": "range",
        "session_timeout_ms": 6_000,
        "heartbeat_interval_ms": 1_500,
    },
    "cooperative-sticky": {
        "partition_assignment_strategy": "cooperative-sticky",
        "session_timeout_ms": 6_000,
        "heartbeat_interval_ms": 1_500,
    },
    "consumer": {"group_protocol": "consumer"},
}


class Readers:
    """Members of one group, with a protocol and an assignor that the seed chooses, and their producer."""

    def __init__(self, world: World) -> None:
        self._world: Final = world
        kinds = [kind for kind in _KINDS if kind != "consumer" or not world.is_mixed]
        self._kind: Final = world.random("readers").choice(kinds)
        self._feeder: Final = Feeder(world, TOPIC, _PARTITIONS, 0.8)
        self._delivered: Final[set[bytes]] = set()
        self._generations: Final[dict[str, int]] = {}
        """The generation of each member at its last poll."""
        self._ownership: Final = OwnershipCheck()
        self._commits: Final = CommitCheck()
        self._runs = 0

    async def set_up(self) -> None:
        """Create the topic."""
        async with AsyncAdmin(bootstrap_servers=self._world.bootstrap) as admin:
            await admin.create_topics([NewTopic(TOPIC, _PARTITIONS, 3, config={"min.insync.replicas": "2"})])

    def start(self) -> None:
        """Start the members and the producer that feeds them."""
        self._world.start_client("letters-feeder", self._feeder.run)
        for number in range(_MEMBERS):
            self._world.start_client(f"reader-{number}", partial(self._belong, number))

    async def check(self) -> None:
        """Let two members settle and read what is left; everything acknowledged must have been delivered."""
        members = [self._consumer(f"reader-end-{number}") for number in range(2)]
        for member in members:
            await member.start()
        try:
            await self._settle(members)
            end = self._world.now + _SETTLE_SECONDS
            while self._undelivered() and self._world.now < end:
                for member in members:
                    self._take(await member.poll(0.2), await member.group_metadata())
        finally:
            for member in members:
                await member.close()
        for place, value in self._undelivered().items():
            self._world.history.violate("at least once", f"{value!r} at {place} was never delivered")
        self._world.history.note(
            f"{len(self._feeder.acknowledged)} letters acknowledged, {len(self._delivered)} delivered to "
            f"{self._runs} members of {self._kind}; committed {self._commits.known()}"
        )

    def _undelivered(self) -> dict[tuple[int, int], bytes]:
        acknowledged = self._feeder.acknowledged
        return {place: value for place, value in acknowledged.items() if value not in self._delivered}

    async def _settle(self, members: list[_Consumer]) -> None:
        """Poll until the members own all partitions between them, each one, and it stays so."""
        deadline = self._world.now + _SETTLE_SECONDS
        since = self._world.now
        before: list[set[TopicPartition]] = []
        while self._world.now < deadline:
            for member in members:
                self._take(await member.poll(0.2), await member.group_metadata())
            owned = [await member.assignment() for member in members]
            if owned != before or sum(map(len, owned)) != _PARTITIONS or not all(owned):
                before, since = owned, self._world.now
            elif self._world.now - since >= _QUIET_SECONDS:
                return
        self._world.history.violate(
            "groups settle", f"two members of {self._kind} own {before} after {_SETTLE_SECONDS:g} s"
        )

    def _consumer(self, name: str, **options: Any) -> _Consumer:
        return AsyncConsumer(
            TOPIC,
            bootstrap_servers=self._world.bootstrap,
            client_id=name,
            group_id=GROUP,
            auto_offset_reset="earliest",
            request_timeout_ms=4_000,
            max_poll_interval_ms=9_000,
            **_KINDS[self._kind],
            **{"enable_auto_commit": False, **options},
        )

    async def _belong(self, number: int) -> None:
        self._runs += 1
        random = self._world.random(f"reader-{number}.{self._runs}")
        while not self._world.is_stopping:
            name = f"reader-{number}"
            try:
                await self._be_member(name, random.uniform(4, 30), random)
            except ClientError as error:
                self._world.history.note(f"{name} leaves after {error!r:.160}")
            await asyncio.sleep(random.random() * 3)

    async def _be_member(self, name: str, seconds: float, random: Any) -> None:
        self._runs += 1
        commits_itself = random.random() < 0.3
        consumer = self._consumer(name, enable_auto_commit=commits_itself, auto_commit_interval_ms=1_000)
        end = self._world.now + seconds
        async with consumer:
            await consumer.subscribe([TOPIC], _Listener(self._world, consumer, self._commits))
            while self._world.now < end and not self._world.is_stopping:
                records = await polled(consumer, 0.5, random.randrange(1, 30))
                self._take(records, await consumer.group_metadata())
                if random.random() < 0.03:
                    await asyncio.sleep(random.random() * 14)
                if records and not commits_itself and random.random() < 0.5:
                    offsets = {TopicPartition(TOPIC, each.partition): each.offset + 1 for each in records}
                    if random.random() < _STANDS_STILL:
                        # Long enough to be removed, and for others to go on behind what it commits then.
                        await self._world.stand_still(random.uniform(7, 16))
                    known = self._commits.known()
                    await consumer.commit(offsets, timeout_s=10)
                    numbers = {each.partition: offset for each, offset in offsets.items()}
                    for text in self._commits.committed(known, numbers):
                        self._world.history.violate("committed offsets never go back", text)

    def _take(self, records: list[Any], metadata: Any) -> None:
        for record in records:
            self._delivered.add(record.value or b"")
        before = self._generations.get(metadata.member_id)
        self._generations[metadata.member_id] = metadata.generation_id
        if before != metadata.generation_id:
            # A cooperative member keeps its partitions while it joins a generation, which may never complete.
            return
        for number in {record.partition for record in records}:
            wrong = self._ownership.delivered(metadata.generation_id, number, metadata.member_id)
            if wrong is not None and metadata.generation_id >= 0:
                self._world.history.violate("one owner in each generation", wrong)


class _Listener(ConsumerRebalanceListener):
    """Reads the committed offsets of partitions that a member begins to own."""

    def __init__(self, world: World, consumer: _Consumer, commits: CommitCheck) -> None:
        self._world: Final = world
        self._consumer: Final = consumer
        self._commits: Final = commits

    @override
    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        known = self._commits.known()
        try:
            found = await self._consumer.committed(partitions, timeout_s=2)
        except ClientError:
            return
        offsets = {each.partition: at.offset if at is not None else None for each, at in found.items()}
        for text in CommitCheck.read(known, offsets):
            self._world.history.violate("committed offsets never go back", text)
