"""Live messages between the brokers of a cluster: once to each subscriber, also after a broker was killed."""

import asyncio

import pytest
from confluent_kafka import Producer
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError

from kalda import Admin, NewTopic
from tests.integration.nats.nats_cluster import NatsCluster, subscribed_all


async def subscribed(client: Client, subject: str, queue: str = "") -> "asyncio.Queue[Msg]":
    messages: asyncio.Queue[Msg] = asyncio.Queue()
    await client.subscribe(subject, queue=queue, cb=messages.put)
    await subscribed_all(client)
    return messages


async def reaches(publisher: Client, subject: str) -> None:
    """Wait until a request gets an answer, and so interest has passed."""
    async with asyncio.timeout(60):
        while True:
            try:
                await publisher.request(subject, b"?", timeout=30)
            except NoRespondersError:
                await asyncio.sleep(0.02)
            else:
                return


async def answers(client: Client, subject: str) -> None:
    async def answer(message: Msg) -> None:
        await message.respond(b"here")

    await client.subscribe(subject, cb=answer)
    await subscribed_all(client)


async def got(messages: "asyncio.Queue[Msg]", count: int) -> list[bytes]:
    async with asyncio.timeout(60):
        return [(await messages.get()).data for _ in range(count)]


async def shared_out(workers: "list[asyncio.Queue[Msg]]", count: int) -> list[list[bytes]]:
    """Return what each member of a group got, when all have so many messages together."""
    found: list[list[bytes]] = [[] for _ in workers]
    async with asyncio.timeout(60):
        while sum(map(len, found)) < count:
            for got_by_one, messages in zip(found, workers, strict=True):
                got_by_one += await got(messages, messages.qsize())
            await asyncio.sleep(0.02)
    return found


async def test_messages_reach_subscribers_of_all_brokers_once_and_in_order() -> None:
    # Broker 3 has no listener of NATS.
    with NatsCluster(4, without=frozenset((3,))) as cluster:
        clients = [await cluster.connect(each) for each in range(3)]
        queues = [await subscribed(client, "orders.>") for client in clients]
        workers = [await subscribed(client, "jobs", "workers") for client in clients[1:]]
        for number, client in enumerate(clients):
            await answers(client, f"ready.{number}")
        for client in clients:
            for number in range(3):
                await reaches(client, f"ready.{number}")
        expected = []
        for number in range(200):
            await clients[0].publish("orders.eu", b"%d" % number)
            expected.append(b"%d" % number)
        for messages in queues:
            assert expected == await got(messages, 200)
        for number in range(100):
            await clients[0].publish("jobs", b"%d" % number)
        for number in range(3):
            await clients[0].publish("orders.end", b"end")
            await reaches(clients[0], f"ready.{number}")
        for messages in queues:
            assert [b"end"] * 3 == await got(messages, 3)
            assert messages.empty()
        shared = await shared_out(workers, 100)
        assert sorted(b"%d" % number for number in range(100)) == sorted(
            each for some in shared for each in some
        )
        assert all(shared)
        with pytest.raises(NoRespondersError):
            await clients[0].request("nobody", b"?", timeout=60)
        for client in clients:
            await client.close()


async def test_interest_comes_back_with_a_broker_that_was_killed() -> None:
    with NatsCluster(2) as cluster:
        one, two = await cluster.connect(0), await cluster.connect(1)
        messages = await subscribed(one, "orders")
        await answers(one, "ready")
        await reaches(two, "ready")
        await two.publish("orders", b"first")
        assert [b"first"] == await got(messages, 1)
        await two.close()
        cluster.kill(1, expire_session=True)
        await asyncio.to_thread(cluster.start, 1)
        two = await cluster.connect(1)
        await reaches(two, "ready")
        await two.publish("orders", b"second")
        assert [b"second"] == await got(messages, 1)
        await answers(two, "back")
        await reaches(one, "back")
        await one.close()
        await two.close()


async def test_a_record_reaches_one_member_of_a_group_over_all_brokers() -> None:
    settings = {"kalda.nats.subjects": "orders.*:orders:$1"}
    with NatsCluster(3, settings=settings) as cluster:

        def create() -> None:
            with Admin(bootstrap_servers=cluster.bootstrap) as admin:
                admin.create_topics([NewTopic("orders", 6, 3)])
            cluster.wait_for_topics("orders")

        def produce() -> None:
            producer = Producer({"bootstrap.servers": cluster.bootstrap})
            for number in range(60):
                producer.produce("orders", key=str(number), value=str(number))
            assert 0 == producer.flush(60)

        await asyncio.to_thread(create)
        clients = [await cluster.connect(each) for each in range(3)]
        workers = [await subscribed(client, "orders.*", "workers") for client in clients]
        every = await subscribed(clients[0], "orders.*")
        for number, client in enumerate(clients):
            await answers(client, f"ready.{number}")
        for client in clients:
            for number in range(3):
                await reaches(client, f"ready.{number}")
        await asyncio.to_thread(produce)
        assert {b"%d" % number for number in range(60)} == set(await got(every, 60))
        shared = await shared_out(workers, 60)
        assert sorted(b"%d" % number for number in range(60)) == sorted(
            each for some in shared for each in some
        )
        for client in clients:
            await client.close()
