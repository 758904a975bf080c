"""Selects the znodes whose changes are recorded in the history, and the part of their data that is recorded.

Not recorded: notifications, blocks of producer ids, offsets of old consumers, and znodes that only group
others. A secret is replaced before the data leaves the broker that wrote it.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from kalda.cluster import paths
from kalda.common.received_json import loads_received
from kalda.common.sanitizer import desanitize
from kalda.security.acl.znodes import LITERAL_ROOT, PREFIXED_ROOT

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"

HIDDEN: Final = "[hidden]"
"""Stands for a secret."""

NOTES: Final = "/admin/kalda_history"
"""The parent of the notes. Apache Kafka ignores it; where znodes have access lists, it is the brokers'."""

TOKENS: Final = "/delegation_token/tokens"
_TOKEN_FIELDS: Final = ("owner", "renewers", "issueTimestamp", "expirationTimestamp", "maxTimestamp")
_STATE: Final = ("leader", "leader_epoch", "isr", "controller_epoch", "leader_recovery_state")
_SCRAM: Final = re.compile(r"SCRAM-SHA-(256|512)")
_ITERATIONS: Final = re.compile(r"iterations=(\d+)")
_SECRET: Final = re.compile(
    r"password|secret|jaas|keystore\.key|credential|user\.info|token$|login$", re.IGNORECASE
)

_DEPTH_MAX: Final = 32
"""How deep data may be nested; that of clusters has three levels. What reads it afterwards is recursive."""

IsSecret = Callable[[str], bool]
"""Whether the value of a setting of brokers, by name, must not be recorded."""


class Kind(StrEnum):
    """What a znode is about. The values are the words of `kalda cluster history`."""

    TOPIC = "topic"
    PARTITION = "partition"
    TOPIC_CONFIG = "topic-config"
    TOPIC_DELETION = "topic-deletion"
    BROKER = "broker"
    BROKER_CONFIG = "broker-config"
    CONTROLLER = "controller"
    USER = "user"
    CLIENT = "client"
    IP = "ip"
    GROUP = "group"
    CLIENT_METRICS = "client-metrics"
    ACL = "acl"
    TOKEN = "token"  # the kind of a delegation token, no secret
    FEATURES = "features"
    REASSIGNMENT = "reassignment"
    ELECTION = "election"


@dataclass(frozen=True, slots=True)
class Subject:
    """What a znode is about."""

    kind: Kind
    name: str
    """The name within the kind: ``orders``, ``orders-3``, ``Topic:orders``; empty where there is only one."""
    topic: str | None = None
    """The topic that it belongs to."""
    partition: int | None = None
    """The number of a partition, of a partition's state only."""

    def __str__(self) -> str:
        """Return kind and name."""
        return f"{self.kind} {self.name}" if self.name else str(self.kind)


_CONFIG_KINDS: Final = {
    "topics": Kind.TOPIC_CONFIG,
    "brokers": Kind.BROKER_CONFIG,
    "users": Kind.USER,
    "clients": Kind.CLIENT,
    "ips": Kind.IP,
    "groups": Kind.GROUP,
    "client-metrics": Kind.CLIENT_METRICS,
}
_SINGLE: Final = {
    paths.CONTROLLER: Kind.CONTROLLER,
    paths.FEATURE: Kind.FEATURES,
    paths.REASSIGN_PARTITIONS: Kind.REASSIGNMENT,
    paths.PREFERRED_REPLICA_ELECTION: Kind.ELECTION,
}


def subject_of(path: str) -> Subject | None:
    """Return the subject of a znode, or None if its changes are not recorded."""
    single = _SINGLE.get(path)
    if single is not None:
        return Subject(single, "")
    match path.split("/")[1:]:
        case ["brokers", "topics", topic]:
            return Subject(Kind.TOPIC, topic, topic)
        case ["brokers", "topics", topic, "partitions", text, "state"]:
            number = paths.number(text)
            return None if number is None else Subject(Kind.PARTITION, f"{topic}-{number}", topic, number)
        case ["brokers", "ids", broker]:
            return Subject(Kind.BROKER, broker)
        case ["config", entity_type, *names] if names and entity_type in _CONFIG_KINDS:
            return _config_subject(entity_type, names)
        case ["admin", "delete_topics", topic]:
            return Subject(Kind.TOPIC_DELETION, topic, topic)
        case ["delegation_token", "tokens", token]:
            return Subject(Kind.TOKEN, token)
    for root, form in ((LITERAL_ROOT, "{}:{}"), (PREFIXED_ROOT, "{}:{}*")):
        if path.startswith(f"{root}/"):
            resource, _, name = path[len(root) + 1 :].partition("/")
            if name:
                return Subject(Kind.ACL, form.format(resource, name), name if resource == "Topic" else None)
    return None


def _config_subject(entity_type: str, names: list[str]) -> Subject | None:
    kind = _CONFIG_KINDS[entity_type]
    match names:
        case [name]:
            shown = name if name == paths.DEFAULT_ENTITY else desanitize(name)
            return Subject(kind, shown, shown if kind is Kind.TOPIC_CONFIG else None)
        case [user, "clients", client] if kind is Kind.USER:
            return Subject(kind, f"{desanitize(user)}, client {desanitize(client)}")
        case _:
            return None


def parents() -> list[str]:
    """Return the znodes below which recorded znodes are, but states of partitions."""
    return [
        paths.TOPICS,
        paths.DELETE_TOPICS,
        TOKENS,
        *(f"{paths.CONFIG}/{each}" for each in _CONFIG_KINDS),
        LITERAL_ROOT,
        PREFIXED_ROOT,
    ]


def singles() -> list[str]:
    """Return the recorded znodes that have no names below them, but that of the controller."""
    return [path for path in _SINGLE if path != paths.CONTROLLER]


def children_below(path: str) -> bool:
    """Return whether recorded znodes may be below a child of `parents`, or below such a znode."""
    parts = path.split("/")[1:]
    match parts:
        case ["config", "users", _] | ["config", "users", _, "clients"]:
            return True
        case ["kafka-acl", _] | ["kafka-acl-extended", "prefixed", _]:
            return True
        case _:
            return False


def secret_by_name(setting: str) -> bool:
    """Return whether a setting's name is one of a secret, for code that does not know a broker's settings."""
    return _SECRET.search(setting) is not None


def recorded_value(path: str, data: bytes | None, is_secret: IsSecret = secret_by_name) -> JsonValue:
    """Return the recorded form of a znode's data: its JSON, without secrets."""
    if not data:
        return None
    try:
        value: JsonValue = loads_received(data)
    except ValueError:
        # No program of a cluster writes this, so what it has may be anything.
        return f"{len(data)} bytes that are not JSON"
    if is_too_deep(value):
        return f"{len(data)} bytes that are nested too deeply"
    if not isinstance(value, dict):
        return f"{len(data)} bytes that are no object of JSON"
    return dict(_shown(path, value, is_secret))


def _shown(path: str, value: dict[str, JsonValue], is_secret: IsSecret) -> Iterator[tuple[str, JsonValue]]:
    subject = subject_of(path)
    if subject is None:
        return
    config = value.get("config")
    if subject.kind is Kind.TOKEN:
        yield from ((name, value[name]) for name in _TOKEN_FIELDS if name in value)
    elif subject.kind is Kind.PARTITION:
        yield from ((name, value[name]) for name in _STATE if name in value)
    elif isinstance(config, dict) and path.startswith(f"{paths.CONFIG}/"):
        yield "config", {name: _setting(subject.kind, name, each, is_secret) for name, each in config.items()}
    else:
        yield from ((name, each) for name, each in value.items() if name not in ("version", "timestamp"))


def _setting(kind: Kind, name: str, value: JsonValue, is_secret: IsSecret) -> JsonValue:
    if kind is Kind.USER and _SCRAM.fullmatch(name):
        found = _ITERATIONS.search(value) if isinstance(value, str) else None
        return HIDDEN if found is None else f"{HIDDEN}, {found[0]}"
    if secret_by_name(name) or (kind is Kind.BROKER_CONFIG and is_secret(name)):
        return HIDDEN
    return value


def is_too_deep(value: JsonValue) -> bool:
    """Return whether lists and objects are nested deeper than in anything that is recorded."""
    level = [value]
    for _ in range(_DEPTH_MAX):
        level = [
            below
            for each in level
            if isinstance(each, list | dict)
            for below in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return False
    return True


def has_secret(value: JsonValue) -> bool:
    """Return whether a recorded value has a secret: it may be equal where the data is not."""
    if isinstance(value, dict):
        return any(has_secret(each) for each in value.values())
    return isinstance(value, str) and value.startswith(HIDDEN)
