"""A follower's fetchers against a real broker: what the leader has gets here, and nothing else."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from kalda.broker.replicas.follower.replica_fetcher_manager import ReplicaFetcherManager
from kalda.broker.replicas.in_sync import FollowerState
from kalda.broker.replicas.partition import Partition
from kalda.broker.replicas.replication_quota import FOLLOWER_REPLICAS, ReplicationQuota
from kalda.broker.server import BrokerServer
from kalda.common.types import ZERO_UUID, BrokerEndpoint, TopicPartition
from kalda.controller.effects import PartitionLeadership
from kalda.net.peer.dialer import TcpDialer
from kalda.runtime.system.clock import SystemClock
from kalda.settings import BrokerConfig
from kalda.storage.log_config import LogConfig
from kalda.storage.log_manager import LogManager
from kalda.storage.log_types import FetchIsolation
from tests.integration.broker.test_broker_server import TOPIC, Client, broker_at
from tests.runtimes import rules_without_followers, seeded
from tests.unit.storage.log_fixtures import batch

LEADER, FOLLOWER = 0, 2


class Follower:
    """One replica that follows a broker without belonging to its cluster."""

    def __init__(self, leader: BrokerServer, directory: Path, tasks: asyncio.TaskGroup) -> None:
        config = BrokerConfig.from_properties(
            {"broker.id": "2", "log.dirs": str(directory), "replica.fetch.backoff.ms": "50"}
        )
        clock = SystemClock()
        self.leader = leader
        self.woken: list[Partition] = []
        self.logs = LogManager([str(directory)], lambda _: LogConfig(), clock)
        self.logs.load()
        self.fetchers = ReplicaFetcherManager(
            FOLLOWER,
            config,
            dialer=TcpDialer(),
            find_broker=self._find,
            quota=ReplicationQuota(
                FOLLOWER_REPLICAS, FOLLOWER, lambda _: {}, clock, sample_count=11, sample_seconds=1
            ),
            wake=self.woken.append,
            broker_epoch=lambda: -1,
            clock=clock,
            random=seeded(),
            tasks=tasks,
        )

    def _find(self, broker_id: int) -> BrokerEndpoint | None:
        assert LEADER == broker_id
        host, _, port = self.leader.bootstrap.rpartition(":")
        return BrokerEndpoint(LEADER, host, int(port))

    def replica(self, leader_epoch: int | None = None, topic_id: uuid.UUID | None = None) -> Partition:
        led = self.led()
        topic_id = led.topic_id if topic_id is None else topic_id
        # The controller never heard of this replica; the leader takes it for one outside of the ISR.
        led.followers.setdefault(FOLLOWER, FollowerState())
        log = self.logs.get_or_create(led.topic_partition, topic_id)
        partition = Partition(led.topic_partition, topic_id, FOLLOWER, log, rules_without_followers())
        partition.become_follower(
            PartitionLeadership(
                TOPIC,
                topic_id,
                0,
                controller_epoch=1,
                leader=LEADER,
                leader_epoch=led.leader_epoch if leader_epoch is None else leader_epoch,
                isr=(LEADER,),
                partition_epoch=0,
                replicas=(LEADER, FOLLOWER),
            )
        )
        return partition

    def append(self, *values: bytes) -> None:
        """Have the leader append a batch, whoever else has it."""
        self.leader.services.replica_manager.append(self.led(), memoryview(batch(*values)), 1)

    def failures(self, replica: Partition) -> int:
        state = self.fetchers.state(replica.topic_partition)
        assert state is not None
        return state.failures

    def led(self) -> Partition:
        return self.leader.services.replica_manager.partition(TopicPartition(TOPIC, 0))


@asynccontextmanager
async def following(leader: BrokerServer, directory: Path) -> AsyncIterator[Follower]:
    async with asyncio.TaskGroup() as tasks:
        follower = Follower(leader, directory, tasks)
        try:
            yield follower
        finally:
            await follower.fetchers.close()
            follower.logs.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


def bytes_of(partition: Partition) -> bytes:
    return partition.log.read(partition.log.log_start_offset, 1 << 30, FetchIsolation.LOG_END).records.read()


async def test_what_the_leader_appends_gets_to_the_follower_byte_for_byte(tmp_path: Path) -> None:
    async with broker_at(tmp_path / "leader") as broker, Client.connect(broker) as client:
        await client.create_topic()
        await client.produce(b"a", b"b")
        async with following(broker, tmp_path / "follower") as follower:
            replica = follower.replica()
            follower.fetchers.follow([replica])
            await until(lambda: replica.log.log_end_offset == 2)
            for number in range(20):
                await client.produce(b"%d" % number)
            await until(lambda: replica.log.high_watermark == 22)
            assert bytes_of(follower.led()) == bytes_of(replica)
            assert replica in follower.woken
            statistics = follower.fetchers.statistics()
            assert (1, 1, 0, 0) == (
                statistics.fetchers,
                statistics.partitions,
                statistics.failed_partitions,
                statistics.max_lag,
            )
            assert len(bytes_of(replica)) == statistics.bytes_in


async def test_a_topic_without_an_id_is_followed_by_name_until_it_has_one(tmp_path: Path) -> None:
    """A controller with an inter-broker protocol below 2.8 sends no ids."""
    async with broker_at(tmp_path / "leader") as broker, Client.connect(broker) as client:
        await client.create_topic()
        await client.produce(b"a", b"b")
        async with following(broker, tmp_path / "follower") as follower:
            replica = follower.replica(topic_id=ZERO_UUID)
            follower.fetchers.follow([replica])
            await until(lambda: replica.log.log_end_offset == 2)
            await client.produce(b"c")
            await until(lambda: replica.log.high_watermark == 3)
            replica.topic_id, replica.is_named_by_id = follower.led().topic_id, True
            follower.fetchers.follow([replica])
            await client.produce(b"d")
            await until(lambda: replica.log.high_watermark == 4)
            assert bytes_of(follower.led()) == bytes_of(replica)


async def test_an_unfollowed_log_gets_nothing_more_and_goes_on_when_followed_again(tmp_path: Path) -> None:
    async with broker_at(tmp_path / "leader") as broker, Client.connect(broker) as client:
        await client.create_topic()
        async with following(broker, tmp_path / "follower") as follower:
            replica = follower.replica()
            follower.fetchers.follow([replica])
            follower.append(b"a")
            await until(lambda: replica.log.log_end_offset == 1)
            follower.fetchers.unfollow([replica.topic_partition])
            follower.append(b"b")
            await asyncio.sleep(0.05)
            assert 1 == replica.log.log_end_offset
            follower.fetchers.follow([replica])
            await until(lambda: replica.log.high_watermark == 2)


async def test_what_the_leader_does_not_have_is_cut_off_by_epoch(tmp_path: Path) -> None:
    async with broker_at(tmp_path / "leader") as broker, Client.connect(broker) as client:
        await client.create_topic()
        async with following(broker, tmp_path / "follower") as follower:
            replica = follower.replica()
            follower.append(b"a")
            follower.fetchers.follow([replica])
            await until(lambda: replica.log.log_end_offset == 1)
            follower.fetchers.unfollow([replica.topic_partition])
            follower.led().log.assign_leader_epoch(2)
            follower.led().leader_epoch = 2
            replica.log.append_as_leader(batch(b"written while leading in epoch 1"), 1)
            replica.leader_epoch = 2
            follower.fetchers.follow([replica])
            follower.append(b"b", b"c")
            await until(lambda: replica.log.high_watermark == 3)
            assert bytes_of(follower.led()) == bytes_of(replica)


async def test_a_batch_that_does_not_continue_the_log_is_refused(tmp_path: Path) -> None:
    """Two logs that part within one epoch: somebody lies, and the follower must not join in."""
    async with broker_at(tmp_path / "leader") as broker, Client.connect(broker) as client:
        await client.create_topic()
        async with following(broker, tmp_path / "follower") as follower:
            replica = follower.replica()
            replica.log.append_as_leader(batch(b"x"), 0)
            follower.append(b"a", b"b")
            before = bytes_of(replica)
            follower.fetchers.follow([replica])
            await until(lambda: follower.failures(replica) > 2)
            assert before == bytes_of(replica)
            assert 0 == replica.log.high_watermark


async def test_records_that_the_leader_deleted_are_skipped_and_deleted(tmp_path: Path) -> None:
    """The follower starts over where the leader's log begins, which may be inside a batch."""
    async with broker_at(tmp_path / "leader") as broker, Client.connect(broker) as client:
        await client.create_topic()
        await client.produce(b"a", b"b", b"c")
        async with following(broker, tmp_path / "follower") as follower:
            follower.led().log.delete_records_before(2)
            replica = follower.replica()
            follower.fetchers.follow([replica])
            await until(lambda: replica.log.high_watermark == 3 and replica.log.log_start_offset == 2)
            await client.produce(b"d")
            await until(lambda: replica.log.log_end_offset == 4)
            follower.led().log.delete_records_before(4)
            await client.produce(b"e")
            await until(lambda: replica.log.log_start_offset == 4)


async def test_a_partition_of_another_topic_id_is_never_filled(tmp_path: Path) -> None:
    async with broker_at(tmp_path / "leader") as broker, Client.connect(broker) as client:
        await client.create_topic()
        await client.produce(b"a")
        async with following(broker, tmp_path / "follower") as follower:
            replica = follower.replica()
            other = Partition(
                TopicPartition("other", 0),
                uuid.UUID(int=99),
                FOLLOWER,
                replica.log,
                rules_without_followers(),
            )
            other.leader_id, other.leader_epoch = LEADER, 0
            follower.fetchers.follow([other])
            await until(
                lambda: (
                    (state := follower.fetchers.state(other.topic_partition)) is not None
                    and state.failures > 2
                )
            )
            assert 0 == replica.log.log_end_offset
