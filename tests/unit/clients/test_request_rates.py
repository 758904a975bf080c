"""How often whole clients ask a broker that answers one API with one error for ever, in virtual time.

The broker is scripted below the clients' connections, so that every loop of a client is in the test:
metadata, coordinators, groups, positions, fetches, batches, transactions and admin calls. Every API that a
client uses is answered with every error code; the number of requests in some seconds has a bound.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kalda.clients.admin.async_admin import AsyncAdmin
from kalda.clients.admin.topics import NewTopic
from kalda.clients.consumer.async_consumer import AsyncConsumer
from kalda.clients.errors import ClientError, UnknownTopicOrPartitionError
from kalda.clients.producer.async_producer import AsyncProducer
from kalda.clients.share.async_share_consumer import AsyncShareConsumer
from kalda.clients.values import OffsetAndMetadata
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from tests.unit.clients.erring_broker import (
    TOPIC,
    USER_PAUSE_S,
    Broker,
    Connection,
    places,
    turns,
    virtual,
)
from tests.virtual_time import run_virtual

__all__ = ["virtual"]


ERRORS = [*(code for code in ErrorCode if code is not ErrorCode.NONE), None]
"""None for a broker that closes the connection instead of an answer."""


pytestmark = pytest.mark.usefixtures("virtual")


async def produces() -> None:
    producer = AsyncProducer(bootstrap_servers="b:9092", enable_metrics_push=False, max_block_ms=2_000)

    async def turn() -> None:
        future = await producer.send(TOPIC, b"v")
        await future
        await asyncio.sleep(USER_PAUSE_S)

    await producer.start()
    await turns(turn)
    await producer.close(0.0)


async def transacts() -> None:
    producer = AsyncProducer(
        bootstrap_servers="b:9092", enable_metrics_push=False, transactional_id="x", max_block_ms=2_000
    )
    group = AsyncConsumer(bootstrap_servers="b:9092", enable_metrics_push=False, group_id="g")

    async def turn() -> None:
        await producer.init_transactions()
        await producer.begin_transaction()
        try:
            await producer.send(TOPIC, b"v")
            offsets = {TopicPartition(TOPIC, 0): OffsetAndMetadata(1)}
            await producer.send_offsets_to_transaction(offsets, await group.group_metadata())
            await producer.commit_transaction()
        except ClientError:
            await producer.abort_transaction()
            raise
        await asyncio.sleep(USER_PAUSE_S)

    await producer.start()
    await group.start()
    await turns(turn)
    await group.close(0.0)
    await producer.close(0.0)


async def consumes(**options: Any) -> None:
    if not options:
        options = {"heartbeat_interval_ms": 1_000}
    consumer = AsyncConsumer(
        bootstrap_servers="b:9092",
        enable_metrics_push=False,
        group_id="g",
        auto_commit_interval_ms=1_000,
        auto_offset_reset="earliest",
        default_api_timeout_ms=2_000,
        **options,
    )
    await consumer.start()
    await consumer.subscribe([TOPIC])
    await turns(lambda: consumer.poll(0.2))
    await consumer.close(0.0)


async def consumes_by_the_new_protocol() -> None:
    await consumes(group_protocol="consumer")


async def shares() -> None:
    consumer = AsyncShareConsumer(
        bootstrap_servers="b:9092",
        enable_metrics_push=False,
        group_id="g",
        share_acknowledgement_mode="explicit",
        default_api_timeout_ms=2_000,
    )

    async def turn() -> None:
        consumer.acknowledge(await consumer.poll(0.2))
        await consumer.commit()
        await asyncio.sleep(0.1)

    await consumer.start()
    await consumer.subscribe([TOPIC])
    await turns(turn)
    await consumer.close(0.0)


async def leaves() -> None:
    """Consumers that come and go, as those of short jobs do."""

    async def turn() -> None:
        consumer = AsyncConsumer(
            bootstrap_servers="b:9092", enable_metrics_push=False, group_id="g", default_api_timeout_ms=2_000
        )
        await consumer.start()
        await consumer.subscribe([TOPIC])
        try:
            await consumer.poll(0.1)
            await consumer.unsubscribe()
        finally:
            await consumer.close(0.5)
        await asyncio.sleep(USER_PAUSE_S)

    await turns(turn)


async def pushes_metrics() -> None:
    producer = AsyncProducer(bootstrap_servers="b:9092")

    async def turn() -> None:
        await producer.client_instance_id(0.2)
        await asyncio.sleep(USER_PAUSE_S)

    await producer.start()
    await turns(turn)
    await producer.close(0.5)


async def administers() -> None:
    admin = AsyncAdmin(bootstrap_servers="b:9092", enable_metrics_push=False, default_api_timeout_ms=2_000)

    async def turn() -> None:
        created = await admin.create_topics([NewTopic("new", 1, 1)])
        created.raise_for_errors()
        await asyncio.sleep(USER_PAUSE_S)

    await turns(turn)
    await admin.close(0.0)


CASES: list[tuple[Callable[[], Coroutine[Any, Any, None]], ApiKey]] = [
    *((produces, key) for key in (ApiKey.METADATA, ApiKey.INIT_PRODUCER_ID, ApiKey.PRODUCE)),
    *(
        (transacts, key)
        for key in (
            ApiKey.FIND_COORDINATOR,
            ApiKey.INIT_PRODUCER_ID,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            ApiKey.ADD_OFFSETS_TO_TXN,
            ApiKey.TXN_OFFSET_COMMIT,
            ApiKey.END_TXN,
        )
    ),
    *(
        (consumes, key)
        for key in (
            ApiKey.METADATA,
            ApiKey.FIND_COORDINATOR,
            ApiKey.JOIN_GROUP,
            ApiKey.SYNC_GROUP,
            ApiKey.HEARTBEAT,
            ApiKey.OFFSET_FETCH,
            ApiKey.OFFSET_COMMIT,
            ApiKey.LIST_OFFSETS,
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            ApiKey.FETCH,
        )
    ),
    (consumes_by_the_new_protocol, ApiKey.CONSUMER_GROUP_HEARTBEAT),
    *(
        (shares, key)
        for key in (
            ApiKey.METADATA,
            ApiKey.FIND_COORDINATOR,
            ApiKey.SHARE_GROUP_HEARTBEAT,
            ApiKey.SHARE_FETCH,
            ApiKey.SHARE_ACKNOWLEDGE,
        )
    ),
    (leaves, ApiKey.LEAVE_GROUP),
    *((each, ApiKey.API_VERSIONS) for each in (produces, transacts, consumes, shares, leaves, administers)),
    *(
        (pushes_metrics, key)
        for key in (
            ApiKey.API_VERSIONS,
            ApiKey.METADATA,
            ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
            ApiKey.PUSH_TELEMETRY,
        )
    ),
    *((administers, key) for key in (ApiKey.METADATA, ApiKey.CREATE_TOPICS)),
]


@pytest.mark.parametrize(
    ("client", "api"), CASES, ids=lambda value: value.name if isinstance(value, ApiKey) else value.__name__
)
def test_no_error_makes_a_client_ask_without_pauses(
    client: Callable[[], Coroutine[Any, Any, None]], api: ApiKey
) -> None:
    """Thousands of requests in a second harm the broker most when it has a problem already."""
    storms = {}
    for code in ERRORS:
        for at_top in places(api, code):
            broker = Connection.broker = Broker(api, code, at_top=at_top)
            run_virtual(client())
            if most := broker.most():
                storms[code, at_top] = most
    assert {} == storms


def test_a_partition_that_the_topic_lacks_is_named_soon_and_with_few_questions() -> None:
    """Brokers may have to learn of a new partition first, so the client asks for a short time."""

    async def scenario() -> None:
        producer = AsyncProducer(bootstrap_servers="b:9092", enable_metrics_push=False)
        await producer.start()
        before = asyncio.get_running_loop().time()
        with pytest.raises(UnknownTopicOrPartitionError, match=r"partition 7 of topic t: .*has 1 partition"):
            await producer.send(TOPIC, b"v", partition=7)
        assert asyncio.get_running_loop().time() - before < 2.0
        await producer.close(0.0)

    broker = Connection.broker = Broker(ApiKey.METADATA, ErrorCode.NONE, at_top=True)
    run_virtual(scenario())
    assert broker.counts[ApiKey.METADATA] <= 10
