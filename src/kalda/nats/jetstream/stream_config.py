"""Parses, checks and encodes the configuration of a stream.

The order of the checks and their texts are nats-server's, and so are the defaults.
"""

import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from kalda.nats.jetstream import fields
from kalda.nats.jetstream.api_errors import JetStreamError, invalid_json, invalid_stream
from kalda.nats.jetstream.fields import Json
from kalda.nats.jetstream.patterns import Pattern, is_pattern
from kalda.nats.subjects import TOKENS_MAX

NAME_CHARACTERS_MAX: Final = 200
"""Of a stream, whose topic has the name; nats-server allows 255."""

DESCRIPTION_BYTES_MAX: Final = 4096
REPLICAS_MAX: Final = 5
SUBJECTS_MAX: Final = 64
"""Patterns of one stream: each pair of them is compared."""

DUPLICATE_WINDOW_NS: Final = 120 * 1_000_000_000
_SHORTEST_NS: Final = 100 * 1_000_000
_INT32_MAX: Final = 2**31 - 1

_SIZE: Final = 1_000

_NAME_CHARACTERS: Final = frozenset(string.ascii_letters + string.digits + "_-")

_NOT_SERVED: Final = (
    "mirror",
    "sources",
    "republish",
    "placement",
    "subject_transform",
    "consumer_limits",
    "subject_delete_marker_ttl",
    "allow_atomic",
    "allow_batched",
    "allow_msg_counter",
    "allow_msg_schedules",
)
"""Later releases of nats-server have some of them. `allow_msg_ttl` is not among them: clients ask for it for
each bucket, and messages with a time to live are refused."""


def _asks(part: object) -> bool:
    """Return whether a part of a configuration asks for something; clients in Go send empty ones as well."""
    return any(part.values()) if isinstance(part, dict) else bool(part)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    """The configuration of a stream, with nats-server's names; times are in nanoseconds, -1 is no limit."""

    name: str
    description: str = ""
    subjects: tuple[str, ...] = ()
    max_consumers: int = -1
    max_msgs: int = -1
    max_bytes: int = -1
    max_age: int = 0
    max_msgs_per_subject: int = -1
    max_msg_size: int = -1
    discard: str = "old"
    num_replicas: int = 1
    duplicate_window: int = DUPLICATE_WINDOW_NS
    allow_direct: bool = False
    deny_delete: bool = False
    deny_purge: bool = False
    allow_rollup_hdrs: bool = False
    discard_new_per_subject: bool = False
    no_ack: bool = False
    metadata: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, sent: Json) -> Self:
        """Read and check a configuration.

        Raises:
            JetStreamError: it is not valid, or not served.
        """
        retention = fields.choice(sent, "retention", ("limits", "interest", "workqueue"))
        storage = fields.choice(sent, "storage", ("file", "memory"))
        config = cls(
            name=fields.text(sent, "name"),
            description=fields.text(sent, "description"),
            subjects=fields.texts(sent, "subjects"),
            max_consumers=_limit(sent, "max_consumers"),
            max_msgs=_limit(sent, "max_msgs"),
            max_bytes=_limit(sent, "max_bytes"),
            max_age=fields.integer(sent, "max_age"),
            max_msgs_per_subject=_limit(sent, "max_msgs_per_subject"),
            max_msg_size=_limit(sent, "max_msg_size"),
            discard=fields.choice(sent, "discard", ("old", "new")),
            num_replicas=fields.integer(sent, "num_replicas") or 1,
            duplicate_window=fields.integer(sent, "duplicate_window"),
            allow_direct=fields.flag(sent, "allow_direct"),
            deny_delete=fields.flag(sent, "deny_delete"),
            deny_purge=fields.flag(sent, "deny_purge"),
            allow_rollup_hdrs=fields.flag(sent, "allow_rollup_hdrs"),
            discard_new_per_subject=fields.flag(sent, "discard_new_per_subject"),
            no_ack=fields.flag(sent, "no_ack"),
            metadata=fields.metadata(sent),
        )
        config = config._checked()
        if retention != "limits":
            raise invalid_stream(f"retention policy {retention} is not supported")
        if storage != "file":
            raise invalid_stream("memory storage is not supported")
        for name in _NOT_SERVED:
            if _asks(sent.get(name)):
                raise invalid_stream(f"stream {name} is not supported")
        if fields.natural(sent, "first_seq") > 1:
            raise invalid_stream("stream first_seq above 1 is not supported")
        for name in ("mirror_direct", "sealed"):
            if fields.flag(sent, name):
                raise invalid_stream(f"stream {name} is not supported")
        return config

    def _checked(self) -> Self:
        check_stream_name(self.name)
        if len(self.description.encode()) > DESCRIPTION_BYTES_MAX:
            raise invalid_stream(
                f"stream description is too long, maximum allowed is {DESCRIPTION_BYTES_MAX}"
            )
        if fields.metadata_size(self.metadata) > fields.METADATA_BYTES_MAX:
            text = f"stream metadata exceeds maximum size of {fields.METADATA_BYTES_MAX} bytes"
            raise invalid_stream(text)
        if self.num_replicas > REPLICAS_MAX:
            raise invalid_stream(f"maximum replicas is {REPLICAS_MAX}")
        if self.num_replicas < 0:
            raise JetStreamError(400, 10133, "replicas count cannot be negative")
        if self.max_age and self.max_age < _SHORTEST_NS:
            raise invalid_stream("max age needs to be >= 100ms")
        window = self.duplicate_window
        if not window:
            window = min(DUPLICATE_WINDOW_NS, self.max_age or DUPLICATE_WINDOW_NS)
        if window < 0:
            raise invalid_stream("duplicates window can not be negative")
        if self.max_age and window > self.max_age:
            raise invalid_stream("duplicates window can not be larger then max age")
        if window < _SHORTEST_NS:
            raise invalid_stream("duplicates window needs to be >= 100ms")
        if self.deny_purge and self.allow_rollup_hdrs:
            raise invalid_stream("roll-ups require the purge permission")
        if self.discard_new_per_subject:
            if self.discard != "new":
                raise invalid_stream("discard new per subject requires discard new policy to be set")
            if self.max_msgs_per_subject <= 0:
                raise invalid_stream("discard new per subject requires max msgs per subject > 0")
        if self.max_msg_size > _INT32_MAX:
            raise invalid_json()
        subjects = self.subjects or (self.name,)
        _check_subjects(subjects)
        return replace(self, duplicate_window=window, subjects=subjects)

    def check_update(self, old: "StreamConfig") -> None:
        """Check what a stream cannot change.

        Raises:
            JetStreamError: it would be changed.
        """
        if self.max_consumers != old.max_consumers:
            raise invalid_stream("stream configuration update can not change MaxConsumers")
        if old.deny_delete and not self.deny_delete:
            raise invalid_stream("stream configuration update can not cancel deny message deletes")
        if old.deny_purge and not self.deny_purge:
            raise invalid_stream("stream configuration update can not cancel deny purge")
        if self.max_msgs_per_subject != old.max_msgs_per_subject:
            raise invalid_stream("a change of max msgs per subject is not supported")
        if self.num_replicas != old.num_replicas:
            raise invalid_stream("a change of the number of replicas is not supported")

    def as_json(self) -> dict[str, object]:
        """Return the configuration as responses have it."""
        found: dict[str, object] = {"name": self.name}
        if self.description:
            found["description"] = self.description
        found |= {
            "subjects": list(self.subjects),
            "retention": "limits",
            "max_consumers": self.max_consumers,
            "max_msgs": self.max_msgs,
            "max_bytes": self.max_bytes,
            "max_age": self.max_age,
            "max_msgs_per_subject": self.max_msgs_per_subject,
            "max_msg_size": self.max_msg_size,
            "discard": self.discard,
            "storage": "file",
            "num_replicas": self.num_replicas,
        }
        if self.no_ack:
            found["no_ack"] = True
        found |= {
            "duplicate_window": self.duplicate_window,
            "allow_direct": self.allow_direct,
            "mirror_direct": False,
        }
        if self.discard_new_per_subject:
            found["discard_new_per_subject"] = True
        found |= {
            "sealed": False,
            "deny_delete": self.deny_delete,
            "deny_purge": self.deny_purge,
            "allow_rollup_hdrs": self.allow_rollup_hdrs,
        }
        if self.metadata:
            found["metadata"] = dict(self.metadata)
        return found

    @property
    def size(self) -> int:
        """About the bytes of the configuration in a response."""
        metadata = fields.metadata_size(self.metadata)
        return _SIZE + len(self.description) + sum(map(len, self.subjects)) + metadata

    def topic_settings(self, payload_bytes_max: int) -> Mapping[str, str]:
        """Return the settings of the topic that keeps the messages.

        What the stream's limits remove, the broker removes; the log's own retention removes nothing before.
        """
        is_compacted = self.max_msgs_per_subject == 1
        window_ms = -(-self.duplicate_window // 1_000_000)
        settings = {
            "cleanup.policy": "compact" if is_compacted else "delete",
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "message.timestamp.type": "CreateTime",
            "max.message.bytes": str(payload_bytes_max + RECORD_OVERHEAD_MAX),
        }
        if is_compacted:
            # Ids of messages are known again after a restart only while their records are there.
            settings["min.compaction.lag.ms"] = str(window_ms)
        return settings


RECORD_OVERHEAD_MAX: Final = 64 * 1024
"""What a record may have beside the payload and headers of its message: subject, lengths, the batch."""


def check_stream_name(name: str) -> None:
    """Check the name of a stream, which is also its topic's.

    Raises:
        JetStreamError: it is not valid.
    """
    if not name:
        raise invalid_stream("stream name is required")
    if len(name) > 255:
        raise invalid_stream("stream name is too long, maximum allowed is 255")
    if len(name) > NAME_CHARACTERS_MAX:
        raise invalid_stream(f"stream name is too long, maximum allowed is {NAME_CHARACTERS_MAX}")
    if not _NAME_CHARACTERS.issuperset(name):
        raise invalid_stream(f"stream name {name!r} may only have letters, digits, '_' and '-'")


def _limit(sent: Json, name: str) -> int:
    value = fields.integer(sent, name)
    return value if value > 0 else -1


def _check_subjects(subjects: Iterable[str]) -> None:
    found = list(subjects)
    if len(found) > SUBJECTS_MAX:
        raise invalid_stream(f"too many subjects, maximum allowed is {SUBJECTS_MAX}")
    if len(set(found)) < len(found):
        raise invalid_stream("duplicate subjects detected")
    api = [Pattern(b"$JS.>"), Pattern(b"$SYS.>"), Pattern(b"_INBOX.>")]
    patterns: list[Pattern] = []
    for each in found:
        if not is_pattern(each):
            raise invalid_stream("invalid subject")
        if each.count(".") >= TOKENS_MAX:
            # All brokers have a node in memory for each token.
            raise invalid_stream(f"subject has too many tokens, maximum allowed is {TOKENS_MAX}")
        pattern = Pattern(each.encode())
        if any(pattern.overlaps(other) for other in api):
            raise invalid_stream("subjects overlap with jetstream api")
        for other in patterns:
            if pattern.overlaps(other):
                raise invalid_stream(f'subject "{other.text.decode()}" overlaps with "{each}"')
        patterns.append(pattern)


def patterns_of(config: StreamConfig) -> Sequence[Pattern]:
    """Return the subjects of a stream as patterns."""
    return [Pattern(each.encode()) for each in config.subjects]
