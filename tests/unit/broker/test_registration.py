"""A broker keeps its place in the cluster through session expiries, and never takes another's."""

import asyncio
import logging

import pytest

from kalda.broker.metadata import registration as registration_module
from kalda.broker.metadata.registration import (
    BrokerIdentityError,
    BrokerRegistration,
    RegistrationState,
    check_cluster_id,
    decide_broker_id,
    read_stored_identities,
)
from kalda.broker.metadata.session_file import SESSION_FILE, SessionFile
from kalda.cluster import paths
from kalda.cluster.cluster_store import BrokerIdInUseError, ClusterStore
from kalda.cluster.schema import BrokerInfo, ListenerEndpoint
from kalda.storage.checkpoints import MetaProperties, write_meta_properties
from kalda.zookeeper.errors import ConnectionLossError, SessionExpiredError
from kalda.zookeeper.port import SessionKey
from kalda.zookeeper.server.embedded import EmbeddedClient
from tests.unit.cluster.in_memory import InMemoryZooKeeper
from tests.unit.zookeeper.memory_files import MemoryFileSystem

SESSION_TIMEOUT_MS = 18_000


class RegistrationHarness:
    def __init__(self) -> None:
        self.zookeeper = InMemoryZooKeeper()
        self.clock = self.zookeeper.clock

    async def broker(self, port: int = 9092) -> tuple[BrokerRegistration, EmbeddedClient, ClusterStore]:
        cluster = await self.zookeeper.cluster()
        registration = BrokerRegistration(
            cluster,
            lambda: BrokerInfo(7, (ListenerEndpoint("PLAINTEXT", "host", port),), rack="a"),
            clock=self.clock,
            session_timeout_ms=SESSION_TIMEOUT_MS,
        )
        session = cluster.zookeeper
        assert isinstance(session, EmbeddedClient)
        return registration, session, cluster


async def turn() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration_module, "_RETRY_SECONDS", 0.0)


async def test_broker_is_found_by_others_until_it_withdraws() -> None:
    harness = RegistrationHarness()
    registration, _, cluster = await harness.broker()
    assert (RegistrationState.NOT_REGISTERED, False) == (registration.state, registration.is_healthy)
    epoch = await registration.start()
    (found,) = (await cluster.brokers()).values()
    assert (7, epoch, "a") == (found.id, found.epoch, found.rack)
    assert (RegistrationState.REGISTERED, True) == (registration.state, registration.is_healthy)
    await registration.withdraw()
    assert {} == await cluster.brokers()
    assert registration.state is RegistrationState.WITHDRAWN
    await registration.withdraw()


async def test_expired_broker_registers_again_with_a_newer_epoch(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever holds the old epoch must be able to tell that it talks of a life that is over."""
    caplog.set_level(logging.INFO)
    harness = RegistrationHarness()
    registration, session, cluster = await harness.broker()
    first = await registration.start()
    task = asyncio.create_task(registration.run())
    await session.expire()
    await turn()
    assert (RegistrationState.NOT_REGISTERED, -1) == (registration.state, registration.broker_epoch)
    await session.reconnect()
    await turn()
    (found,) = (await cluster.brokers()).values()
    assert registration.is_healthy
    assert found.epoch == registration.broker_epoch > first
    assert 1 == registration.statistics().expiries
    assert "its ZooKeeper session expired" in caplog.text
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_registration_that_somebody_deleted_is_made_again(caplog: pytest.LogCaptureFixture) -> None:
    """An operator's slip must not leave a broker that looks well out of the cluster until its next start."""
    harness = RegistrationHarness()
    registration, _, cluster = await harness.broker()
    epoch = await registration.start()
    task = asyncio.create_task(registration.run())
    await turn()
    for _ in range(2):
        await cluster.unregister_broker(7)
        await turn()
        (found,) = (await cluster.brokers()).values()
        assert registration.is_healthy
        assert found.epoch == registration.broker_epoch > epoch
        epoch = found.epoch
    assert "was deleted while its session lasts" in caplog.text
    await registration.withdraw()
    await turn()
    assert {} == await cluster.brokers()
    assert 3 == registration.statistics().registrations
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_former_life_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    """A broker killed and restarted within its session time-out must come back by itself."""
    harness = RegistrationHarness()
    former, former_session, _ = await harness.broker()
    first = await former.start()
    registration, _, _ = await harness.broker()
    task = asyncio.create_task(registration.start())
    await turn()
    assert not task.done()
    assert "broker id 7 is in use" in caplog.text
    await former_session.expire()
    assert await task > first
    assert registration.is_healthy


async def test_id_of_another_live_broker_is_an_error_after_the_wait() -> None:
    harness = RegistrationHarness()
    other, _, cluster = await harness.broker(port=1)
    epoch = await other.start()
    registration, _, _ = await harness.broker(port=2)
    task = asyncio.create_task(registration.start())
    await turn()
    harness.clock.advance(SESSION_TIMEOUT_MS / 1000 + 6)
    with pytest.raises(BrokerIdInUseError, match=r"broker id 7 is in use.*stop the other broker"):
        await task
    assert [epoch] == [broker.epoch for broker in (await cluster.brokers()).values()]


async def test_znode_of_an_earlier_session_of_this_process_is_replaced() -> None:
    """ZooKeeper was seen to leave an ephemeral znode behind its session (ZOOKEEPER-2985)."""
    harness = RegistrationHarness()
    _, _, cluster = await harness.broker()
    info = BrokerInfo(7, (ListenerEndpoint("PLAINTEXT", "host", 1),))
    left_behind = await harness.zookeeper.cluster()
    first = await left_behind.register_broker(info)
    owner = left_behind.zookeeper.session_id
    with pytest.raises(BrokerIdInUseError):
        await cluster.register_broker(info, {owner + 1})
    assert await cluster.register_broker(info, {owner}) > first
    stat = await cluster.zookeeper.exists(paths.broker(7))
    assert stat is not None
    assert stat.ephemeral_owner == cluster.zookeeper.session_id


async def test_broker_whose_id_was_taken_meanwhile_ends() -> None:
    """It would serve as a broker that the cluster takes for another."""
    harness = RegistrationHarness()
    registration, session, _ = await harness.broker()
    await registration.start()
    task = asyncio.create_task(registration.run())
    await session.expire()
    other, _, _ = await harness.broker(port=2)
    await other.start()
    await session.reconnect()
    await turn()
    assert not task.done()
    harness.clock.advance(SESSION_TIMEOUT_MS / 1000 + 6)
    with pytest.raises(BrokerIdInUseError):
        await task


async def test_registration_is_tried_again_after_coordination_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = RegistrationHarness()
    registration, _, cluster = await harness.broker()
    tries: list[int] = []
    create = cluster.register_broker

    async def flaky(info: BrokerInfo, own_sessions: frozenset[int] = frozenset()) -> int:
        tries.append(1)
        if len(tries) < 3:
            raise (ConnectionLossError("gone"), SessionExpiredError("over"))[len(tries) - 1]
        return await create(info, own_sessions)

    monkeypatch.setattr(cluster, "register_broker", flaky)
    await registration.start()
    assert 3 == len(tries)
    assert registration.is_healthy


async def test_coordination_that_stays_away_fails_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = RegistrationHarness()
    registration, _, cluster = await harness.broker()

    async def failing(info: BrokerInfo, own_sessions: frozenset[int] = frozenset()) -> int:
        harness.clock.advance(10)
        raise ConnectionLossError("gone")

    monkeypatch.setattr(cluster, "register_broker", failing)
    with pytest.raises(ConnectionLossError):
        await registration.start()


async def test_given_id_is_above_the_reserved_and_kept_in_the_directories() -> None:
    cluster = await InMemoryZooKeeper().cluster()

    async def decide(stored: dict[str, MetaProperties], configured: int = -1, generation: bool = True) -> int:
        return await decide_broker_id(
            cluster,
            stored,
            configured=configured,
            is_generation_enabled=generation,
            reserved_max=1000,
        )

    assert [1001, 1002] == [await decide({}), await decide({})]
    stored = {"/a": MetaProperties("c", 1001)}
    assert 1001 == await decide(stored)
    assert 3 == await decide({}, configured=3)
    assert 1001 == await decide(stored, configured=1001, generation=False)
    with pytest.raises(BrokerIdentityError, match=r"/a belongs to broker.id=1001, but `broker.id`=3"):
        await decide(stored, configured=3)
    with pytest.raises(BrokerIdentityError, match="the broker has no id"):
        await decide({}, generation=False)


def test_directories_of_different_brokers_or_clusters_are_refused() -> None:
    files = MemoryFileSystem()
    for directory, broker_id in (("/a", 1), ("/b", 2)):
        files.make_directory(directory)
        write_meta_properties(files, directory, MetaProperties("cluster", broker_id))
    files.make_directory("/c")
    with pytest.raises(BrokerIdentityError, match=r"/a broker.id=1, /b broker.id=2"):
        read_stored_identities(files, ("/a", "/b", "/c"))
    stored = read_stored_identities(files, ("/a", "/c"))
    assert {"/a": MetaProperties("cluster", 1)} == stored
    check_cluster_id(stored, "cluster")
    with pytest.raises(BrokerIdentityError, match=r"/a belongs to cluster.id=cluster, this cluster has"):
        check_cluster_id(stored, "other")


class KeyedHarness(RegistrationHarness):
    """Sessions have keys, as over the wire, by which whoever has one can end them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.sessions: dict[int, EmbeddedClient] = {}
        self.files = MemoryFileSystem()
        self.files.make_directory("/data")

        async def end_session(_: EmbeddedClient, key: SessionKey) -> None:
            assert b"secret" == key.password
            await self.sessions[key.session_id].expire()

        key = property(lambda session: SessionKey(session.session_id, b"secret"))
        monkeypatch.setattr(EmbeddedClient, "session_key", key)
        monkeypatch.setattr(EmbeddedClient, "end_session", end_session)

    async def process(self, port: int = 9092) -> tuple[BrokerRegistration, ClusterStore]:
        """A process that runs the broker on the same data."""
        cluster = await self.zookeeper.cluster()
        session = cluster.zookeeper
        assert isinstance(session, EmbeddedClient)
        self.sessions[session.session_id] = session
        registration = BrokerRegistration(
            cluster,
            lambda: BrokerInfo(7, (ListenerEndpoint("PLAINTEXT", "host", port),)),
            clock=self.clock,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            session_file=SessionFile(self.files, ["/data"]),
        )
        return registration, cluster


async def test_killed_broker_ends_the_session_of_its_former_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else serves its partitions meanwhile; waiting for a time-out would only cost."""
    harness = KeyedHarness(monkeypatch)
    killed, _ = await harness.process()
    first = await killed.start()
    again, cluster = await harness.process()
    second = await again.start()
    assert second > first
    assert second == (await cluster.brokers())[7].epoch
    third, _ = await harness.process()
    assert await third.start() > second


async def test_broker_at_another_address_is_not_its_former_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """The data was copied while the broker lives: what is remembered is the live broker's session."""
    harness = KeyedHarness(monkeypatch)
    lives, cluster = await harness.process()
    epoch = await lives.start()
    copy, _ = await harness.process(port=9093)
    start = asyncio.create_task(copy.start())
    await turn()
    harness.clock.advance(SESSION_TIMEOUT_MS / 1000 + 6)
    with pytest.raises(BrokerIdInUseError):
        await start
    assert epoch == (await cluster.brokers())[7].epoch


def test_memory_is_worth_nothing_where_it_cannot_be_read() -> None:
    files = MemoryFileSystem()
    files.make_directory("/data")
    session_file = SessionFile(files, ["/data"])
    assert session_file.read() is None
    session_file.write(SessionKey(0x1234, b"pw"))
    assert SessionKey(0x1234, b"pw") == session_file.read()
    files.replace(f"/data/{SESSION_FILE}", b"nonsense", sync=False)
    assert session_file.read() is None
