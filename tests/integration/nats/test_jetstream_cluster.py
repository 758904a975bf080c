"""Streams of a cluster: served by any broker, taken over by another replica, without their topics."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import nats
import pytest
from nats.aio.msg import Msg
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, KeyValueConfig, PubAck, StreamConfig
from nats.js.errors import APIError, NoStreamResponseError, NotFoundError, ServiceUnavailableError
from nats.js.kv import KeyValue

from kalda import Admin
from kalda.clients.admin.acls import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from kalda.common.types import TopicPartition
from kalda.testing import ProcessCluster
from kalda.testing.process import CommandProcess
from tests.integration.nats.jetstream_servers import SETTINGS, jetstream_broker
from tests.integration.nats.raw_nats import nats_port

PATIENT = 60


@asynccontextmanager
async def connected(broker: CommandProcess) -> AsyncIterator[JetStreamContext]:
    url = f"nats://127.0.0.1:{nats_port(broker)}"
    client = await nats.connect(url, allow_reconnect=False, connect_timeout=PATIENT)
    try:
        yield client.jetstream(timeout=PATIENT)
    finally:
        await client.close()


async def served(js: JetStreamContext, stream: str) -> int:
    """Return how many messages a stream has, once this broker serves it."""
    async with asyncio.timeout(PATIENT):
        while True:
            with suppress(NotFoundError, ServiceUnavailableError):
                return (await js.stream_info(stream)).state.messages


async def test_another_replica_takes_a_stream_over(tmp_path: Path) -> None:
    settings = SETTINGS | {"share.coordinator.state.topic.replication.factor": "2"}
    with ProcessCluster(tmp_path, brokers=2, settings=settings) as cluster:
        one, two = cluster.broker(0), cluster.broker(1)
        async with connected(one) as here, connected(two) as there:
            await here.add_stream(name="ORDERS", subjects=["orders"], num_replicas=2)
            for number in range(4):
                await here.publish("orders", b"%d" % number)
            sub = await here.pull_subscribe("orders", "worker")
            messages = await sub.fetch(2, timeout=PATIENT)
            await messages[0].ack_sync(timeout=PATIENT)
            cluster.kill(0)
            assert 4 == await served(there, "ORDERS")
            sub = await there.pull_subscribe_bind("worker", "ORDERS")
            left: list[bytes] = []
            async with asyncio.timeout(PATIENT):
                while len(left) < 3:
                    left += [each.data for each in await sub.fetch(3 - len(left), timeout=PATIENT)]
            assert [b"1", b"2", b"3"] == sorted(left)
            assert 5 == (await there.publish("orders", b"4")).seq


async def known(js: JetStreamContext, stream: str) -> None:
    """Wait until a broker knows a stream that was created through another one, so that it takes messages."""
    async with asyncio.timeout(PATIENT):
        while stream not in [each.config.name for each in await js.streams_info()]:
            pass


async def published(js: JetStreamContext, subject: str, payload: bytes, message_id: str) -> PubAck:
    """Publish a message, again and again until it is acknowledged."""
    async with asyncio.timeout(PATIENT):
        while True:
            with suppress(ServiceUnavailableError, NoStreamResponseError):
                return await js.publish(subject, payload, headers={"Nats-Msg-Id": message_id})
            await asyncio.sleep(0.05)


async def fetched(sub: JetStreamContext.PullSubscription, count: int) -> list[Msg]:
    found: list[Msg] = []
    async with asyncio.timeout(PATIENT):
        while len(found) < count:
            with suppress(NatsTimeoutError):
                found += await sub.fetch(count - len(found), timeout=2)
    return found


async def stored(values: KeyValue, key: str, value: bytes) -> None:
    async with asyncio.timeout(PATIENT):
        while True:
            with suppress(ServiceUnavailableError, NoStreamResponseError):
                await values.put(key, value)
                return
            await asyncio.sleep(0.05)


async def updated(watcher: KeyValue.KeyWatcher) -> KeyValue.Entry | None:
    found: KeyValue.Entry | None = await watcher.updates(timeout=PATIENT)  # type: ignore[no-untyped-call]  # of nats-py
    return found


async def test_every_broker_serves_a_stream_and_goes_on_when_its_leader_is_killed(tmp_path: Path) -> None:
    settings = SETTINGS | {"share.coordinator.state.topic.replication.factor": "3"}
    with ProcessCluster(tmp_path, brokers=3, settings=settings) as cluster:
        async with (
            connected(cluster.broker(0)) as one,
            connected(cluster.broker(1)) as two,
            connected(cluster.broker(2)) as three,
        ):
            clients = [one, two, three]
            # Created through each of them at the same time, it is created once.
            wanted = StreamConfig(name="ORDERS", subjects=["orders.>"], num_replicas=3)
            created = await asyncio.gather(*(each.add_stream(wanted) for each in clients))
            assert [["orders.>"]] * 3 == [each.config.subjects for each in created]
            for each in clients:
                await known(each, "ORDERS")
            for number, each in enumerate(clients):
                ack = await each.publish("orders.eu", b"%d" % number, headers={"Nats-Msg-Id": f"id{number}"})
                assert ("ORDERS", number + 1) == (ack.stream, ack.seq)
                again = await each.publish("orders.eu", b"x", headers={"Nats-Msg-Id": "id0"})
                assert (1, True) == (again.seq, again.duplicate)
                assert number + 1 == (await each.stream_info("ORDERS")).state.messages
                assert b"0" == (await each.get_msg("ORDERS", 1)).data
                info = await each.account_info()
                assert 1 == info.streams

            # One durable consumer, and a push consumer of each.
            workers = [await each.pull_subscribe("orders.>", "worker") for each in clients]
            for number, worker in enumerate(workers):
                (message,) = await fetched(worker, 1)
                assert (b"%d" % number, "orders.eu") == (message.data, message.subject)
                await message.ack_sync(timeout=PATIENT)
            pushed = [await each.subscribe("orders.>", ordered_consumer=True) for each in clients]
            for sub in pushed:
                assert [b"0", b"1", b"2"] == [(await sub.next_msg(timeout=PATIENT)).data for _ in range(3)]
            assert 4 == len(await two.consumers_info("ORDERS"))

            # A bucket.
            bucket = KeyValueConfig(bucket="prices", replicas=3)
            buckets = [await each.create_key_value(bucket) for each in clients]
            watched = await buckets[2].watchall()
            assert await updated(watched) is None
            for number, values in enumerate(buckets):
                await stored(values, "box", b"%d EUR" % number)
                found = [(await each.get("box")).value for each in buckets]
                assert [b"%d EUR" % number] * 3 == found
                entry = await updated(watched)
                assert entry is not None
                assert b"%d EUR" % number == entry.value

            cluster.kill(0)
            for number, each in enumerate((two, three), 3):
                ack = await published(each, "orders.us", b"%d" % number, f"id{number}")
                assert number + 1 == ack.seq
                again = await published(each, "orders.us", b"x", "id1")
                assert (2, True) == (again.seq, again.duplicate)
            for number, worker in enumerate(workers[1:], 3):
                (message,) = await fetched(worker, 1)
                assert b"%d" % number == message.data
                await message.ack_sync(timeout=PATIENT)
            for each, values in zip((two, three), buckets[1:], strict=True):
                assert 5 == await served(each, "ORDERS")
                await stored(values, "box", b"7 EUR")
                assert b"7 EUR" == (await values.get("box")).value
            assert await three.purge_stream("ORDERS")
            assert 0 == await served(two, "ORDERS")
            assert await two.delete_stream("ORDERS")
            assert ["KV_prices"] == [each.config.name for each in await two.streams_info()]


async def test_the_leader_decides_by_the_rights_of_another_brokers_client(tmp_path: Path) -> None:
    acls = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }

    def rule(topic: str, principal: str) -> AclBinding:
        return AclBinding(
            ResourcePattern(ResourceType.TOPIC, topic, PatternType.LITERAL),
            AccessControlEntry(principal, "127.0.0.1", AclOperation.ALL, PermissionType.ALLOW),
        )

    def restrict() -> None:
        with Admin(bootstrap_servers=cluster.broker(0).bootstrap) as admin:
            admin.create_acls([rule("SECRET", "User:ann"), rule("OWN", "User:ANONYMOUS")])

    with ProcessCluster(tmp_path, brokers=2, settings=SETTINGS | acls) as cluster:
        async with connected(cluster.broker(0)) as here, connected(cluster.broker(1)) as there:
            for name in ("SECRET", "OWN"):
                await here.add_stream(name=name, subjects=[name.lower()])
                await here.publish(name.lower(), b"1")
                await known(there, name)
            await asyncio.to_thread(restrict)
            async with asyncio.timeout(PATIENT):
                while "SECRET" in [each.config.name for each in await there.streams_info()]:
                    pass
            assert 2 == (await there.publish("own", b"2")).seq
            assert 2 == (await there.stream_info("OWN")).state.messages
            sub = await there.pull_subscribe("own", "worker")
            assert [b"1", b"2"] == [each.data for each in await fetched(sub, 2)]
            for attempt in (
                lambda: there.publish("secret", b"2"),
                lambda: there.stream_info("SECRET"),
                lambda: there.get_msg("SECRET", 1),
                lambda: there.purge_stream("SECRET"),
                lambda: there.delete_stream("SECRET"),
                lambda: there.add_consumer("SECRET", ConsumerConfig(durable_name="thief")),
            ):
                with pytest.raises(APIError, match="10039"):
                    await attempt()


async def test_streams_that_are_created_at_the_same_time_share_no_subject(tmp_path: Path) -> None:
    """Through one broker and through two; the topic of the one that came too late is gone."""
    with ProcessCluster(tmp_path, brokers=2, settings=SETTINGS) as cluster:
        async with connected(cluster.broker(0)) as one, connected(cluster.broker(1)) as two:
            for number in range(8):
                subjects = [f"s{number}.>"]
                outcomes = await asyncio.gather(
                    one.add_stream(name=f"A{number}", subjects=subjects),
                    two.add_stream(name=f"B{number}", subjects=subjects),
                    one.add_stream(name=f"C{number}", subjects=subjects),
                    return_exceptions=True,
                )
                refused = [each for each in outcomes if isinstance(each, APIError)]
                assert [10065, 10065] == [each.err_code for each in refused], outcomes
            names = sorted(each.config.name or "" for each in await one.streams_info())
            assert list(range(8)) == sorted(int(each[1:]) for each in names)

            def topics() -> list[str]:
                with Admin(bootstrap_servers=cluster.broker(0).bootstrap) as admin:
                    return sorted(admin.list_topics())

            async with asyncio.timeout(PATIENT):
                while names != await asyncio.to_thread(topics):
                    pass


async def test_requests_that_wait_end_with_the_leadership(tmp_path: Path) -> None:
    """Clients ask again, where a consumer that is deleted ends them."""

    def move() -> None:
        partition = TopicPartition("ORDERS", 0)
        with Admin(bootstrap_servers=cluster.broker(0).bootstrap) as admin:
            leader = admin.describe_topics(["ORDERS"])["ORDERS"].partitions[0].leader_id
            admin.alter_partition_reassignments({partition: [1 - leader]})

    with ProcessCluster(tmp_path, brokers=2, settings=SETTINGS) as cluster:
        async with connected(cluster.broker(0)) as js:
            await js.add_stream(name="ORDERS", subjects=["orders"])
            await js.add_consumer("ORDERS", ConsumerConfig(durable_name="worker"))
            body = b'{"batch":1,"expires":%d}' % (PATIENT * 10**9)
            subject = "$JS.API.CONSUMER.MSG.NEXT.ORDERS.worker"
            asking = asyncio.create_task(js._nc.request(subject, body, timeout=PATIENT))
            async with asyncio.timeout(PATIENT):
                while not (await js.consumer_info("ORDERS", "worker")).num_waiting:
                    pass
            await asyncio.to_thread(move)
            headers = (await asking).headers or {}
            assert ("409", "Leadership Change") == (headers.get("Status"), headers.get("Description"))


async def test_a_stream_whose_topic_was_deleted_can_be_made_again(tmp_path: Path) -> None:
    with jetstream_broker(tmp_path / "data") as broker:
        async with connected(broker) as js:
            await js.add_stream(name="ORDERS", subjects=["orders"])
            await js.publish("orders", b"1")

            def delete() -> None:
                with Admin(bootstrap_servers=broker.bootstrap) as admin:
                    admin.delete_topics(["ORDERS"])

            await asyncio.to_thread(delete)
            await js.add_stream(name="ORDERS", subjects=["orders"])
            assert 1 == (await js.publish("orders", b"2")).seq
            await asyncio.to_thread(delete)
            assert await js.delete_stream("ORDERS")
