"""What brokers learn from registrations: whether Apache Kafka's are among them, and who may be elected."""

import asyncio
from dataclasses import replace

import pytest

from kalda.cluster import paths, schema
from kalda.cluster.registered_brokers import RegisteredBrokers
from kalda.cluster.schema import BrokerInfo, ListenerEndpoint
from tests.unit.cluster.in_memory import InMemoryZooKeeper

KAFKA = BrokerInfo(1, (ListenerEndpoint("PLAINTEXT", "host", 9092),))
KALDA = replace(KAFKA, id=2, kalda="0.1.0")


async def test_registrations_are_followed() -> None:
    server = InMemoryZooKeeper()
    cluster = await server.cluster()
    brokers, changes = RegisteredBrokers(await server.cluster()), []
    brokers.on_change(lambda: changes.append(brokers.has_kafka))
    await cluster.register_broker(KALDA)
    await brokers.start()
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(brokers.run())
        await settle()
        await cluster.register_broker(KAFKA)
        await settle()
        await cluster.unregister_broker(1)
        await settle()
        assert [False, True, False] == changes
        assert not brokers.may_be_controller(3, setting=False)
        await cluster.update_broker(replace(KALDA, controller_eligible=False))
        await settle()
        assert brokers.may_be_controller(3, setting=False), "no other broker is eligible any more"
        task.cancel()


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def registered(*settings: bool | None, kafka: bool = False) -> list[BrokerInfo]:
    """Return the registrations of Kalda's brokers 2, 3, ... with these settings."""
    found = [replace(KALDA, id=number, controller_eligible=each) for number, each in enumerate(settings, 2)]
    return [KAFKA, *found] if kafka else found


@pytest.mark.parametrize(
    ("brokers", "may"),
    [
        (registered(None), True),
        (registered(None, None), True),
        (registered(False), True),
        (registered(False, None), False),
        (registered(False, True), False),
        (registered(False, False), True),
        (registered(None, kafka=True), False),
        (registered(None, None, kafka=True), False),
        (registered(False, kafka=True), False),
        (registered(True, kafka=True), True),
    ],
)
async def test_who_may_be_elected(brokers: list[BrokerInfo], *, may: bool) -> None:
    """Broker 2 asks. It is registered or about to be: the answer is the same."""
    server = InMemoryZooKeeper()
    cluster = await server.cluster()
    own = next(each for each in brokers if each.id == 2)
    for infos in (brokers, [each for each in brokers if each is not own]):
        for each in await cluster.zookeeper.children(paths.BROKER_IDS):
            await cluster.zookeeper.delete(f"{paths.BROKER_IDS}/{each}")
        for info in infos:
            await cluster.register_broker(info)
        found = RegisteredBrokers(await server.cluster())
        await found.start()
        assert may == found.may_be_controller(2, own.controller_eligible)


def test_the_setting_is_part_of_a_registration_only_where_it_is_set() -> None:
    """A broker that was started without it is not distinguished from one that does not know it."""
    assert b"eligible" not in schema.encode_broker(KALDA)
    for setting in (True, False):
        info = replace(KALDA, controller_eligible=setting)
        assert info == schema.decode_broker(2, schema.encode_broker(info))
