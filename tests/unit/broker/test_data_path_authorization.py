"""Produce and Fetch with an authorizer: what is remembered of a client is forgotten where it must be."""

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from kalda.broker.requests.handlers.fetch import handle_fetch
from kalda.broker.requests.handlers.produce import handle_produce
from kalda.broker.security.authorizer import DECISIONS_MAX, NAME_LENGTH_MAX, Authorizer
from kalda.cluster.acl_store import AclStore, OnEntries
from kalda.common.errors import ErrorCode
from kalda.net.connection import Connection
from kalda.protocol import codec
from kalda.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kalda.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kalda.security.acl.model import (
    CLUSTER_NAME,
    AccessControlEntry,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from kalda.security.principal import ANONYMOUS, KafkaPrincipal
from kalda.settings import BrokerConfig
from tests.unit.broker.data_path_fakes import TOPIC, DataPath, FakeConnection, batch, leadership

OTHER_ID = uuid.UUID(int=8)
OTHER = "payments"
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
VERSIONS = pytest.mark.parametrize("version", [11, 17])
"""Topics by name, and by id."""


class FakeStore:
    """Hands ACLs to the authorizer, as ZooKeeper's notifications do."""

    def __init__(self) -> None:
        self.on_entries: OnEntries | None = None

    async def start(self, on_entries: OnEntries) -> None:
        self.on_entries = on_entries

    async def close(self) -> None:
        pass

    def allow(
        self, operation: AclOperation | None, name: str, kind: ResourceType = ResourceType.TOPIC
    ) -> None:
        """Let anonymous clients do one operation on a resource; nothing if None."""
        entry = AccessControlEntry(
            "User:ANONYMOUS", "*", operation or AclOperation.READ, PermissionType.ALLOW
        )
        assert self.on_entries is not None
        self.on_entries(
            ResourcePattern(kind, name, PatternType.LITERAL), frozenset([entry] if operation else [])
        )


@pytest.fixture
def acls() -> FakeStore:
    return FakeStore()


@pytest.fixture
def broker(tmp_path: Path, acls: FakeStore) -> Iterator[DataPath]:
    path = DataPath(tmp_path)
    path.host(leadership(0), leadership(0, topic=OTHER, topic_id=OTHER_ID))
    authorizer = Authorizer(BrokerConfig.from_properties({"broker.id": "1"}), cast(AclStore, acls))
    asyncio.run(authorizer.start())
    path.authorizer = authorizer
    log_in(path)
    yield path
    path.close()


def log_in(broker: DataPath) -> Any:
    """Make the next requests those of another connection; return the one before."""
    before, connection = broker.connection, cast("Any", FakeConnection())
    connection.principal, connection.peer_address = ANONYMOUS, "127.0.0.1"
    connection.decisions, connection.writable_names = None, ()
    broker.connection = connection
    return before


def codes(response: FetchResponse) -> list[int]:
    return [partition.error_code for topic in response.responses for partition in topic.partitions]


def open_session(broker: DataPath, version: int) -> int:
    response = broker.fetch(version=version, session_id=0, session_epoch=0)
    assert [0] == codes(response)
    return response.session_id


def test_a_topic_is_writable_until_its_acl_is_gone(broker: DataPath, acls: FakeStore) -> None:
    assert DENIED == broker.produce(batch()).error_code
    acls.allow(AclOperation.WRITE, TOPIC)
    assert [0, 0] == [broker.produce(batch()).error_code for _ in range(2)]
    assert DENIED == broker.produce(batch(), topic=OTHER).error_code
    acls.allow(None, TOPIC)
    assert DENIED == broker.produce(batch()).error_code


@VERSIONS
def test_a_session_is_readable_until_its_acl_is_gone(broker: DataPath, acls: FakeStore, version: int) -> None:
    acls.allow(AclOperation.READ, TOPIC)
    session = open_session(broker, version)
    answers = []
    for epoch in (1, 2, 3):
        answers.append(codes(broker.fetch({}, version=version, session_id=session, session_epoch=epoch)))
        if epoch == 2:
            acls.allow(None, TOPIC)
    assert [[], [], [DENIED]] == answers


@VERSIONS
def test_a_topic_that_joins_a_session_is_asked_about(broker: DataPath, acls: FakeStore, version: int) -> None:
    acls.allow(AclOperation.READ, TOPIC)
    session = open_session(broker, version)
    broker.fetch({}, version=version, session_id=session, session_epoch=1)

    joined = {"topic": OTHER, "topic_id": OTHER_ID}
    response = broker.fetch({0: 0}, version=version, session_id=session, session_epoch=2, **joined)
    assert [DENIED] == codes(response)


@VERSIONS
def test_a_session_tells_nothing_to_another_client(broker: DataPath, acls: FakeStore, version: int) -> None:
    acls.allow(AclOperation.READ, TOPIC)
    session = open_session(broker, version)
    broker.fetch({}, version=version, session_id=session, session_epoch=1)
    log_in(broker)
    broker.connection.principal = KafkaPrincipal("User", "mallory")

    response = broker.fetch({}, version=version, session_id=session, session_epoch=2)
    assert [DENIED] == codes(response)


def test_a_topic_whose_id_becomes_known_in_a_session_is_asked_about(
    broker: DataPath, acls: FakeStore
) -> None:
    later = uuid.UUID(int=9)
    acls.allow(AclOperation.READ, TOPIC)
    response = broker.fetch({0: 0}, version=17, topic_id=later, session_id=0, session_epoch=0)
    assert [ErrorCode.UNKNOWN_TOPIC_ID] == codes(response)
    session = response.session_id
    broker.fetch({}, version=17, session_id=session, session_epoch=1)

    broker.host(leadership(0, topic="later", topic_id=later))
    assert [DENIED] == codes(broker.fetch({}, version=17, session_id=session, session_epoch=2))


def test_a_readers_session_does_not_serve_a_follower(broker: DataPath, acls: FakeStore) -> None:
    acls.allow(AclOperation.READ, TOPIC)
    session = open_session(broker, 11)
    broker.fetch({}, session_id=session, session_epoch=1)
    as_follower = {"session_id": session, "replica_id": 2}
    assert [DENIED] == codes(broker.fetch({}, session_epoch=2, **as_follower))

    acls.allow(AclOperation.CLUSTER_ACTION, CLUSTER_NAME, ResourceType.CLUSTER)
    broker.fetch({}, session_epoch=3, **as_follower)
    acls.allow(None, TOPIC)
    assert [DENIED] == codes(broker.fetch({}, session_id=session, session_epoch=4))


def test_names_that_are_not_utf_8_are_denied(broker: DataPath) -> None:
    """They are refused as other names are, and do not fail as a bug of the broker would."""
    context = broker.context(11)
    fetch = FetchRequest(topics=[FetchTopic(topic="~~~", partitions=[FetchPartition(partition=0)])])
    frame = bytearray(codec.encode(fetch, 11).replace(b"~~~", b"\xff\xff\xff"))
    reply = handle_fetch(broker.fetch_parts, context, memoryview(frame), 0)
    assert b"\xff\xff\xff" in b"".join(cast("Any", reply))

    produce = ProduceRequest(
        transactional_id="~~~",
        acks=1,
        topic_data=[
            TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch())])
        ],
    )
    frame = bytearray(codec.encode(produce, 9).replace(b"~~~", b"\xff\xff\xff"))
    answer = broker.produce_response(
        handle_produce(broker.produce_parts, broker.context(9, "test"), memoryview(frame), 0)
    )
    code = answer.responses[0].partition_responses[0].error_code
    assert ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED == code


def test_what_is_remembered_is_bounded(broker: DataPath, acls: FakeStore) -> None:
    authorizer = broker.authorizer
    assert authorizer is not None
    acls.allow(AclOperation.WRITE, "*")
    connection = cast(Connection, broker.connection)
    for number in range(DECISIONS_MAX + 1):
        assert authorizer.allows_write(connection, b"%d" % number)
    assert authorizer.allows_write(connection, b"x" * (NAME_LENGTH_MAX + 1))
    decisions = authorizer.decisions(connection)
    assert {b"10000"} == decisions.writable_names
    assert 1 == len(decisions)


def test_what_is_remembered_of_all_clients_is_bounded(
    broker: DataPath, acls: FakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client may come from many addresses, each with decisions of its own."""
    monkeypatch.setattr("kalda.broker.security.authorizer.DECISIONS_OF_ALL_MAX", 10)
    authorizer = broker.authorizer
    assert authorizer is not None
    acls.allow(AclOperation.READ, "*")
    kept = []
    for number in range(8):
        log_in(broker)
        connection = cast("Any", broker.connection)
        connection.peer_address = f"10.0.0.{number}"
        assert not authorizer.allows_write(connection, b"t")
        assert authorizer.allows_read(connection, b"t", "t", by_id=False)
        kept.append((connection, connection.decisions))
    assert sum(len(each) + len(each.readable_names) for _, each in kept) <= 10
    assert authorizer.allows_read(kept[0][0], b"t", "t", by_id=False)


def test_a_change_empties_what_silent_connections_hold(broker: DataPath, acls: FakeStore) -> None:
    authorizer = broker.authorizer
    assert authorizer is not None
    connection = cast("Any", broker.connection)
    assert not authorizer.allows_write(connection, b"t")
    acls.allow(AclOperation.READ, "*")
    assert {} == connection.decisions


def test_a_right_on_any_topic_is_remembered_until_an_acl_changes(broker: DataPath, acls: FakeStore) -> None:
    """To find it all ACLs are read, and every idempotent producer asks."""
    authorizer = broker.authorizer
    assert authorizer is not None
    connection = cast("Any", broker.connection)

    def may_write() -> bool:
        return authorizer.allows_any(connection, AclOperation.WRITE, ResourceType.TOPIC)

    assert not may_write()
    assert {(AclOperation.WRITE, ResourceType.TOPIC, None): False} == connection.decisions
    acls.allow(AclOperation.WRITE, TOPIC)
    assert may_write()
    acls.allow(None, TOPIC)
    assert not may_write()


def test_connections_of_a_client_share_what_is_remembered(broker: DataPath, acls: FakeStore) -> None:
    authorizer = broker.authorizer
    assert authorizer is not None
    first = cast(Connection, broker.connection)
    log_in(broker)
    second = cast(Connection, broker.connection)
    assert authorizer.decisions(first) is authorizer.decisions(second)
    acls.allow(AclOperation.READ, TOPIC)
    log_in(broker)
    assert authorizer.decisions(cast(Connection, broker.connection)) is authorizer.decisions(second)
