"""Transactions of Kalda's own producer against real brokers, with both protocols (KIP-98, KIP-890)."""

import asyncio
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kalda import AsyncProducer, Consumer, Producer, TopicPartition
from kalda.clients.config.common_config import CommonClientConfig
from kalda.clients.coordinator_lookup import CoordinatorType
from kalda.clients.errors import (
    FatalTransactionError,
    IllegalStateError,
    ProducerFencedError,
    RequestTimedOutError,
    TransactionAbortableError,
    TransactionAbortedError,
)
from kalda.clients.metadata import Metadata
from kalda.clients.network_client import NetworkClient, coordinator_node_id
from kalda.clients.values import ConsumerGroupMetadata
from kalda.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from kalda.testing import ProcessCluster
from tests.integration.groups.members import wait_until
from tests.integration.transactions.clients import read_all

PARTITIONS = 3
SETTINGS = {
    "transaction.state.log.num.partitions": "4",
    "offsets.topic.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "transaction.two.phase.commit.enable": "true",
}
THREE = {**SETTINGS, "default.replication.factor": "3", "zookeeper.session.timeout.ms": "3000"}
UnusedTopic = Callable[[ProcessCluster], str]


def set_transaction_version(bootstrap: str, level: int) -> None:
    """Finalize a level of ``transaction.version``; clients see it with their next connection."""

    async def update() -> None:
        client = NetworkClient(CommonClientConfig.from_options({"bootstrap_servers": bootstrap}), Metadata())
        client.start()
        try:
            request = UpdateFeaturesRequest(
                timeout_ms=10_000,
                feature_updates=[
                    FeatureUpdateKey(feature="transaction.version", max_version_level=level, upgrade_type=2)
                ],
            )
            controller_id = (await client.refresh_metadata(timeout_ms=60_000)).controller_id
            response = await client.send(controller_id, request, UpdateFeaturesResponse)
            assert 0 == response.error_code, response
        finally:
            await client.close()

    asyncio.run(update())


@pytest.fixture(scope="module")
def one_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path_factory.mktemp("v2"), brokers=1, settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def one_broker_v1(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path_factory.mktemp("v1"), brokers=1, settings=SETTINGS) as cluster:
        set_transaction_version(cluster.bootstrap, 1)
        yield cluster


@pytest.fixture(scope="module")
def three_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path_factory.mktemp("three"), brokers=3, settings=THREE) as cluster:
        yield cluster


@pytest.fixture(params=["one_broker", "one_broker_v1"])
def cluster(request: pytest.FixtureRequest) -> ProcessCluster:
    """A cluster for each protocol."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, ProcessCluster)
    return found


@pytest.fixture
def transactional_id() -> str:
    return f"id-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def make_topic() -> UnusedTopic:
    def make(cluster: ProcessCluster) -> str:
        name = f"txn-{uuid.uuid4().hex[:10]}"
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(name, PARTITIONS, -1)])[name].result(30)
        return name

    return make


def committed(cluster: ProcessCluster, topic: str) -> list[str]:
    return sorted(read_all(cluster.bootstrap, topic, PARTITIONS, committed=True))


def coordinator_of(cluster: ProcessCluster, transactional_id: str) -> int:
    """Return the broker that coordinates a transactional id."""

    async def find() -> int:
        config = CommonClientConfig.from_options({"bootstrap_servers": cluster.bootstrap})
        client = NetworkClient(config, Metadata())
        try:
            return coordinator_node_id(
                await client.coordinator(transactional_id, CoordinatorType.TRANSACTION)
            )
        finally:
            await client.close()

    return asyncio.run(find())


def group_offsets(cluster: ProcessCluster, group: str, topic: str) -> list[int]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
    try:
        asked = [confluent_kafka.TopicPartition(topic, number) for number in range(PARTITIONS)]
        return [each.offset for each in consumer.committed(asked, 20)]
    finally:
        consumer.close()


def test_a_block_commits_and_an_exception_aborts(
    cluster: ProcessCluster, transactional_id: str, make_topic: UnusedTopic
) -> None:
    topic = make_topic(cluster)
    with Producer(bootstrap_servers=cluster.bootstrap, transactional_id=transactional_id) as producer:
        producer.init_transactions()
        for number in range(4):
            with producer.transaction():
                for partition in range(PARTITIONS):
                    producer.send(topic, b"%d" % number, partition=partition)
        with pytest.raises(ZeroDivisionError), producer.transaction():
            send_and_fail(producer, topic)
        with producer.transaction():
            producer.send(topic, b"last", partition=0)

    expected = sorted([str(number) for number in range(4)] * PARTITIONS + ["last"])
    assert expected == committed(cluster, topic)


def send_and_fail(producer: Producer, topic: str) -> None:
    producer.send(topic, b"aborted")
    producer.flush()
    raise ZeroDivisionError


def test_abort_drops_what_was_not_sent(
    cluster: ProcessCluster, transactional_id: str, make_topic: UnusedTopic
) -> None:
    """A lingering record's future fails; the broker never sees the record."""
    topic = make_topic(cluster)
    with Producer(
        bootstrap_servers=cluster.bootstrap, transactional_id=transactional_id, linger_ms=60_000
    ) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        future = producer.send(topic, b"dropped")
        producer.abort_transaction()
        with pytest.raises(TransactionAbortedError, match="aborted before the record was sent"):
            future.result(60)
        with producer.transaction():
            sent = producer.send(topic, b"kept")
        assert sent.result(0).offset >= 0

    assert ["kept"] == read_all(cluster.bootstrap, topic, PARTITIONS, committed=False)


def test_offsets_are_committed_with_the_records(
    cluster: ProcessCluster, transactional_id: str, make_topic: UnusedTopic
) -> None:
    topic = make_topic(cluster)
    group = f"group-{transactional_id}"
    with Producer(bootstrap_servers=cluster.bootstrap, transactional_id=transactional_id) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send(topic, b"copied")
            producer.send_offsets_to_transaction(
                {TopicPartition(topic, 0): 5, TopicPartition(topic, 2): 7}, group
            )
        after_commit = group_offsets(cluster, group, topic)
        producer.begin_transaction()
        producer.send_offsets_to_transaction({TopicPartition(topic, 0): 99}, group)
        producer.abort_transaction()

    assert [5, -1001, 7] == after_commit
    assert [5, -1001, 7] == group_offsets(cluster, group, topic)


def test_a_member_that_the_group_does_not_know_is_refused(
    cluster: ProcessCluster, transactional_id: str, make_topic: UnusedTopic
) -> None:
    """A consumer that was thrown out of its group must not commit for it (KIP-447)."""
    topic = make_topic(cluster)
    zombie = ConsumerGroupMetadata(f"group-{transactional_id}", 3, "member-gone")
    with Producer(bootstrap_servers=cluster.bootstrap, transactional_id=transactional_id) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"lost")
        with pytest.raises(TransactionAbortableError, match=r"UNKNOWN_MEMBER_ID|ILLEGAL_GENERATION"):
            producer.send_offsets_to_transaction({TopicPartition(topic, 0): 5}, zombie)
        with pytest.raises(TransactionAbortableError, match="call abort_transaction"):
            producer.send(topic, b"lost, too")
        with pytest.raises(TransactionAbortableError):
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"next")

    assert ["next"] == committed(cluster, topic)


def test_a_successor_fences_its_predecessor(
    cluster: ProcessCluster, transactional_id: str, make_topic: UnusedTopic
) -> None:
    topic = make_topic(cluster)
    with (
        Producer(bootstrap_servers=cluster.bootstrap, transactional_id=transactional_id) as zombie,
        Producer(bootstrap_servers=cluster.bootstrap, transactional_id=transactional_id) as successor,
    ):
        zombie.init_transactions()
        zombie.begin_transaction()
        zombie.send(topic, b"zombie").result(60)
        successor.init_transactions()
        with successor.transaction():
            successor.send(topic, b"successor")
        with pytest.raises(ProducerFencedError, match="another producer uses the transactional id"):
            zombie.commit_transaction()
        with pytest.raises(ProducerFencedError):
            zombie.send(topic, b"zombie")
        with pytest.raises(ProducerFencedError):
            zombie.begin_transaction()

    assert ["successor"] == committed(cluster, topic)


def test_a_transaction_that_timed_out_cannot_be_committed(
    cluster: ProcessCluster, transactional_id: str, make_topic: UnusedTopic
) -> None:
    """The coordinator has aborted it; in no case may the commit seem to succeed (KIP-588)."""
    topic = make_topic(cluster)
    with Producer(
        bootstrap_servers=cluster.bootstrap, transactional_id=transactional_id, transaction_timeout_ms=5_000
    ) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        partition = producer.send(topic, b"late").result(60).partition
        with Producer(bootstrap_servers=cluster.bootstrap) as other:
            other.send(topic, b"behind it", partition=partition).result(60)
        wait_until(lambda: ["behind it"] == committed(cluster, topic), "the transaction is aborted")
        with pytest.raises((FatalTransactionError, TransactionAbortableError)):
            producer.commit_transaction()

    assert ["behind it"] == committed(cluster, topic)


async def fail_in_a_transaction(producer: AsyncProducer, topic: str) -> None:
    async with producer.transaction():
        await producer.send(topic, b"dropped")
        raise ZeroDivisionError


async def test_the_asyncio_producer_has_the_same_transactions(
    one_broker: ProcessCluster, transactional_id: str, make_topic: UnusedTopic
) -> None:
    topic = await asyncio.to_thread(make_topic, one_broker)
    async with AsyncProducer(
        bootstrap_servers=one_broker.bootstrap, transactional_id=transactional_id
    ) as producer:
        await producer.init_transactions()
        async with producer.transaction():
            await producer.send(topic, b"kept")
            await producer.send_offsets_to_transaction({TopicPartition(topic, 1): 3}, "async-group")
        with pytest.raises(ZeroDivisionError):
            await fail_in_a_transaction(producer, topic)
        await producer.begin_transaction()
        await producer.send(topic, b"kept, too")
        await producer.commit_transaction()
        await producer.begin_transaction()
        await producer.abort_transaction()

    assert ["kept", "kept, too"] == await asyncio.to_thread(committed, one_broker, topic)
    assert [-1001, 3, -1001] == await asyncio.to_thread(group_offsets, one_broker, "async-group", topic)


def test_calls_out_of_turn_say_what_comes_first(one_broker: ProcessCluster, transactional_id: str) -> None:
    with (
        Producer(bootstrap_servers=one_broker.bootstrap) as plain,
        pytest.raises(IllegalStateError, match="needs a producer with transactional_id"),
    ):
        plain.init_transactions()
    with Producer(bootstrap_servers=one_broker.bootstrap, transactional_id=transactional_id) as producer:
        with pytest.raises(IllegalStateError, match="call init_transactions first"):
            producer.begin_transaction()
        with pytest.raises(IllegalStateError, match="init_transactions and begin_transaction first"):
            producer.send("t", b"v")
        producer.init_transactions()
        with pytest.raises(IllegalStateError, match="it is called once"):
            producer.init_transactions()
        with pytest.raises(IllegalStateError, match="call begin_transaction first"):
            producer.commit_transaction()
        with pytest.raises(IllegalStateError, match="transaction_two_phase_commit_enable"):
            producer.prepare_transaction()


def test_a_time_out_that_the_coordinator_refuses_is_fatal(
    one_broker: ProcessCluster, transactional_id: str
) -> None:
    with (
        Producer(
            bootstrap_servers=one_broker.bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=2**31 - 1,
        ) as producer,
        pytest.raises(FatalTransactionError, match="INVALID_TRANSACTION_TIMEOUT"),
    ):
        producer.init_transactions()


def test_without_brokers_init_is_bounded_and_close_returns() -> None:
    with Producer(bootstrap_servers="127.0.0.1:1", transactional_id="t", max_block_ms=200) as producer:
        with pytest.raises(RequestTimedOutError, match=r"init_transactions was not done within"):
            producer.init_transactions()
        with pytest.raises(RequestTimedOutError):
            producer.init_transactions()
        producer.close(timeout_s=0.2)


def test_a_coordinator_that_is_killed_is_replaced(
    three_brokers: ProcessCluster, transactional_id: str, make_topic: UnusedTopic
) -> None:
    """Commits go on with the broker that takes over; nothing is lost, doubled or torn."""
    cluster = three_brokers
    topic = make_topic(cluster)
    with Producer(bootstrap_servers=cluster.bootstrap, transactional_id=transactional_id) as producer:
        producer.init_transactions()
        coordinator = coordinator_of(cluster, transactional_id)
        done: list[int] = []
        for number in range(30):
            if number == 10:
                cluster.kill(coordinator)
            if number == 20:
                cluster.start(coordinator)
            try:
                with producer.transaction():
                    for partition in range(PARTITIONS):
                        producer.send(topic, b"%d" % number, partition=partition)
            except TransactionAbortableError:
                continue
            done.append(number)

    assert sorted(str(number) for number in done for _ in range(PARTITIONS)) == committed(cluster, topic)
    assert len(done) >= 28


TWO_PHASE = """
import sys
from kalda import Producer
bootstrap, transactional_id, topic = sys.argv[1:]
producer = Producer(
    bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_two_phase_commit_enable=True
)
producer.init_transactions()
producer.begin_transaction()
producer.send(topic, b"prepared")
print(producer.prepare_transaction(), flush=True)
import os
os._exit(0)
"""


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_prepared_transaction_is_completed_by_another_process(
    one_broker: ProcessCluster, transactional_id: str, make_topic: UnusedTopic, is_committed: bool
) -> None:
    """The process that prepared it is gone; the token alone decides (KIP-939)."""
    topic = make_topic(one_broker)
    token = subprocess.run(
        [sys.executable, "-c", TWO_PHASE, one_broker.bootstrap, transactional_id, topic],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.strip()
    with Producer(
        bootstrap_servers=one_broker.bootstrap,
        transactional_id=transactional_id,
        transaction_two_phase_commit_enable=True,
    ) as producer:
        kept = producer.init_transactions(keep_prepared=True)
        assert token == str(kept)
        with pytest.raises(IllegalStateError, match="complete the prepared transaction first"):
            producer.begin_transaction()
        producer.complete_transaction(token if is_committed else "")
        with producer.transaction():
            producer.send(topic, b"next")

    assert (["next", "prepared"] if is_committed else ["next"]) == committed(one_broker, topic)


def test_a_prepared_block_stays_prepared(
    one_broker: ProcessCluster, transactional_id: str, make_topic: UnusedTopic
) -> None:
    topic = make_topic(one_broker)
    with Producer(
        bootstrap_servers=one_broker.bootstrap,
        transactional_id=transactional_id,
        transaction_two_phase_commit_enable=True,
    ) as producer:
        assert not producer.init_transactions(keep_prepared=True).has_transaction
        with pytest.raises(IllegalStateError, match="no transaction is prepared"):
            producer.complete_transaction("")
        with producer.transaction():
            producer.send(topic, b"value")
            token = producer.prepare_transaction()
            with pytest.raises(IllegalStateError):
                producer.send(topic, b"too late")
        before = committed(one_broker, topic)
        producer.complete_transaction(token)

    assert [] == before
    assert ["value"] == committed(one_broker, topic)


def copy(
    cluster: ProcessCluster, source: str, target: str, transactional_id: str, group: str, *, fails_at: int
) -> int:
    """Copy what is there at present in transactions of up to 20 records; return how many were committed."""
    copied = 0
    with (
        Consumer(
            source,
            bootstrap_servers=cluster.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        ) as consumer,
        Producer(bootstrap_servers=cluster.bootstrap, transactional_id=transactional_id) as producer,
    ):
        producer.init_transactions()
        while records := consumer.poll(5.0, max_records=20):
            positions = {TopicPartition(each.topic, each.partition): each.offset + 1 for each in records}
            producer.begin_transaction()
            for each in records:
                producer.send(target, each.value)
            producer.send_offsets_to_transaction(positions, consumer.group_metadata())
            if copied == fails_at:
                # As after a failure: the records are read again, and what was written is not seen.
                producer.abort_transaction()
                return copied
            producer.commit_transaction()
            copied += len(records)
    return copied


@pytest.mark.parametrize("brokers", ["one_broker", "one_broker_v1", "three_brokers"])
def test_read_process_write_is_exactly_once(
    request: pytest.FixtureRequest, transactional_id: str, make_topic: UnusedTopic, brokers: str
) -> None:
    """Each record of the source is in the target once, although the first copier fails in the middle."""
    cluster = request.getfixturevalue(brokers)
    source, target = make_topic(cluster), make_topic(cluster)
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(200):
            producer.send(source, b"%d" % number)
    group = f"copiers-{transactional_id}"

    first = copy(cluster, source, target, transactional_id, group, fails_at=60)
    second = copy(cluster, source, target, f"{transactional_id}-2", group, fails_at=-1)

    assert 60 == first
    assert 140 == second
    assert sorted(str(number) for number in range(200)) == committed(cluster, target)
