"""Administrators who change topics, settings, replicas, quotas and ACLs: what was acknowledged is so."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from random import Random as SeededRandom
from typing import Final

from kalda.clients.admin.async_admin import AsyncAdmin
from kalda.clients.admin.configs import AlterConfigOp, ConfigResource
from kalda.clients.admin.log_dirs import TopicPartitionReplica
from kalda.clients.admin.partitions import ElectionType
from kalda.clients.admin.quotas import QuotaAlteration, quota_entity
from kalda.clients.admin.topics import NewTopic
from kalda.clients.errors import BrokerResponseError, ClientError
from kalda.clients.producer.async_producer import AsyncProducer
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.security.acl.model import (
    AccessControlEntry,
    AclBinding,
    AclFilter,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from kalda.simulation.checks.facts import Facts
from kalda.simulation.workloads.reading import describe, read_all
from kalda.simulation.world import World

_OWNERS: Final = 2
_TOPICS_EACH: Final = 3
_PARTITIONS_MAX: Final = 4
_SETTLE_SECONDS: Final = 60
_THROTTLE_BYTES: Final = 2_000
_RULE: Final = "what was acknowledged is so"

_REFUSALS: Final = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.REASSIGNMENT_IN_PROGRESS,
        ErrorCode.SECURITY_DISABLED,
    }
)
"""After these nothing was changed."""


class Administration:
    """Administrators, each with topics, a user and ACLs of its own."""

    def __init__(self, world: World) -> None:
        self._world: Final = world
        self._facts: Final = Facts()
        self._written: Final[dict[str, dict[tuple[int, int], bytes]]] = {}
        """The acknowledged records of each topic that exists."""
        self._incarnations: Final[dict[str, int]] = {}
        self._runs = 0
        self._count = 0
        self._done: Final[dict[str, int]] = {}
        """How many operations of each kind were acknowledged."""

    async def set_up(self) -> None:
        """Create nothing: that is what the administrators do."""

    def start(self) -> None:
        """Start the administrators."""
        for number in range(_OWNERS):
            self._world.start_client(f"administrator-{number}", partial(self._administer, number))

    # Operations.

    def _admin(self) -> AsyncAdmin:
        # Without retries: an operation that is sent twice may be done late, after others.
        return AsyncAdmin(
            bootstrap_servers=self._world.bootstrap, request_timeout_ms=6_000, retries=0, retry_backoff_ms=500
        )

    async def _administer(self, number: int) -> None:
        self._runs += 1
        random = self._world.random(f"administrator-{number}.{self._runs}")
        operations = (
            self._produce,
            self._produce,
            self._delete,
            self._grow,
            self._configure,
            self._configure,
            self._reassign,
            self._move,
            self._elect,
            self._delete_records,
            self._limit,
            self._allow,
        )
        async with self._admin() as admin:
            while not self._world.is_stopping:
                name = f"owned-{number}-{random.randrange(_TOPICS_EACH)}"
                if self._facts.get(("topic", name)) is None:
                    await self._create(admin, name, random)
                else:
                    await operations[random.randrange(len(operations))](admin, name, random)
                await asyncio.sleep(random.random() * 2)

    async def _try(
        self, kind: str, key: Hashable, value: object, operation: Callable[[], Awaitable[object]]
    ) -> bool:
        """Do an operation that gives a key a value; return whether it was acknowledged."""
        if self._facts.is_uncertain(key):
            return False
        self._facts.begin(key)
        try:
            await operation()
        except BrokerResponseError as error:
            self._world.history.note(f"{kind} {key}: {error!r:.140}")
            if error.code in _REFUSALS:
                self._facts.refuse(key)
            else:
                self._facts.lose(key)
            return False
        except ClientError as error:
            self._world.history.note(f"{kind} {key}: {error!r:.140}")
            self._facts.lose(key)
            return False
        self._facts.acknowledge(key, value)
        self._done[kind] = self._done.get(kind, 0) + 1
        self._world.history.note(f"{kind} {key}: {value}")
        return True

    async def _create(self, admin: AsyncAdmin, name: str, random: SeededRandom) -> None:
        count = random.randrange(1, _PARTITIONS_MAX)
        incarnation = self._incarnations[name] = self._incarnations.get(name, 0) + 1
        topic = NewTopic(name, count, random.choice((2, 3)), config={"min.insync.replicas": "2"})

        async def create() -> None:
            await admin.create_topics([topic], timeout_ms=10_000)

        if await self._try("create", ("topic", name), incarnation, create):
            self._written[name] = {}
            self._facts.begin(("partitions", name))
            self._facts.acknowledge(("partitions", name), count)

    async def _delete(self, admin: AsyncAdmin, name: str, random: SeededRandom) -> None:
        # Whatever becomes of the call, nothing about the topic is certain any more.
        self._written.pop(name, None)
        for key in dict(self._facts.items()):
            if isinstance(key, tuple) and len(key) > 1 and key[1] == name and key[0] != "topic":
                self._facts.forget(key)

        async def delete() -> None:
            await admin.delete_topics([name], timeout_ms=10_000)

        if await self._try("delete", ("topic", name), 0, delete):
            self._facts.forget(("topic", name))
            self._facts.begin(("gone", name, self._incarnations[name]))
            self._facts.acknowledge(("gone", name, self._incarnations[name]), True)

    async def _grow(self, admin: AsyncAdmin, name: str, random: SeededRandom) -> None:
        count = self._facts.get(("partitions", name))
        if not isinstance(count, int) or count >= _PARTITIONS_MAX:
            return

        async def grow() -> None:
            await admin.create_partitions({name: count + 1}, timeout_ms=10_000)

        await self._try("grow", ("partitions", name), count + 1, grow)

    async def _configure(self, admin: AsyncAdmin, name: str, random: SeededRandom) -> None:
        self._count += 1
        value = str(600_000_000 + self._count)
        change = {ConfigResource.topic(name): [AlterConfigOp.set("retention.ms", value)]}
        await self._try(
            "configure", ("retention.ms", name), value, lambda: admin.incremental_alter_configs(change)
        )

    async def _reassign(self, admin: AsyncAdmin, name: str, random: SeededRandom) -> None:
        replicas = tuple(random.sample(range(3), random.choice((2, 3))))
        everything = [
            AlterConfigOp.set("leader.replication.throttled.replicas", "*"),
            AlterConfigOp.set("follower.replication.throttled.replicas", "*"),
        ]
        rates = [
            AlterConfigOp.set("leader.replication.throttled.rate", str(_THROTTLE_BYTES)),
            AlterConfigOp.set("follower.replication.throttled.rate", str(_THROTTLE_BYTES)),
        ]

        async def reassign() -> None:
            if random.random() < 0.5:
                changes = {ConfigResource.broker(number): rates for number in range(3)}
                await admin.incremental_alter_configs({ConfigResource.topic(name): everything, **changes})
            await admin.alter_partition_reassignments({TopicPartition(name, 0): replicas})

        # A replica that comes back may be in any directory.
        for broker_id in range(3):
            self._facts.forget(("directory", name, broker_id))
        await self._try("reassign", ("replicas", name), replicas, reassign)

    async def _move(self, admin: AsyncAdmin, name: str, random: SeededRandom) -> None:
        directories = self._world.cluster.log_directories
        broker_id = random.randrange(3)
        if len(directories) < 2 or self._facts.get(("replicas", name)) is not None:
            return
        replica = TopicPartitionReplica(name, 0, broker_id)
        directory = random.choice(directories)
        key = ("directory", name, broker_id)
        await self._try("move", key, directory, lambda: admin.alter_replica_log_dirs({replica: directory}))

    async def _elect(self, admin: AsyncAdmin, name: str, random: SeededRandom) -> None:
        partitions = None if random.random() < 0.3 else [TopicPartition(name, 0)]
        try:
            await admin.elect_leaders(ElectionType.PREFERRED, partitions)
        except ClientError as error:
            self._world.history.note(f"elect {name}: {error!r:.140}")

    async def _delete_records(self, admin: AsyncAdmin, name: str, random: SeededRandom) -> None:
        written = self._written.get(name)
        if not written:
            return
        before = random.choice(sorted(offset for partition, offset in written if partition == 0) or [0])
        known = self._facts.get(("start", name))
        if isinstance(known, int) and before <= known:
            return
        partition = TopicPartition(name, 0)
        # Only what is acknowledged is certain to be gone; what may be gone is not missed.
        for place in [place for place in written if place[0] == 0 and place[1] < before]:
            del written[place]
        await self._try(
            "delete-records", ("start", name), before, lambda: admin.delete_records({partition: before})
        )

    async def _limit(self, admin: AsyncAdmin, name: str, random: SeededRandom) -> None:
        self._count += 1
        user = name[: len("owned-0")]
        value = 1_000_000.0 + self._count
        alteration = QuotaAlteration(quota_entity({"user": user}), {"producer_byte_rate": value})
        await self._try("limit", ("quota", user), value, lambda: admin.alter_client_quotas([alteration]))

    async def _allow(self, admin: AsyncAdmin, name: str, random: SeededRandom) -> None:
        principal = f"User:{name}"
        pattern = ResourcePattern(ResourceType.TOPIC, name)
        entry = AccessControlEntry(principal, "*", AclOperation.READ, PermissionType.ALLOW)
        if self._facts.get(("acl", name)):
            # As in Kafka, a filter for several patterns matches those that the asked broker knows of.
            wanted = AclFilter(resource_type=ResourceType.TOPIC, name=name, pattern_type=PatternType.LITERAL)
            await self._try("forbid", ("acl", name), False, lambda: admin.delete_acls([wanted]))
        else:
            binding = AclBinding(pattern, entry)
            await self._try("allow", ("acl", name), True, lambda: admin.create_acls([binding]))

    async def _produce(self, admin: AsyncAdmin, name: str, random: SeededRandom) -> None:
        written = self._written.get(name)
        if written is None:
            return
        producer: AsyncProducer[bytes, bytes] = AsyncProducer(
            bootstrap_servers=self._world.bootstrap,
            delivery_timeout_ms=6_000,
            request_timeout_ms=3_000,
            max_block_ms=4_000,
        )
        try:
            async with producer:
                for _ in range(3):
                    self._count += 1
                    value = f"{name}/{self._incarnations[name]}/{self._count}".encode()
                    metadata = await (await producer.send(name, value, partition=0))
                    written[metadata.partition, metadata.offset] = value
        except ClientError as error:
            self._world.history.note(f"produce to {name}: {error!r:.140}")

    # The end.

    async def check(self) -> None:
        """Compare what the cluster says with what was acknowledged."""
        async with AsyncAdmin(bootstrap_servers=self._world.bootstrap) as admin:
            await self._wait_for_moves(admin)
            listed = await admin.list_topics()
            existing = [
                key[1]
                for key, value in self._facts.items()
                if isinstance(key, tuple) and key[0] == "topic" and value
            ]
            for key in dict(self._facts.items()):
                if isinstance(key, tuple) and key[0] == "gone" and self._is_gone(key) and key[1] in listed:
                    self._violate(f"{key[1]} was deleted, and is listed")
            for name in existing:
                if name not in listed:
                    self._violate(f"{name} was created, and is not listed")
                else:
                    await self._check_topic(admin, name)
            await self._check_users(admin)
        self._world.history.note(f"administration: {dict(sorted(self._done.items()))}")

    def _is_gone(self, key: tuple[str, str, int]) -> bool:
        """Whether no one tried to create the topic again."""
        _, name, incarnation = key
        return self._incarnations[name] == incarnation

    def _violate(self, text: str) -> None:
        self._world.history.violate(_RULE, text)

    async def _wait_for_moves(self, admin: AsyncAdmin) -> None:
        for _ in range(_SETTLE_SECONDS):
            moves = await describe(admin.list_partition_reassignments)
            if not moves:
                return
            await asyncio.sleep(1)
        self._world.history.violate("reassignments end", f"after {_SETTLE_SECONDS} s: {moves}")

    async def _check_topic(self, admin: AsyncAdmin, name: str) -> None:
        description = (await admin.describe_topics([name]))[name]
        self._compare(("partitions", name), len(description.partitions))
        self._compare(("replicas", name), description.partitions[0].replicas)
        resource = ConfigResource.topic(name)
        settings = (await describe(partial(admin.describe_configs, [resource])))[resource]
        self._compare(("retention.ms", name), settings["retention.ms"].value)
        await self._check_directories(admin, name)
        partitions = [TopicPartition(name, each.partition) for each in description.partitions]
        found = await read_all(self._world.bootstrap, partitions)
        own = f"{name}/{self._incarnations[name]}/".encode()
        for place, record in found.items():
            if not (record.value or b"").startswith(own):
                self._violate(f"{record.value!r} at {place} is a record of a topic that was deleted")
        for place, value in self._written.get(name, {}).items():
            if place not in found or found[place].value != value:
                self._violate(f"{value!r} was acknowledged at {place}; there is {found.get(place)}")
        start = self._facts.get(("start", name))
        # Brokers write log start offsets down once in a minute, as Kafka does: a kill may lose the last ones.
        cluster = self._world.cluster
        was_killed = any(cluster.machine(number).starts > 1 for number in cluster.brokers)
        is_read = isinstance(start, int) and any(part == 0 and offset < start for part, offset in found)
        if is_read and not was_killed:
            self._violate(f"records of {name}-0 before {start} were deleted, and are read")

    async def _check_directories(self, admin: AsyncAdmin, name: str) -> None:
        keys = {
            key: value
            for key, value in self._facts.items()
            if isinstance(key, tuple) and key[0] == "directory" and key[1] == name
        }
        for (_, _, broker_id), directory in keys.items():
            replica = TopicPartitionReplica(name, 0, broker_id)
            for _ in range(_SETTLE_SECONDS):
                info = (await admin.describe_replica_log_dirs([replica]))[replica]
                if info.current_replica_log_dir in (None, directory):
                    break
                await asyncio.sleep(1)
            else:
                self._violate(f"{replica} was moved to {directory}; it is in {info}")

    async def _check_users(self, admin: AsyncAdmin) -> None:
        quotas = await describe(admin.describe_client_quotas)
        for key, value in self._facts.items():
            if isinstance(key, tuple) and key[0] == "quota":
                found = quotas.get(quota_entity({"user": key[1]}), {}).get("producer_byte_rate")
                self._compare(key, found)
            if isinstance(key, tuple) and key[0] == "acl" and value is not None:
                of_topic = AclFilter(resource_type=ResourceType.TOPIC, name=key[1])
                bindings = await describe(partial(admin.describe_acls, of_topic))
                self._compare(key, bool(bindings))

    def _compare(self, key: Hashable, found: object) -> None:
        expected = self._facts.get(key)
        if expected is not None and found != expected:
            self._violate(f"{key} was set to {expected}, and is {found}")
