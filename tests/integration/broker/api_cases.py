"""A request that succeeds and one that fails for every API, in whatever version; and how to send them.

A case gives the fields of a request as a dictionary, of all versions at once: what the version lacks is left
out. Each request names what its version alone uses, so that versions do not disturb each other.
"""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from kazoo.client import KazooClient

from kalda.broker.process.secure import ADMINISTRATOR
from kalda.cluster import paths
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.types import ZERO_UUID, uuid_to_text
from kalda.protocol import codec, registry
from kalda.protocol.headers import RequestHeader, read_response_header, request_header
from kalda.protocol.messages.find_coordinator import KEY_TYPE_SHARE
from kalda.protocol.schema import ArrayKind
from kalda.records.message_set_builder import MessageSetBuilder
from kalda.records.record import RecordBatchBuilder
from kalda.testing import Cluster
from tests.raw_client import RawClient

Fields = dict[str, Any]

TOPIC = "t"
ABSENT = "absent"
GROUP = "readers"
TIMEOUT_MS = 10_000
ELSEWHERE = frozenset(
    (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    )
)
"""Another broker answers otherwise, or the same one does later."""


SETTLE_SECONDS = 60.0
"""Coordinators load their partitions, and transactions complete, within a second on a quiet machine."""


class NoReplyError(Exception):
    """The broker closed the connection instead of answering."""


class Site:
    """A cluster, and connections to all of its brokers."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.is_secure = cluster.secured is not None
        self.brokers = list(cluster.running)
        self._connections: dict[tuple[int, str], RawClient] = {}
        self.announced = self._announced()
        # Broker 0, which is asked first, leads it.
        assignments = [{"partition_index": 0, "broker_ids": self.brokers}]
        topic = {"name": TOPIC, "num_partitions": -1, "replication_factor": -1, "assignments": assignments}
        self.settle(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout_ms": TIMEOUT_MS})
        cluster.wait_in_sync(TOPIC)
        for key_type in (0, 1):
            # Makes the coordinators' topics.
            self.settle(ApiKey.FIND_COORDINATOR, 3, {"key": GROUP, "key_type": key_type})
        self.topic_id = self.id_of(TOPIC)

    def close(self) -> None:
        """Close all connections."""
        for each in self._connections.values():
            each.socket.close()

    @property
    def controller(self) -> int:
        """The controller's id."""
        return self.cluster.controller_id()

    @property
    def controller_epoch(self) -> int:
        """The epoch in which it was elected."""
        return self.cluster.server(self.controller).services.controller.epoch

    def broker_epoch(self, broker_id: int) -> int:
        """Return the epoch of a broker's registration."""
        zookeeper = KazooClient(self.cluster.zookeeper)
        zookeeper.start()
        try:
            epoch: int = zookeeper.exists(paths.broker(broker_id)).czxid
        finally:
            zookeeper.stop()
            zookeeper.close()
        return epoch

    def id_of(self, topic: str) -> uuid.UUID:
        """Return a topic's id."""
        return self.cluster.server(0).services.metadata_cache.topic_id(topic)

    def connect(self, broker: int, user: str | None = ADMINISTRATOR) -> RawClient:
        """Open a connection, logged in unless `user` is None or the cluster is open."""
        address = self.cluster.bootstrap.split(",")[self.brokers.index(broker)]
        client = RawClient(address)
        secured = self.cluster.secured
        if secured is not None and user is not None:
            assert 0 == client.log_in("PLAIN", f"\0{user}\0{secured.passwords[user]}".encode())
        return client

    def ask(
        self, key: ApiKey, version: int, fields: Fields, *, broker: int = 0, user: str = ADMINISTRATOR
    ) -> Any:
        """Send a request to one broker; return its answer, which must be readable to its last byte."""
        client = self._connections.get((broker, user))
        if client is None:
            client = self._connections[broker, user] = self.connect(broker, user)
        try:
            return ask_over(client, key, version, fields)
        except NoReplyError:
            client.socket.close()
            del self._connections[broker, user]
            raise

    def settle(self, key: ApiKey, version: int, fields: Fields) -> Any:
        """Ask one broker after the other until one is the right one."""
        found: list[Any] = []

        def is_settled() -> bool:
            for broker in self.brokers:
                found[:] = [self.ask(key, version, fields, broker=broker)]
                if ELSEWHERE.isdisjoint(codes_of(found[0])):
                    return True
            return False

        self.cluster.wait_until(is_settled, SETTLE_SECONDS, f"{key.title} v{version} at the right broker")
        return found[0]

    def _announced(self) -> dict[ApiKey, tuple[int, int]]:
        software = {"client_software_name": "kalda", "client_software_version": "1"}
        answer = self.ask(ApiKey.API_VERSIONS, 4, software)
        return {ApiKey(each.api_key): (each.min_version, each.max_version) for each in answer.api_keys}

    # What requests need to exist.

    def made_topic(self, name: str) -> str:
        topics = [{"name": name, "num_partitions": 1, "replication_factor": 1}]
        self.settle(ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeout_ms": TIMEOUT_MS})
        return name

    def joined(self, group: str) -> Fields:
        """A static member of a classic group, before its SyncGroup."""
        found = self.settle(ApiKey.JOIN_GROUP, 9, {**_join(group), "group_instance_id": "one"})
        return {"group_id": group, "member_id": found.member_id, "generation_id": found.generation_id}

    def stable(self, group: str) -> Fields:
        """A member of a classic group that has its assignment."""
        member = self.joined(group)
        self.settle(ApiKey.SYNC_GROUP, 5, {**_sync(member)})
        return member

    def committed(self, group: str) -> str:
        self.settle(ApiKey.OFFSET_COMMIT, 9, _commit(group, 0))
        return group

    def shared(self, group: str) -> str:
        """A share group without members, which begins at the start of the topic."""
        heartbeat = _heartbeat_of_share(group, 0)
        self.settle(ApiKey.SHARE_GROUP_HEARTBEAT, 1, heartbeat)
        self.settle(ApiKey.SHARE_GROUP_HEARTBEAT, 1, heartbeat | {"member_epoch": -1})
        self.settle(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, _share_offsets(group, 0))
        return group

    def with_state(self, group: str) -> Fields:
        """Share state of the topic's partition at its share coordinator, to which another request is sent."""
        key = f"{group}:{uuid_to_text(self.topic_id)}:0"
        self.settle(ApiKey.FIND_COORDINATOR, 6, {"key_type": KEY_TYPE_SHARE, "coordinator_keys": [key]})
        first = {"partition": 0, "state_epoch": 0, "start_offset": 0}
        state = {"group_id": group, "topics": [{"topic_id": self.topic_id, "partitions": [first]}]}
        self.settle(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, state)
        return state

    def producer(self, name: str) -> Fields:
        """A transactional producer without a transaction."""
        found = self.settle(ApiKey.INIT_PRODUCER_ID, 5, _transactional(name))
        return {
            "transactional_id": name,
            "producer_id": found.producer_id,
            "producer_epoch": found.producer_epoch,
        }

    def transaction(self, name: str) -> Fields:
        """A producer with a transaction."""
        producer = self.producer(name)
        self.settle(ApiKey.ADD_PARTITIONS_TO_TXN, 3, _to_transaction(producer))
        return producer

    def token(self) -> bytes:
        if not self.is_secure:
            return b"none"
        found = self.settle(ApiKey.CREATE_DELEGATION_TOKEN, 3, {"max_lifetime_ms": -1})
        return bytes(found.hmac)

    def compacted_topic(self) -> str:
        """A topic that takes only records with keys."""
        topic = {"name": "compacted", "num_partitions": 1, "replication_factor": 1}
        topic["configs"] = [{"name": "cleanup.policy", "value": "compact"}]
        self.settle(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout_ms": TIMEOUT_MS})
        return "compacted"

    def with_prefixed_acl(self, filter_fields: Fields) -> Fields:
        """Return the filter, and make a prefixed rule that it matches."""
        rule = self.acl("p") | {"resource_pattern_type": 4, "principal": "User:prefixed"}
        self.settle(ApiKey.CREATE_ACLS, 3, {"creations": [rule]})
        return filter_fields

    def acl(self, name: str) -> Fields:
        binding = {"resource_type": 2, "resource_name": name, "resource_pattern_type": 3}
        return binding | {"principal": "User:x", "host": "*", "operation": 3, "permission_type": 3}


def ask_over(client: RawClient, key: ApiKey, version: int, fields: Fields) -> Any:
    """Send a request over a connection; return its answer, which must be readable to its last byte.

    Raises:
        NoReplyError: the broker closed the connection.
    """
    header = RequestHeader(key, version, 7, None)
    head = request_header(header, registry.request_header_version(key, version))
    client.send_frame(
        head + codec.encode(message(registry.spec(key).request_class, version, fields), version)
    )
    frame = client.receive()
    if frame is None:
        raise NoReplyError(f"{key.title} v{version} has no answer")
    correlation_id, position = read_response_header(frame, registry.response_header_version(key, version))
    assert 7 == correlation_id
    return codec.decode(registry.spec(key).response_class, version, frame, position)


def message(struct_class: Any, version: int, fields: Fields) -> Any:
    """Build a message or struct from the fields that a version has."""
    known = {each.name: each for each in struct_class.FIELDS}
    assert fields.keys() <= known.keys(), f"{struct_class.__name__} has no {fields.keys() - known.keys()}"
    values = {}
    for name, value in fields.items():
        field = known[name]
        if not field.versions.includes(version) or (value is None and not field.nullable.includes(version)):
            continue
        kind = field.kind.element if isinstance(field.kind, ArrayKind) else field.kind
        if hasattr(kind, "FIELDS") and isinstance(value, list):
            value = [message(kind, version, each) for each in value]
        elif hasattr(kind, "FIELDS") and value is not None:
            value = message(kind, version, value)
        values[name] = value
    return struct_class(**values)


def codes_of(value: object) -> set[int]:
    """Return the error codes anywhere in a response."""
    return set(_codes(value)) - {0}


def _codes(value: object) -> Iterator[int]:
    if isinstance(value, list):
        for each in value:
            yield from _codes(each)
    elif hasattr(value, "FIELDS"):
        for field in value.FIELDS:
            if field.name.endswith("error_code"):
                yield getattr(value, field.name)
            elif isinstance(field.kind, ArrayKind) or hasattr(field.kind, "FIELDS"):
                yield from _codes(getattr(value, field.name))


@dataclass(frozen=True, slots=True)
class Case:
    """The fields of a request that succeeds, and of one that fails; None where a version has no such one."""

    good: Callable[[Site, int], Fields]
    bad: Callable[[Site, int], Fields | None]
    tolerated: frozenset[int] = frozenset()
    """Errors of a request that succeeds."""
    needs_security: bool = False
    """Whether an open cluster refuses what a secured one serves."""
    others: tuple[Callable[[Site, int], Fields], ...] = ()
    """Further requests, whatever their outcome, whose answers have fields that only some versions have."""


def _never(_site: Site, _version: int) -> None:
    return None


def _always(fields: Fields) -> Callable[[Site, int], Fields]:
    return lambda _site, _version: fields


# Records and offsets.


def _records(version: int) -> bytes:
    if version < 3:
        old = MessageSetBuilder(magic=1 if version == 2 else 0)
        old.append(timestamp=1, key=None, value=b"v")
        return bytes(old.build())
    batch = RecordBatchBuilder()
    batch.append(timestamp=1, key=None, value=b"v")
    return bytes(batch.build())


def _produce(site: Site, version: int, index: int, topic: str = TOPIC) -> Fields:
    named = {"name": topic, "topic_id": site.id_of(topic)}
    data = [{**named, "partition_data": [{"index": index, "records": _records(version)}]}]
    return {"acks": -1, "timeout_ms": TIMEOUT_MS, "transactional_id": None, "topic_data": data}


def _fetch(site: Site, index: int, offset: int = 0, leader_epoch: int = -1, last_epoch: int = -1) -> Fields:
    wanted = [
        {
            "partition": index,
            "current_leader_epoch": leader_epoch,
            "last_fetched_epoch": last_epoch,
            "fetch_offset": offset,
            "partition_max_bytes": 1000,
        }
    ]
    topics = [{"topic": TOPIC, "topic_id": site.topic_id, "partitions": wanted}]
    return {"replica_id": -1, "max_bytes": 1000, "session_id": 0, "session_epoch": -1, "topics": topics}


def _list_offsets(index: int) -> Fields:
    wanted = [{"partition_index": index, "timestamp": -1, "max_num_offsets": 1, "current_leader_epoch": -1}]
    return {"replica_id": -1, "topics": [{"name": TOPIC, "partitions": wanted}]}


def _epoch_end(index: int) -> Fields:
    wanted = [{"partition": index, "current_leader_epoch": -1, "leader_epoch": 0}]
    return {"replica_id": -1, "topics": [{"topic": TOPIC, "partitions": wanted}]}


def _delete_records(index: int) -> Fields:
    wanted = [{"partition_index": index, "offset": 0}]
    return {"timeout_ms": TIMEOUT_MS, "topics": [{"name": TOPIC, "partitions": wanted}]}


def _lease(site: Site, topic: str) -> Fields:
    wanted = [
        {"partition": 0, "current_leader_epoch": -1, "start_offset": 0, "end_offset": 1, "lease_id": -1}
    ]
    return {"topics": [{"topic": topic, "topic_id": site.topic_id, "partitions": wanted}]}


def _released(site: Site, _version: int) -> Fields:
    found = site.settle(ApiKey.ACQUIRE_READ_LEASE, 0, _lease(site, TOPIC))
    return {"leases": [{"lease_id": each.lease_id} for each in found.topics[0].partitions]}


# Groups.


def _join(group: str) -> Fields:
    return {
        "group_id": group,
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"\0\0"}],
    }


def _join_good(site: Site, version: int) -> Fields:
    fields = _join(f"joins-{version}")
    if version == 4:
        # The only version in which a member without an instance id joins twice.
        fields["member_id"] = site.settle(ApiKey.JOIN_GROUP, version, fields).member_id
    return fields | {"group_instance_id": "one"}


def _sync(member: Fields) -> Fields:
    assigned = [{"member_id": member["member_id"], "assignment": b"\0\0"}]
    return {**member, "protocol_type": "consumer", "protocol_name": "range", "assignments": assigned}


def _left(member: Fields) -> Fields:
    named = {"member_id": member["member_id"]}
    return {"group_id": member["group_id"], **named, "members": [named]}


_STRANGER: Fields = {"group_id": GROUP, "member_id": "stranger", "generation_id": 1}


def _commit(group: str, index: int, topic_id: uuid.UUID = ZERO_UUID) -> Fields:
    wanted = [{"partition_index": index, "committed_offset": 0, "committed_metadata": ""}]
    topics = [{"name": TOPIC, "topic_id": topic_id, "partitions": wanted}]
    return {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}


def _offset_fetch(site: Site, _: int) -> Fields:
    topic = {"name": TOPIC, "partition_indexes": [0]}
    by_id = {**topic, "topic_id": site.topic_id}
    group = {"group_id": GROUP, "topics": [by_id], "member_id": None, "member_epoch": -1}
    return {"group_id": GROUP, "topics": [topic], "groups": [group]}


def _heartbeat_of_consumer(group: str, version: int, epoch: int) -> Fields:
    return {
        "group_id": group,
        "member_id": uuid_to_text(uuid.uuid4()) if version or epoch else "",
        "member_epoch": epoch,
        "rebalance_timeout_ms": 30_000 if epoch == 0 else -1,
        "subscribed_topic_names": [TOPIC] if epoch == 0 else None,
        "topic_partitions": [] if epoch == 0 else None,
    }


def _consumer_group(site: Site, version: int) -> Fields:
    group = f"described-consumers-{version}"
    site.settle(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, _heartbeat_of_consumer(group, 1, 0))
    return {"group_ids": [group]}


def _offset_fetch_bad(site: Site, version: int) -> Fields | None:
    if version < 9:
        return None
    (group,) = _consumer_group(site, version)["group_ids"]
    return {"groups": [{"group_id": group, "member_id": "stranger", "member_epoch": 5, "topics": None}]}


# Share groups.


def _heartbeat_of_share(group: str, epoch: int) -> Fields:
    return {
        "group_id": group,
        "member_id": uuid_to_text(uuid.uuid4()),
        "member_epoch": epoch,
        "subscribed_topic_names": [TOPIC] if epoch == 0 else None,
    }


def _share_group(site: Site, group: str) -> Fields:
    site.settle(ApiKey.SHARE_GROUP_HEARTBEAT, 1, _heartbeat_of_share(group, 0))
    return {"group_ids": [group], "include_authorized_operations": True}


def _share_fetch(site: Site, group: str, index: int = 0, epoch: int = 0) -> Fields:
    topic = {"topic_id": site.topic_id, "partitions": [{"partition_index": index}]}
    return {
        "group_id": group,
        "member_id": uuid_to_text(uuid.uuid4()),
        "share_session_epoch": epoch,
        "max_wait_ms": TIMEOUT_MS,
        "min_bytes": 1,
        "max_bytes": 1000,
        "max_records": 10,
        "batch_size": 10,
        "topics": [topic],
    }


def _share_fetch_again(site: Site, version: int) -> Fields:
    """What accepts the records of a first fetch, or renews their locks, and ends the session or goes on."""
    fields = _acknowledged(site, f"fetches-again-{version}", 4 if version >= 2 else 1)
    return fields | ({"max_bytes": 0} if version >= 2 else {"share_session_epoch": -1})


def _acknowledged(site: Site, group: str, kind: int = 1) -> Fields:
    """What acknowledges the records of a first fetch."""
    fetch = _share_fetch(site, site.shared(group))
    found = site.settle(ApiKey.SHARE_FETCH, 2, fetch).responses[0].partitions[0].acquired_records
    batches = [
        {"first_offset": each.first_offset, "last_offset": each.last_offset, "acknowledge_types": [kind]}
        for each in found
    ]
    partition = {"partition_index": 0, "acknowledgement_batches": batches}
    return {
        "group_id": group,
        "member_id": fetch["member_id"],
        "share_session_epoch": 1,
        "is_renew_ack": kind == 4,
        "topics": [{"topic_id": site.topic_id, "partitions": [partition]}],
    }


def _share_offsets(group: str, index: int, topic: str = TOPIC) -> Fields:
    partition = {"partition_index": index, "start_offset": 0}
    return {"group_id": group, "topics": [{"topic_name": topic, "partitions": [partition]}]}


def _described_offsets(group: str, *, is_whole: bool = False) -> Fields:
    topics = None if is_whole else [{"topic_name": TOPIC, "partitions": [0, 99]}]
    return {"groups": [{"group_id": group, "topics": topics}]}


def _forgotten(group: str, topic: str) -> Fields:
    return {"group_id": group, "topics": [{"topic_name": topic}]}


def _state(stored: Fields, **changes: Any) -> Fields:
    """Return a request for a share partition that is stored."""
    (topic,) = stored["topics"]
    return stored | {"topics": [topic | {"partitions": [{"partition": 0, **changes}]}]}


def _changed_state(stored: Fields, state_epoch: int) -> Fields:
    batch = {"first_offset": 1, "last_offset": 1, "delivery_state": 2, "delivery_count": 1}
    counts = {"leader_epoch": 0, "start_offset": 0, "delivery_complete_count": 1}
    return _state(stored, state_epoch=state_epoch, **counts, state_batches=[batch])


# Transactions.


def _transactional(name: str | None) -> Fields:
    return {
        "transactional_id": name,
        "transaction_timeout_ms": 60_000,
        "producer_id": -1,
        "producer_epoch": -1,
    }


def _to_transaction(producer: Fields) -> Fields:
    topics = [{"name": TOPIC, "partitions": [0]}]
    old = {f"v3_and_below_{name}": value for name, value in {**producer, "topics": topics}.items()}
    return {**old, "transactions": [{**producer, "topics": topics}]}


def _stranger(site: Site, name: str) -> Fields:
    return site.producer(name) | {"producer_id": 12345}


def _offsets_of(site: Site, version: int, index: int) -> Fields:
    producer = site.producer(f"offsets-{version}")
    site.settle(ApiKey.ADD_OFFSETS_TO_TXN, 3, {**producer, "group_id": GROUP})
    wanted = [{"partition_index": index, "committed_offset": 0, "committed_metadata": ""}]
    topics = [{"name": TOPIC, "topic_id": site.topic_id, "partitions": wanted}]
    return {**producer, "group_id": GROUP, "topics": topics}


def _marker(index: int) -> Fields:
    topics = [{"name": TOPIC, "partition_indexes": [index]}]
    marker = {"producer_id": 999, "producer_epoch": 0, "coordinator_epoch": 0, "topics": topics}
    return {"markers": [marker]}


# Requests of brokers.


def _role(site: Site, topic: str) -> Fields:
    state = {
        "topic_name": topic,
        "partition_index": 0,
        "controller_epoch": site.controller_epoch,
        "leader": 0,
        "leader_epoch": 0,
        "isr": [0],
        "replicas": [0],
    }
    return {
        "controller_id": site.controller,
        "controller_epoch": site.controller_epoch,
        "ungrouped_partition_states": [state],
        "topic_states": [
            {
                "topic_name": topic,
                "topic_id": uuid.uuid5(uuid.NAMESPACE_DNS, topic),
                "partition_states": [state],
            }
        ],
    }


def _metadata_update(site: Site, version: int) -> Fields:
    brokers = []
    for broker in site.brokers:
        listener = site.cluster.server(broker).services.config.listeners[0]
        endpoint = {
            "host": listener.host,
            "port": listener.port,
            "listener": listener.name,
            "security_protocol": 2 if site.is_secure else 0,
        }
        old = {"v0_host": listener.host, "v0_port": listener.port}
        brokers.append({"id": broker, **old, "endpoints": [endpoint]})
    return _role(site, f"announced-{version}") | {"live_brokers": brokers, "type": 1}


def _stop(site: Site, topic: str) -> Fields:
    states = [{"partition_index": 0, "leader_epoch": -1, "delete_partition": True}]
    return {
        "controller_id": site.controller,
        "controller_epoch": site.controller_epoch,
        "delete_partitions": True,
        "ungrouped_partitions": [{"topic_name": topic, "partition_index": 0}],
        "topics": [{"name": topic, "partition_indexes": [0]}],
        "topic_states": [{"topic_name": topic, "partition_states": states}],
    }


# Administration.


def _created(name: str) -> Fields:
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
    return {"topics": [topic], "timeout_ms": TIMEOUT_MS}


def _deleted(name: str) -> Fields:
    return {"topics": [{"name": name}], "topic_names": [name], "timeout_ms": TIMEOUT_MS}


def _grown(name: str, count: int) -> Fields:
    return {"topics": [{"name": name, "count": count, "assignments": None}], "timeout_ms": TIMEOUT_MS}


def _acl_filter(principal: str) -> Fields:
    return {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": principal,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }


_UNKNOWN_ACL_FILTER: Fields = {**_acl_filter("User:x"), "operation": 99}


def _altered(value: str) -> Fields:
    config = {"name": "retention.ms", "value": value}
    return {"resources": [{"resource_type": 2, "resource_name": TOPIC, "configs": [config]}]}


def _described(topic: str) -> Fields:
    return {"resources": [{"resource_type": 2, "resource_name": topic, "configuration_keys": None}]}


def _moved(path: str) -> Fields:
    return {"dirs": [{"path": path, "topics": [{"name": TOPIC, "partitions": [0]}]}]}


def _elected(topic: str) -> Fields:
    return {"topic_partitions": [{"topic": topic, "partitions": [0]}], "timeout_ms": TIMEOUT_MS}


def _reassigned(site: Site, topic: str) -> Fields:
    wanted = [{"partition_index": 0, "replicas": site.brokers}]
    return {"timeout_ms": TIMEOUT_MS, "topics": [{"name": topic, "partitions": wanted}]}


def _quota(entity_type: str) -> Fields:
    entity = [{"entity_type": entity_type, "entity_name": "x"}]
    ops = [{"key": "producer_byte_rate", "value": 1e9, "remove": False}]
    return {"entries": [{"entity": entity, "ops": ops}]}


def _quota_filter(entity_type: str) -> Fields:
    return {"components": [{"entity_type": entity_type, "match_type": 0, "match": "x"}]}


_PASSWORD: Fields = {
    "upsertions": [
        {"name": "x", "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"p" * 32}
    ]
}
_NO_PASSWORD: Fields = {"deletions": [{"name": ABSENT, "mechanism": 1}]}


def _feature(name: str, level: int) -> Fields:
    return {"timeout_ms": TIMEOUT_MS, "feature_updates": [{"feature": name, "max_version_level": level}]}


def _push(site: Site, _version: int) -> Fields:
    found = site.settle(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, {})
    named = {"client_instance_id": found.client_instance_id, "subscription_id": found.subscription_id}
    return {**named, "metrics": b"", "terminating": True}


CASES: dict[ApiKey, Case] = {
    ApiKey.PRODUCE: Case(
        lambda site, v: _produce(site, v, 0),
        lambda site, v: _produce(site, v, 99),
        # Each record of it is refused, as it has no key.
        others=(lambda site, v: _produce(site, v, 0, site.compacted_topic()),),
    ),
    ApiKey.FETCH: Case(
        lambda site, _: _fetch(site, 0),
        lambda site, _: _fetch(site, 99),
        others=(
            lambda site, _: _fetch(site, 0) | {"session_epoch": 0, "isolation_level": 1},
            lambda site, _: _fetch(site, 0) | {"session_id": 99, "session_epoch": 5},
            lambda site, _: _fetch(site, 0, leader_epoch=99, last_epoch=0),
            lambda site, _: _fetch(site, 0, offset=1 << 40),
        ),
    ),
    ApiKey.LIST_OFFSETS: Case(_always(_list_offsets(0)), _always(_list_offsets(99))),
    ApiKey.METADATA: Case(
        _always({"topics": [{"name": TOPIC}], "include_topic_authorized_operations": True}),
        _always({"topics": [{"name": ABSENT}], "allow_auto_topic_creation": False}),
        others=(
            lambda site, _: {"topics": [{"name": None, "topic_id": site.topic_id}]},
            _always({"topics": [{"name": None, "topic_id": uuid.UUID(int=99)}]}),
            _always({"topics": None, "include_cluster_authorized_operations": True}),
        ),
    ),
    ApiKey.LEADER_AND_ISR: Case(
        lambda site, v: _role(site, f"led-{v}"),
        lambda site, v: _role(site, f"led-{v}") | {"controller_epoch": 0},
    ),
    ApiKey.STOP_REPLICA: Case(
        lambda site, v: _stop(site, f"led-{v}"), lambda site, v: _stop(site, TOPIC) | {"controller_epoch": 0}
    ),
    ApiKey.UPDATE_METADATA: Case(
        _metadata_update, lambda site, v: _metadata_update(site, v) | {"controller_epoch": 0}
    ),
    ApiKey.CONTROLLED_SHUTDOWN: Case(
        lambda site, _: {"broker_id": site.brokers[-1], "broker_epoch": -1},
        _always({"broker_id": 99, "broker_epoch": -1}),
    ),
    ApiKey.ALTER_PARTITION: Case(
        lambda site, _: {"broker_id": site.brokers[0], "broker_epoch": site.broker_epoch(site.brokers[0])},
        _always({"broker_id": 99, "broker_epoch": -1}),
    ),
    ApiKey.ALLOCATE_PRODUCER_IDS: Case(
        lambda site, _: {"broker_id": site.brokers[0], "broker_epoch": site.broker_epoch(site.brokers[0])},
        _always({"broker_id": 99, "broker_epoch": -1}),
    ),
    ApiKey.OFFSET_COMMIT: Case(
        lambda site, _: _commit(GROUP, 0, site.topic_id), lambda site, _: _commit(GROUP, 99, site.topic_id)
    ),
    ApiKey.OFFSET_FETCH: Case(_offset_fetch, _offset_fetch_bad),
    ApiKey.FIND_COORDINATOR: Case(
        _always({"key": GROUP, "coordinator_keys": [GROUP]}),
        lambda _, v: {"key": GROUP, "coordinator_keys": [GROUP], "key_type": 9} if v else None,
    ),
    ApiKey.JOIN_GROUP: Case(
        _join_good,
        _always({**_join(GROUP), "session_timeout_ms": 1}),
        others=(
            # A static leader that comes back to a stable group.
            lambda site, v: (
                _join(site.stable(f"returns-{v}")["group_id"]) | {"group_instance_id": "one"}
                if v >= 5
                else {}
            ),
        ),
    ),
    ApiKey.HEARTBEAT: Case(lambda site, v: site.stable(f"beats-{v}"), _always(_STRANGER)),
    ApiKey.LEAVE_GROUP: Case(lambda site, v: _left(site.stable(f"leaves-{v}")), _always(_left(_STRANGER))),
    ApiKey.SYNC_GROUP: Case(lambda site, v: _sync(site.joined(f"syncs-{v}")), _always(_sync(_STRANGER))),
    ApiKey.DESCRIBE_GROUPS: Case(
        lambda site, v: {"groups": [site.stable(f"described-{v}")["group_id"]]},
        lambda _, v: {"groups": [ABSENT]} if v >= 6 else None,
        others=(_always({"groups": [GROUP, ABSENT], "include_authorized_operations": True}),),
    ),
    ApiKey.LIST_GROUPS: Case(_always({}), _never),
    ApiKey.API_VERSIONS: Case(
        _always({"client_software_name": "test", "client_software_version": "1"}),
        lambda _, v: {"client_software_name": "?", "client_software_version": "?"} if v >= 3 else None,
    ),
    ApiKey.CREATE_TOPICS: Case(lambda _, v: _created(f"created-{v}"), _always(_created("a/b"))),
    ApiKey.DELETE_TOPICS: Case(
        lambda site, v: _deleted(site.made_topic(f"deleted-{v}")), _always(_deleted(ABSENT))
    ),
    ApiKey.DELETE_RECORDS: Case(_always(_delete_records(0)), _always(_delete_records(99))),
    ApiKey.INIT_PRODUCER_ID: Case(
        lambda _, v: _transactional(f"begins-{v}"),
        _always(_transactional("")),
        others=(
            lambda site, v: (
                site.transaction(f"prepared-{v}")
                | {"transaction_timeout_ms": 1000, "enable2_pc": True, "keep_prepared_txn": True}
            ),
        ),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Case(_always(_epoch_end(0)), _always(_epoch_end(99))),
    ApiKey.ADD_PARTITIONS_TO_TXN: Case(
        lambda site, v: _to_transaction(site.producer(f"adds-{v}")),
        lambda site, v: _to_transaction(_stranger(site, f"adds-{v}")),
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: Case(
        lambda site, v: site.producer(f"adds-offsets-{v}") | {"group_id": GROUP},
        lambda site, v: _stranger(site, f"adds-offsets-{v}") | {"group_id": GROUP},
    ),
    ApiKey.END_TXN: Case(
        lambda site, v: site.transaction(f"ends-{v}") | {"committed": True},
        lambda site, v: _stranger(site, f"ends-{v}"),
    ),
    ApiKey.WRITE_TXN_MARKERS: Case(_always(_marker(0)), _always(_marker(99))),
    ApiKey.TXN_OFFSET_COMMIT: Case(
        lambda site, v: _offsets_of(site, v, 0),
        lambda site, v: _offsets_of(site, v, 99),
    ),
    ApiKey.DESCRIBE_ACLS: Case(
        _always(_acl_filter("User:x")),
        _always(_UNKNOWN_ACL_FILTER),
        needs_security=True,
        others=(lambda site, _: site.with_prefixed_acl(_acl_filter("User:prefixed")),),
    ),
    ApiKey.CREATE_ACLS: Case(
        lambda site, v: {"creations": [site.acl(f"acl-{v}")]},
        lambda site, v: {"creations": [site.acl(f"acl-{v}") | {"principal": "x"}]},
        needs_security=True,
    ),
    ApiKey.DELETE_ACLS: Case(
        _always({"filters": [_acl_filter("User:x")]}),
        _always({"filters": [_UNKNOWN_ACL_FILTER]}),
        needs_security=True,
        others=(lambda site, _: {"filters": [site.with_prefixed_acl(_acl_filter("User:prefixed"))]},),
    ),
    ApiKey.DESCRIBE_CONFIGS: Case(
        _always(_described(TOPIC)),
        _always(_described(ABSENT)),
        others=(_always({**_described(TOPIC), "include_synonyms": True, "include_documentation": True}),),
    ),
    ApiKey.ALTER_CONFIGS: Case(_always(_altered("86400000")), _always(_altered("x"))),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Case(_always(_altered("86400000")), _always(_altered("x"))),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Case(
        lambda site, _: _moved(str(site.cluster.log_directories_of(0)[0])), _always(_moved("/absent"))
    ),
    ApiKey.DESCRIBE_LOG_DIRS: Case(_always({"topics": None}), _never),
    ApiKey.CREATE_PARTITIONS: Case(
        lambda site, v: _grown(site.made_topic(f"grown-{v}"), 2),
        _always(_grown(TOPIC, 1)),
    ),
    ApiKey.CREATE_DELEGATION_TOKEN: Case(
        _always({"max_lifetime_ms": -1}),
        _always({"renewers": [{"principal_type": "Group", "principal_name": "x"}]}),
        needs_security=True,
    ),
    ApiKey.RENEW_DELEGATION_TOKEN: Case(
        lambda site, _: {"hmac": site.token(), "renew_period_ms": -1},
        _always({"hmac": b"x"}),
        needs_security=True,
    ),
    ApiKey.EXPIRE_DELEGATION_TOKEN: Case(
        lambda site, _: {"hmac": site.token(), "expiry_time_period_ms": -1},
        _always({"hmac": b"x"}),
        needs_security=True,
    ),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: Case(
        lambda site, _: {"owners": None} if site.token() else {}, _never, needs_security=True
    ),
    ApiKey.DELETE_GROUPS: Case(
        lambda site, v: {"groups_names": [site.committed(f"deleted-{v}")]},
        _always({"groups_names": [ABSENT]}),
    ),
    ApiKey.ELECT_LEADERS: Case(
        _always(_elected(TOPIC)), _always(_elected(ABSENT)), frozenset((ErrorCode.ELECTION_NOT_NEEDED,))
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Case(
        lambda site, _: _reassigned(site, TOPIC), lambda site, _: _reassigned(site, ABSENT)
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Case(_always({"topics": None}), _never),
    ApiKey.OFFSET_DELETE: Case(
        lambda site, v: {
            "group_id": site.committed(f"forgets-{v}"),
            "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}]}],
        },
        _always({"group_id": ABSENT}),
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Case(_always(_quota_filter("user")), _always(_quota_filter("colour"))),
    ApiKey.ALTER_CLIENT_QUOTAS: Case(_always(_quota("user")), _always(_quota("colour"))),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Case(
        _always({"users": None}), _always({"users": [{"name": ABSENT}]})
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Case(_always(_PASSWORD), _always(_NO_PASSWORD)),
    ApiKey.UPDATE_FEATURES: Case(
        _always(_feature("transaction.version", 2)), _always(_feature("absent.version", 1))
    ),
    ApiKey.DESCRIBE_CLUSTER: Case(
        _always({}),
        lambda _, v: {"endpoint_type": 2} if v else None,
        others=(_always({"include_cluster_authorized_operations": True}),),
    ),
    ApiKey.DESCRIBE_PRODUCERS: Case(
        _always({"topics": [{"name": TOPIC, "partition_indexes": [0]}]}),
        _always({"topics": [{"name": TOPIC, "partition_indexes": [99]}]}),
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: Case(
        lambda site, v: {"transactional_ids": [site.transaction(f"described-{v}")["transactional_id"]]},
        _always({"transactional_ids": [ABSENT]}),
    ),
    ApiKey.LIST_TRANSACTIONS: Case(
        _always({}), lambda _, v: {"transactional_id_pattern": "("} if v >= 2 else None
    ),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Case(
        lambda _, v: _heartbeat_of_consumer(f"consumers-{v}", v, 0),
        lambda _, v: _heartbeat_of_consumer(GROUP, v, 5),
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Case(_consumer_group, _always({"group_ids": [ABSENT]})),
    ApiKey.SHARE_GROUP_HEARTBEAT: Case(
        lambda _, v: _heartbeat_of_share(f"sharers-{v}", 0), lambda _, v: _heartbeat_of_share(GROUP, 5)
    ),
    ApiKey.SHARE_GROUP_DESCRIBE: Case(
        lambda site, v: _share_group(site, f"described-sharers-{v}"), _always({"group_ids": [ABSENT]})
    ),
    ApiKey.SHARE_FETCH: Case(
        lambda site, v: _share_fetch(site, site.shared(f"fetches-{v}")),
        lambda site, _: _share_fetch(site, GROUP, epoch=5),
        others=(
            # All brokers but one are not the leader.
            lambda site, v: _share_fetch(site, f"fetches-{v}") | {"max_wait_ms": 0, "share_acquire_mode": 1},
            lambda site, v: _share_fetch(site, f"fetches-{v}", 99),
            _share_fetch_again,
        ),
    ),
    ApiKey.SHARE_ACKNOWLEDGE: Case(
        lambda site, v: _acknowledged(site, f"acknowledges-{v}"),
        # The records are acquired by another member.
        lambda site, v: _acknowledged(site, f"renews-{v}", 4) | {"member_id": "stranger"},
        others=(lambda site, v: _acknowledged(site, f"renews-again-{v}", 4 if v >= 2 else 2),),
    ),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: Case(
        lambda site, v: site.with_state(f"initializes-{v}"),
        lambda site, v: _state(site.with_state(f"fences-{v}"), state_epoch=-1),
    ),
    ApiKey.READ_SHARE_GROUP_STATE: Case(
        lambda site, v: _state(site.with_state(f"reads-{v}"), leader_epoch=0),
        lambda site, v: _state(site.with_state(f"reads-{v}")) | {"group_id": ""},
    ),
    ApiKey.WRITE_SHARE_GROUP_STATE: Case(
        lambda site, v: _changed_state(site.with_state(f"writes-{v}"), 0),
        lambda site, v: _changed_state(site.with_state(f"writes-{v}"), 9),
    ),
    ApiKey.DELETE_SHARE_GROUP_STATE: Case(
        lambda site, v: _state(site.with_state(f"deletes-{v}")),
        lambda site, v: _state(site.with_state(f"deletes-{v}")) | {"group_id": ""},
    ),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: Case(
        lambda site, v: _state(site.with_state(f"summarises-{v}"), leader_epoch=0),
        lambda site, v: _state(site.with_state(f"summarises-{v}")) | {"group_id": ""},
    ),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Case(
        lambda site, v: _described_offsets(site.shared(f"described-offsets-{v}"), is_whole=True),
        _always(_described_offsets(ABSENT)),
        others=(lambda _, v: _described_offsets(f"described-offsets-{v}"),),
    ),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: Case(
        lambda site, v: _share_offsets(site.shared(f"alters-{v}"), 0),
        lambda site, v: _share_offsets(site.shared(f"alters-{v}"), 99),
    ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: Case(
        lambda site, v: _forgotten(site.shared(f"forgets-shared-{v}"), TOPIC),
        lambda site, v: _forgotten(site.shared(f"forgets-shared-{v}"), ABSENT),
    ),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: Case(_always({}), _never),
    ApiKey.PUSH_TELEMETRY: Case(_push, _always({"subscription_id": 5})),
    ApiKey.LIST_CONFIG_RESOURCES: Case(_always({}), lambda _, v: {"resource_types": [99]} if v else None),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Case(
        _always({"topics": [{"name": TOPIC}], "response_partition_limit": 10, "cursor": None}),
        _always({"topics": [{"name": ABSENT}], "response_partition_limit": 10, "cursor": None}),
    ),
    ApiKey.ACQUIRE_READ_LEASE: Case(
        lambda site, _: _lease(site, TOPIC), lambda site, _: _lease(site, ABSENT)
    ),
    ApiKey.RELEASE_READ_LEASE: Case(_released, _never),
    ApiKey.DESCRIBE_PROCESS: Case(_always({}), _never),
    ApiKey.DESCRIBE_EVENTS: Case(
        _always({}), _always({"subjects": [{"subject_type": "topic", "subject_name": TOPIC}] * 101})
    ),
}
"""By API key; `SaslHandshake` and `SaslAuthenticate` change their connection and have tests of their own."""

SASL = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
LAST = (ApiKey.CONTROLLED_SHUTDOWN,)
"""What must not happen before the other APIs are asked."""
