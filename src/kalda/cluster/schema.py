"""Encodes and decodes the JSON of every znode of the cluster, exactly as Kafka 3.9 in ZooKeeper mode writes
it.

Each kind of znode has a value class and two functions. Decoders accept older schema versions that brokers of
a rolling upgrade could have written, ignore unknown keys, and refuse a version above the newest one that is
known (`VERSIONS`). Paths are in `paths`. The version of a znode is part of a value only if the next write
names it.
"""

import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias, TypeVar

from kalda.cluster import paths
from kalda.cluster.paths import INT32_MAX
from kalda.common.log_text import bytes_text
from kalda.common.received_json import loads_received
from kalda.common.types import UUID, ZERO_UUID, TopicPartition, uuid_from_text, uuid_to_text
from kalda.protocol.wire_format import STRING_BYTES_MAX
from kalda.zookeeper.port import Stat

_INT32_MIN: Final = -(2**31)

NO_LEADER: Final = -1
"""The leader of a partition that has none."""

UNKNOWN_BROKER_EPOCH: Final = -1
"""The broker epoch in a request whose sender does not know or does not send it."""

LEADER_DURING_DELETE: Final = -2
"""The leader epoch in a StopReplica of a topic that is being deleted; never in a znode."""

PRODUCER_ID_BLOCK_SIZE: Final = 1000
"""The number of producer ids that a broker allocates at a time, as in Kafka."""


class SchemaError(Exception):
    """A znode's data does not have the schema of its path; the message has the kind and the data."""


class NewerSchemaError(SchemaError):
    """A newer release wrote a znode; the message has the version found and the newest one that is read."""


class Kind(Enum):
    """A kind of znode whose JSON has a version."""

    BROKER = "/brokers/ids/N"
    TOPIC = "/brokers/topics/T"
    PARTITION_STATE = "/brokers/topics/T/partitions/P/state"
    CONTROLLER = "/controller"
    CONFIG = "/config/TYPE/NAME"
    CONFIG_CHANGE = "/config/changes/config_change_N"
    ISR_CHANGE = "/isr_change_notification/isr_change_N"
    PREFERRED_ELECTION = "/admin/preferred_replica_election"
    REASSIGNMENT = "/admin/reassign_partitions"
    LOG_DIR_EVENT = "/log_dir_event_notification/log_dir_event_N"
    PRODUCER_ID_BLOCK = "/latest_producer_id_block"
    CLUSTER_ID = "/cluster/id"


VERSIONS: Final[Mapping[Kind, int]] = {
    Kind.BROKER: 5,
    Kind.TOPIC: 3,
    Kind.PARTITION_STATE: 1,
    Kind.CONTROLLER: 2,
    Kind.CONFIG: 1,
    Kind.CONFIG_CHANGE: 2,
    Kind.ISR_CHANGE: 1,
    Kind.PREFERRED_ELECTION: 1,
    Kind.REASSIGNMENT: 1,
    Kind.LOG_DIR_EVENT: 1,
    Kind.PRODUCER_ID_BLOCK: 1,
    Kind.CLUSTER_ID: 1,
}
"""By kind: the version that is written, the newest one that is read."""


@dataclass(frozen=True, slots=True)
class ListenerEndpoint:
    """One listener of a broker: listener name, address, security protocol."""

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"

    @property
    def connection_string(self) -> str:
        """The form in a registration, e.g. ``PLAINTEXT://host:9092``; an IPv6 address is in brackets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A live broker's registration.

    `epoch` is the transaction id that created the registration (KIP-380); -1 before that.
    """

    id: int
    endpoints: tuple[ListenerEndpoint, ...]
    rack: str | None = None
    jmx_port: int = -1
    timestamp_ms: int = -1
    epoch: int = UNKNOWN_BROKER_EPOCH
    features: tuple[tuple[str, int, int], ...] = ()
    """The supported features: name, lowest and highest level of each (KIP-584)."""
    is_cordoned: bool = False
    """Whether all of its log directories are cordoned, so that it gets no new replicas (KIP-1066). Apache
    Kafka neither writes nor reads it."""
    kalda: str | None = None
    """The release of Kalda that registered; None for a broker of Apache Kafka, which ignores the field, and
    for the first releases of Kalda, which did not write it. `is_kalda` knows them all."""
    controller_eligible: bool | None = None
    """The ``kalda.controller.eligible`` of a broker of Kalda; None where it is not set."""

    @property
    def is_kalda(self) -> bool:
        """Whether a broker of Kalda registered. Apache Kafka in ZooKeeper mode never lists features."""
        return self.kalda is not None or bool(self.features)

    def endpoint(self, listener: str) -> ListenerEndpoint | None:
        """Return the endpoint of a listener, or None."""
        return next((endpoint for endpoint in self.endpoints if endpoint.listener == listener), None)

    @property
    def old_clients_endpoint(self) -> ListenerEndpoint:
        """The endpoint that clients see who read registrations: the first PLAINTEXT one, or the first."""
        plaintext = (each for each in self.endpoints if each.security_protocol == "PLAINTEXT")
        return next(plaintext, self.endpoints[0])


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """The brokers that hold a partition; the first is its preferred leader (KIP-455 for the other two)."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_being_reassigned(self) -> bool:
        """Whether a reassignment is in progress."""
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    @property
    def original(self) -> tuple[int, ...]:
        """The replicas before the reassignment, which a cancellation restores (except their order)."""
        return tuple(replica for replica in self.replicas if replica not in self.adding)

    def reassigned_to(self, target: tuple[int, ...]) -> "ReplicaAssignment":
        """Return the assignment that starts a reassignment to `target`, in place of one in progress.

        (1, 2, 3) to (3, 4) → replicas (3, 4, 1, 2), adding (4), removing (1, 2).
        """
        original = self.original
        everywhere = tuple(dict.fromkeys((*target, *original)))
        return ReplicaAssignment(
            everywhere,
            tuple(replica for replica in everywhere if replica not in original),
            tuple(replica for replica in everywhere if replica not in target),
        )


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """A topic's id and the assignments of its partitions. `version` is the znode's."""

    topic: str
    topic_id: UUID
    partitions: Mapping[int, ReplicaAssignment] = field(default_factory=dict)
    version: int = -1
    created_at: int = field(default=-1, compare=False)
    """The transaction that created the topic, of an assignment that was read from ZooKeeper; else -1."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition's leadership as ZooKeeper holds it.

    `version` is the znode's, which the wire calls partition epoch; -1 before the state is written.
    Invariant: the leader is `NO_LEADER` or a member of `isr`.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    version: int = -1
    leader_recovering: bool = False
    """The leader was elected by an unclean election and has not recovered yet (KIP-704)."""
    written_at: int = field(default=-1, compare=False)
    """The transaction that wrote the state, of a state that was read from ZooKeeper; else -1. Registrations
    of brokers are numbered in the same order."""


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """A range of producer ids that one broker may allocate; both ends are included."""

    broker_id: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class LogDirEvent:
    """A broker's notification that replicas went offline with a log directory."""

    broker_id: int
    ended_by: Mapping[str, str] = field(default_factory=dict)
    """The reasons by directory, from a broker that ends because every log directory has failed: nobody can
    read its own events then. Empty from a broker that goes on."""
    broker_epoch: int = -1
    """The registration that ends; -1 if the broker goes on."""


Name = TypeVar("Name")
Decoded = TypeVar("Decoded")
Entry: TypeAlias = tuple[bytes, Stat]
"""A znode's data and metadata."""

logger: Final = logging.getLogger(__name__)


def decode_each(
    names: Iterable[Name], entries: Iterable[Entry | None], decode: Callable[[Name, Entry], Decoded]
) -> dict[Name, Decoded]:
    """Decode the entries of a bulk read; a malformed znode is logged and left out.

    One topic that was broken by hand must not stop brokers and controllers from serving the others.
    """
    decoded: dict[Name, Decoded] = {}
    for name, entry in zip(names, entries, strict=True):
        if entry is None:
            continue
        try:
            decoded[name] = decode(name, entry)
        except SchemaError as error:
            logger.error("a malformed znode is ignored: %s", error)
    return decoded


def _dump(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _shown(value: object) -> str:
    """Return a JSON value as text, truncated if it is long."""
    try:
        return f"{json.dumps(value):.200}"
    except RecursionError:
        return "a value that is nested too deeply"


def _load(data: bytes, what: str, kind: Kind) -> dict[str, object]:
    try:
        value = loads_received(data)
    except ValueError as error:
        raise SchemaError(f"{what} is not JSON ({error}): {bytes_text(data)}") from None
    if not isinstance(value, dict):
        raise SchemaError(f"{what} is not a JSON object: {bytes_text(data)}")
    newest, version = VERSIONS[kind], value.get("version")
    # The version of a cluster's id is a text.
    found = paths.number(version) if isinstance(version, str) else version
    if isinstance(found, int) and found > newest:
        raise NewerSchemaError(
            f"{what} has version {found}, and this release of Kalda reads up to version {newest}: a newer "
            "release wrote it"
        )
    return value


def _int(value: object, what: str) -> int:
    if type(value) is not int or not _INT32_MIN <= value <= INT32_MAX:
        raise SchemaError(f"{what} should be an integer of 32 bits, found {_shown(value)}")
    return value


def _ints(value: object, what: str) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise SchemaError(f"{what} should be a list of integers, found {_shown(value)}")
    for item in value:
        if type(item) is not int or not _INT32_MIN <= item <= INT32_MAX:
            raise SchemaError(f"{what} should be a list of integers of 32 bits, found {_shown(value)}")
    return tuple(value)


def _replicas(value: object, what: str) -> tuple[int, ...]:
    """Read a partition's replicas, which must be distinct and at least one."""
    replicas = _ints(value, what)
    if not replicas or len(set(replicas)) < len(replicas) or min(replicas) < 0:
        raise SchemaError(f"{what} should name each replica of a partition once, found {_shown(value)}")
    return replicas


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise SchemaError(f"{what} should be a text, found {_shown(value)}")
    return value


def _sendable(value: object, what: str) -> str:
    """Read a text that responses to clients contain."""
    text = _text(value, what)
    if len(text.encode()) > STRING_BYTES_MAX:
        raise SchemaError(f"{what} has a text of {len(text)} characters, above {STRING_BYTES_MAX} bytes")
    return text


def _object(value: object, what: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise SchemaError(f"{what} should be a JSON object, found {_shown(value)}")
    return value


_TIMESTAMP: Final = re.compile(r"-?[0-9]{1,18}")
_ENDPOINT: Final = re.compile(r"(?P<listener>[^:/]+)://\[?(?P<host>[^\[\]]*?)\]?:(?P<port>-?[0-9]{1,5})")


def encode_broker(info: BrokerInfo) -> bytes:
    """Encode `/brokers/ids/N`, version 5.

    The top-level host and port are those of the first PLAINTEXT endpoint, for old clients; null and -1
    without one.
    """
    plaintext = next((e for e in info.endpoints if e.security_protocol == "PLAINTEXT"), None)
    value: dict[str, object] = {
        "features": {
            # Tools of Kafka 2.7 to 3.2 read no registration with a level below 1; without a feature, its
            # level is 0 in any case.
            name: {"min_version": max(lowest, 1), "max_version": highest}
            for name, lowest, highest in info.features
        },
        "listener_security_protocol_map": {e.listener: e.security_protocol for e in info.endpoints},
        "endpoints": [endpoint.connection_string for endpoint in info.endpoints],
        "jmx_port": info.jmx_port,
        "port": plaintext.port if plaintext else -1,
        "host": plaintext.host if plaintext else None,
        "version": VERSIONS[Kind.BROKER],
        "timestamp": str(info.timestamp_ms),
    }
    if info.rack is not None:
        value["rack"] = info.rack
    if info.is_cordoned:
        value["cordoned"] = True
    if info.kalda is not None:
        value["kalda"] = info.kalda
    if info.controller_eligible is not None:
        value["kalda_controller_eligible"] = info.controller_eligible
    return _dump(value)


def decode_broker(broker_id: int, data: bytes, epoch: int = -1) -> BrokerInfo:
    """Decode `/brokers/ids/N`, versions 2 to 5.

    Raises:
        SchemaError: the data is not a registration.
    """
    what = f"the registration of broker {broker_id}"
    value = _load(data, what, Kind.BROKER)
    protocols = _object(value.get("listener_security_protocol_map") or {}, what)
    texts = value.get("endpoints")
    if not isinstance(texts, list):
        raise SchemaError(f"{what} has no list of endpoints: {bytes_text(data)}")
    endpoints = []
    for text in texts:
        match = _ENDPOINT.fullmatch(_sendable(text, what))
        if match is None:
            raise SchemaError(f"{what} has an endpoint that is not LISTENER://host:port: {text!r}")
        listener = match["listener"]
        protocol = _text(protocols.get(listener, listener), what)
        endpoints.append(ListenerEndpoint(listener, match["host"], int(match["port"]), protocol))
    rack, kalda, eligible = (value.get(key) for key in ("rack", "kalda", "kalda_controller_eligible"))
    timestamp = _text(value.get("timestamp", "-1"), what)
    return BrokerInfo(
        broker_id,
        tuple(endpoints),
        None if rack is None else _sendable(rack, what),
        _int(value.get("jmx_port", -1), what),
        int(timestamp) if _TIMESTAMP.fullmatch(timestamp) else -1,
        epoch,
        _features(value.get("features") or {}, what),
        value.get("cordoned") is True,
        kalda if isinstance(kalda, str) else None,
        eligible if isinstance(eligible, bool) else None,
    )


def _features(value: object, what: str) -> tuple[tuple[str, int, int], ...]:
    found = []
    for name, levels in _object(value, what).items():
        bounds = _object(levels, what)
        lowest = _int(bounds.get("min_version", 0), what)
        # See `encode_broker`.
        found.append(
            (_sendable(name, what), 0 if lowest == 1 else lowest, _int(bounds.get("max_version", 0), what))
        )
    return tuple(found)


def encode_topic(assignment: TopicAssignment) -> bytes:
    """Encode `/brokers/topics/T`, version 3 (with the topic id, KIP-516)."""
    partitions = assignment.partitions
    value: dict[str, object] = {
        "removing_replicas": {str(p): list(a.removing) for p, a in partitions.items() if a.removing},
        "partitions": {str(p): list(a.replicas) for p, a in partitions.items()},
        "topic_id": uuid_to_text(assignment.topic_id),
        "adding_replicas": {str(p): list(a.adding) for p, a in partitions.items() if a.adding},
        "version": VERSIONS[Kind.TOPIC],
    }
    if assignment.topic_id == ZERO_UUID:
        del value["topic_id"]
    return _dump(value)


def decode_topic(topic: str, data: bytes, version: int = -1, created_at: int = -1) -> TopicAssignment:
    """Decode `/brokers/topics/T`; a topic without an id (versions 1 and 2) gets `ZERO_UUID`.

    Raises:
        SchemaError: the data is not an assignment.
    """
    what = f"the assignment of topic {topic}"
    value = _load(data, what, Kind.TOPIC)
    adding = _object(value.get("adding_replicas") or {}, what)
    removing = _object(value.get("removing_replicas") or {}, what)
    partitions = {}
    for key, replicas in _object(value.get("partitions") or {}, what).items():
        if (partition := paths.number(key)) is None:
            raise SchemaError(f"{what} has a partition that is not a number: {key!r:.50}")
        partitions[partition] = ReplicaAssignment(
            _replicas(replicas, what), _ints(adding.get(key, []), what), _ints(removing.get(key, []), what)
        )
    text = value.get("topic_id")
    try:
        topic_id = ZERO_UUID if text is None else uuid_from_text(_text(text, what))
    except ValueError as error:
        raise SchemaError(f"{what}: {error}") from None
    return TopicAssignment(topic, topic_id, dict(sorted(partitions.items())), version, created_at)


def encode_partition_state(state: PartitionState) -> bytes:
    """Encode `/brokers/topics/T/partitions/P/state`, version 1."""
    value: dict[str, object] = {
        "controller_epoch": state.controller_epoch,
        "leader": state.leader,
        "version": VERSIONS[Kind.PARTITION_STATE],
        "leader_epoch": state.leader_epoch,
        "isr": list(state.isr),
    }
    if state.leader_recovering:
        value["leader_recovery_state"] = 1
    return _dump(value)


def decode_partition_state(
    partition: TopicPartition, data: bytes, version: int, written_at: int = -1
) -> PartitionState:
    """Decode `/brokers/topics/T/partitions/P/state`; `version` and `written_at` are the znode's.

    Raises:
        SchemaError: the data is not a partition's state; the message names the partition.
    """
    what = f"the state of partition {partition}"
    value = _load(data, what, Kind.PARTITION_STATE)
    return PartitionState(
        _int(value.get("leader"), what),
        _int(value.get("leader_epoch"), what),
        _ints(value.get("isr"), what),
        _int(value.get("controller_epoch"), what),
        version,
        value.get("leader_recovery_state", 0) != 0,
        written_at,
    )


def decode_partition_states(
    partitions: Iterable[TopicPartition], entries: Iterable[Entry | None]
) -> dict[TopicPartition, PartitionState]:
    """Decode the partition states of a bulk read, as `decode_each` does."""
    return decode_each(
        partitions,
        entries,
        lambda partition, entry: decode_partition_state(
            partition, entry[0], entry[1].version, entry[1].mzxid
        ),
    )


def encode_controller(broker_id: int, timestamp_ms: int) -> bytes:
    """Encode `/controller`, version 2. Kalda never migrates to KRaft, so the KRaft epoch is always -1."""
    return _dump(
        {
            "version": VERSIONS[Kind.CONTROLLER],
            "brokerid": broker_id,
            "timestamp": str(timestamp_ms),
            "kraftControllerEpoch": -1,
        }
    )


def decode_controller(data: bytes) -> int:
    """Decode the controller's broker id.

    Raises:
        SchemaError: the data is not a controller's registration.
    """
    return _int(_load(data, "/controller", Kind.CONTROLLER).get("brokerid"), "brokerid of /controller")


def encode_controller_epoch(epoch: int) -> bytes:
    """Encode `/controller_epoch`: the number as text."""
    return str(epoch).encode()


def decode_controller_epoch(data: bytes) -> int:
    """Decode `/controller_epoch`.

    Raises:
        SchemaError: the data is not a number.
    """
    epoch = paths.number(data.decode("ascii", errors="replace"))
    if epoch is None:
        raise SchemaError(f"/controller_epoch should be a number, found {bytes_text(data)}")
    return epoch


def encode_config(config: Mapping[str, str]) -> bytes:
    """Encode `/config/TYPE/NAME`, version 1."""
    return _dump({"version": VERSIONS[Kind.CONFIG], "config": dict(config)})


def decode_config(entity_type: str, entity_name: str, data: bytes) -> dict[str, str]:
    """Decode `/config/TYPE/NAME`; an empty znode is an empty configuration.

    Raises:
        SchemaError: the data is not a configuration; the message names the entity.
    """
    if not data:
        return {}
    what = f"the configuration of {entity_type}/{entity_name}"
    config = _object(_load(data, what, Kind.CONFIG).get("config") or {}, what)
    return {key: _text(value, f"{what}, {key},") for key, value in config.items()}


def decode_configs(
    entity_type: str, entity_names: Iterable[str], entries: Iterable[Entry | None]
) -> dict[str, dict[str, str]]:
    """Decode the configurations of a bulk read, as `decode_each` does."""
    return decode_each(entity_names, entries, lambda name, entry: decode_config(entity_type, name, entry[0]))


def encode_config_change(entity_type: str, entity_name: str) -> bytes:
    """Encode `/config/changes/config_change_N`, version 2."""
    return _dump({"version": VERSIONS[Kind.CONFIG_CHANGE], "entity_path": f"{entity_type}/{entity_name}"})


def decode_config_change(data: bytes) -> tuple[str, str]:
    """Decode the type and name of the changed entity, which version 1 has in separate fields.

    Raises:
        SchemaError: the data is not a notification of version 1 or 2.
    """
    what = "a configuration change"
    value = _load(data, what, Kind.CONFIG_CHANGE)
    if value.get("version") == 1:
        return _text(value.get("entity_type"), what), _text(value.get("entity_name"), what)
    entity_type, separator, entity_name = _text(value.get("entity_path"), what).partition("/")
    if not separator or not entity_name:
        raise SchemaError(f"{what} should name type/entity, found {bytes_text(data)}")
    return entity_type, entity_name


def _encode_partitions(partitions: Iterable[TopicPartition], kind: Kind) -> bytes:
    entries = [{"topic": p.topic, "partition": p.partition} for p in partitions]
    return _dump({"version": VERSIONS[kind], "partitions": entries})


def _decode_partitions(data: bytes, what: str, kind: Kind) -> frozenset[TopicPartition]:
    entries = _load(data, what, kind).get("partitions")
    if not isinstance(entries, list):
        raise SchemaError(f"{what} has no list of partitions: {bytes_text(data)}")
    return frozenset(
        TopicPartition(_text(entry.get("topic"), what), _int(entry.get("partition"), what))
        for entry in (_object(entry, what) for entry in entries)
    )


def encode_isr_change(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode `/isr_change_notification/isr_change_N`, version 1."""
    return _encode_partitions(partitions, Kind.ISR_CHANGE)


def decode_isr_change(data: bytes) -> frozenset[TopicPartition]:
    """Decode the partitions whose ISR changed.

    Raises:
        SchemaError: the data is not such a notification.
    """
    return _decode_partitions(data, "an ISR change", Kind.ISR_CHANGE)


def encode_preferred_election(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode `/admin/preferred_replica_election`, version 1."""
    return _encode_partitions(partitions, Kind.PREFERRED_ELECTION)


def decode_preferred_election(data: bytes) -> frozenset[TopicPartition]:
    """Decode the partitions of a preferred leader election.

    Raises:
        SchemaError: the data is not such a request.
    """
    return _decode_partitions(data, "a preferred replica election", Kind.PREFERRED_ELECTION)


def encode_reassignment(partitions: Mapping[TopicPartition, tuple[int, ...]]) -> bytes:
    """Encode `/admin/reassign_partitions`, version 1."""
    entries = [
        {"topic": p.topic, "partition": p.partition, "replicas": list(replicas)}
        for p, replicas in partitions.items()
    ]
    return _dump({"version": VERSIONS[Kind.REASSIGNMENT], "partitions": entries})


def decode_reassignment(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    """Decode the target replicas of each partition.

    Raises:
        SchemaError: the data is not such a request.
    """
    what = "a reassignment"
    entries = _load(data, what, Kind.REASSIGNMENT).get("partitions")
    if not isinstance(entries, list):
        raise SchemaError(f"{what} has no list of partitions: {bytes_text(data)}")
    return {
        TopicPartition(_text(entry.get("topic"), what), _int(entry.get("partition"), what)): _ints(
            entry.get("replicas"), what
        )
        for entry in (_object(entry, what) for entry in entries)
    }


def encode_log_dir_event(event: LogDirEvent) -> bytes:
    """Encode `/log_dir_event_notification/log_dir_event_N`, version 1: a broker's log directory failed.

    Apache Kafka's controller ignores the field ``kalda``.
    """
    fields: dict[str, object] = {
        "version": VERSIONS[Kind.LOG_DIR_EVENT],
        "broker": event.broker_id,
        "event": 1,
    }
    if event.ended_by:
        fields["kalda"] = {"broker_epoch": event.broker_epoch, "ended_by": dict(event.ended_by)}
    return _dump(fields)


def decode_log_dir_event(data: bytes) -> LogDirEvent:
    """Decode the notification of a broker whose log directory failed.

    A field ``kalda`` in another form counts as absent: the partitions on the disk need other leaders anyway.

    Raises:
        SchemaError: the data is not such an event.
    """
    what = "a log directory event"
    found = _load(data, what, Kind.LOG_DIR_EVENT)
    broker_id = _int(found.get("broker"), f"broker of {what}")
    try:
        more = _object(found.get("kalda"), what)
        ended_by = {
            directory: _text(reason, what)
            for directory, reason in _object(more.get("ended_by"), what).items()
        }
    except SchemaError:
        return LogDirEvent(broker_id)
    epoch = more.get("broker_epoch")
    return LogDirEvent(broker_id, ended_by, epoch) if type(epoch) is int else LogDirEvent(broker_id)


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    """Encode `/latest_producer_id_block`, version 1."""
    return _dump(
        {
            "version": VERSIONS[Kind.PRODUCER_ID_BLOCK],
            "broker": block.broker_id,
            "block_start": str(block.first),
            "block_end": str(block.last),
        }
    )


def decode_producer_id_block(data: bytes) -> ProducerIdBlock:
    """Decode the last allocated block.

    Raises:
        SchemaError: the data is not a block.
    """
    what = "/latest_producer_id_block"
    value = _load(data, what, Kind.PRODUCER_ID_BLOCK)
    try:
        first = int(_text(value.get("block_start"), what))
        last = int(_text(value.get("block_end"), what))
    except ValueError:
        raise SchemaError(f"{what} should hold two numbers, found {bytes_text(data)}") from None
    return ProducerIdBlock(_int(value.get("broker"), what), first, last)


def encode_cluster_id(cluster_id: str) -> bytes:
    """Encode `/cluster/id`, whose version is a string, unlike all others."""
    return _dump({"version": str(VERSIONS[Kind.CLUSTER_ID]), "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    """Decode the cluster's id.

    Raises:
        SchemaError: the data is not an id.
    """
    return _text(_load(data, "/cluster/id", Kind.CLUSTER_ID).get("id"), "id of /cluster/id")
