"""Parses, checks and encodes the configuration of a consumer.

The order of the checks and their texts are nats-server's, and so are the defaults.
"""

import string
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from kalda.nats.jetstream import fields
from kalda.nats.jetstream.api_errors import JetStreamError
from kalda.nats.jetstream.fields import Json
from kalda.nats.jetstream.patterns import Pattern, is_pattern
from kalda.nats.jetstream.stream_config import StreamConfig

NAME_CHARACTERS_MAX: Final = 200
DESCRIPTION_BYTES_MAX: Final = 4096
ACK_WAIT_NS: Final = 30 * 1_000_000_000
MAX_WAITING: Final = 512
MAX_WAITING_MAX: Final = 2_048
"""Pull requests that wait at one consumer, whatever `max_waiting` says."""

MAX_ACK_PENDING: Final = 1000
ACK_PENDING_MAX: Final = 20_000
"""Messages of one consumer that wait for acknowledgements, whatever `max_ack_pending` says."""

INACTIVE_NS: Final = 5 * 1_000_000_000
FILTERS_MAX: Final = 64
BACKOFF_MAX: Final = 100
USUAL_BYTES: Final = 5 * 1024
"""The memory of a consumer without long texts."""

_MEMORY_PER_FILTER_BYTE: Final = 32
"""A filter is kept as its tokens and as a regular expression as well."""

_SIZE: Final = 1_500
_HEARTBEAT_MIN_NS: Final = 100 * 1_000_000
_NAME_CHARACTERS: Final = frozenset(string.ascii_letters + string.digits + "_-=+@#!%:,~")

ALL: Final = "all"
LAST: Final = "last"
NEW: Final = "new"
BY_SEQUENCE: Final = "by_start_sequence"
BY_TIME: Final = "by_start_time"
LAST_PER_SUBJECT: Final = "last_per_subject"

_NEEDS: Final = {
    ALL: "consumer delivery policy is deliver all",
    LAST: "consumer delivery policy is deliver last",
    NEW: "consumer delivery policy is deliver new",
    BY_SEQUENCE: "consumer delivery policy is deliver by start sequence",
    BY_TIME: "consumer delivery policy is deliver by start time",
    LAST_PER_SUBJECT: "consumer delivery policy is deliver last per subject",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """The configuration of a consumer, with nats-server's names; times are in nanoseconds."""

    durable_name: str = ""
    name: str = ""
    description: str = ""
    deliver_policy: str = ALL
    opt_start_seq: int = 0
    opt_start_time: str = ""
    ack_policy: str = "none"
    ack_wait: int = 0
    max_deliver: int = -1
    backoff: tuple[int, ...] = ()
    filter_subject: str = ""
    filter_subjects: tuple[str, ...] = ()
    max_waiting: int = 0
    max_ack_pending: int = 0
    idle_heartbeat: int = 0
    flow_control: bool = False
    headers_only: bool = False
    max_batch: int = 0
    max_expires: int = 0
    max_bytes: int = 0
    inactive_threshold: int = 0
    deliver_subject: str = ""
    deliver_group: str = ""
    num_replicas: int = 0
    mem_storage: bool = False
    metadata: tuple[tuple[str, str], ...] = ()

    @property
    def is_push(self) -> bool:
        """Whether messages go to a subject without a request."""
        return bool(self.deliver_subject)

    @property
    def has_acks(self) -> bool:
        """Whether messages wait for acknowledgements."""
        return self.ack_policy != "none"

    @property
    def size(self) -> int:
        """About the bytes of the configuration in a response."""
        return _SIZE + self._texts_size + sum(map(len, self.filters))

    @property
    def _texts_size(self) -> int:
        return len(self.description) + len(self.deliver_subject) + fields.metadata_size(self.metadata)

    @property
    def weight(self) -> int:
        """The memory of the consumer, in units of that of a usual one."""
        filters = sum(map(len, self.filters)) * _MEMORY_PER_FILTER_BYTE
        return 1 + (self._texts_size + filters) // USUAL_BYTES

    @property
    def filters(self) -> Sequence[str]:
        """The patterns of the subjects that are delivered; none for all."""
        return self.filter_subjects or ((self.filter_subject,) if self.filter_subject else ())

    @classmethod
    def parse(cls, sent: Json, stream: StreamConfig) -> Self:
        """Read and check the configuration of a consumer of a stream.

        Raises:
            JetStreamError: it is not valid, or not served.
        """
        policies = (ALL, LAST, NEW, BY_SEQUENCE, BY_TIME, LAST_PER_SUBJECT)
        replay = fields.choice(sent, "replay_policy", ("instant", "original"))
        config = cls(
            durable_name=fields.text(sent, "durable_name"),
            name=fields.text(sent, "name"),
            description=fields.text(sent, "description"),
            deliver_policy=fields.choice(sent, "deliver_policy", policies),
            opt_start_seq=fields.natural(sent, "opt_start_seq"),
            opt_start_time=fields.text(sent, "opt_start_time"),
            ack_policy=fields.choice(sent, "ack_policy", ("none", "all", "explicit")),
            ack_wait=fields.integer(sent, "ack_wait"),
            max_deliver=fields.integer(sent, "max_deliver") or -1,
            backoff=fields.integers(sent, "backoff"),
            filter_subject=fields.text(sent, "filter_subject"),
            filter_subjects=fields.texts(sent, "filter_subjects"),
            max_waiting=fields.integer(sent, "max_waiting"),
            max_ack_pending=fields.integer(sent, "max_ack_pending"),
            idle_heartbeat=fields.integer(sent, "idle_heartbeat"),
            flow_control=fields.flag(sent, "flow_control"),
            headers_only=fields.flag(sent, "headers_only"),
            max_batch=fields.integer(sent, "max_batch"),
            max_expires=fields.integer(sent, "max_expires"),
            max_bytes=fields.integer(sent, "max_bytes"),
            inactive_threshold=fields.integer(sent, "inactive_threshold"),
            deliver_subject=fields.text(sent, "deliver_subject"),
            deliver_group=fields.text(sent, "deliver_group"),
            num_replicas=fields.integer(sent, "num_replicas"),
            mem_storage=fields.flag(sent, "mem_storage"),
            metadata=fields.metadata(sent),
        )._with_defaults()
        if config.opt_start_time:
            fields.read_time(config.opt_start_time)
        rate = fields.integer(sent, "rate_limit_bps")
        config._check(stream, has_rate=rate > 0)
        if replay != "instant":
            raise _not_served("replay policy original")
        if rate:
            raise _not_served("rate limit")
        if fields.text(sent, "sample_freq"):
            raise _not_served("sampling of acknowledgements")
        if sent.get("priority_groups"):
            raise _not_served("consumer priority_groups")
        if fields.text(sent, "pause_until") not in ("", fields.NO_TIME):
            raise _not_served("consumer pause_until")
        if fields.text(sent, "priority_policy") not in ("", "none"):
            raise _not_served("consumer priority_policy")
        return config

    def _with_defaults(self) -> Self:
        changes: dict[str, object] = {}
        if self.has_acks:
            if self.ack_wait <= 0:
                changes["ack_wait"] = ACK_WAIT_NS
            if not self.max_ack_pending:
                changes["max_ack_pending"] = MAX_ACK_PENDING
            if self.backoff:
                changes["ack_wait"] = self.backoff[0]
        if not self.is_push and not self.max_waiting:
            changes["max_waiting"] = MAX_WAITING
        if not self.durable_name and self.inactive_threshold <= 0:
            changes["inactive_threshold"] = INACTIVE_NS
        return replace(self, **changes)  # type: ignore[arg-type]  # names and types are the fields'

    def _check(self, stream: StreamConfig, *, has_rate: bool) -> None:
        if len(self.description.encode()) > DESCRIPTION_BYTES_MAX:
            text = f"consumer description is too long, maximum allowed is {DESCRIPTION_BYTES_MAX}"
            raise JetStreamError(400, 10107, text)
        if fields.metadata_size(self.metadata) > fields.METADATA_BYTES_MAX:
            text = f"consumer metadata exceeds maximum size of {fields.METADATA_BYTES_MAX}"
            raise JetStreamError(400, 10135, text)
        if len(self.backoff) > BACKOFF_MAX or any(each < 0 for each in self.backoff):
            raise _not_served(f"more than {BACKOFF_MAX} backoff values, or one below 0")
        if self.backoff and self.max_deliver <= len(self.backoff):
            text = "max deliver is required to be > length of backoff values"
            raise JetStreamError(400, 10116, text)
        if self.num_replicas > stream.num_replicas and self.num_replicas > 1:
            raise JetStreamError(400, 10126, "consumer config replica count exceeds parent stream")
        if self.is_push:
            self._check_push(stream)
        else:
            self._check_pull(has_rate=has_rate)
        if len(self.filter_subjects) > FILTERS_MAX:
            raise _not_served(f"more than {FILTERS_MAX} filter subjects")
        if self.filter_subject and self.filter_subjects:
            text = "consumer cannot have both FilterSubject and FilterSubjects specified"
            raise JetStreamError(400, 10136, text)
        if "" in self.filter_subjects:
            raise JetStreamError(400, 10139, "consumer filter in FilterSubjects cannot be empty")
        for each in self.filters:
            if not is_pattern(each) or not _is_of_stream(each, stream):
                text = "consumer filter subject is not a valid subset of the interest subjects"
                raise JetStreamError(400, 10093, text)
        patterns = [Pattern(each.encode()) for each in self.filter_subjects]
        if any(one is not other and one.includes_all(other) for one in patterns for other in patterns):
            raise JetStreamError(400, 10138, "consumer subject filters cannot overlap")
        self._check_start()

    def _check_push(self, stream: StreamConfig) -> None:
        subject = Pattern(self.deliver_subject.encode())
        if not is_pattern(self.deliver_subject) or not subject.is_literal:
            raise JetStreamError(400, 10079, "consumer deliver subject has wildcards")
        if any(Pattern(each.encode()).overlaps(subject) for each in stream.subjects):
            raise JetStreamError(400, 10081, "consumer deliver subject forms a cycle")
        if self.max_waiting:
            raise JetStreamError(400, 10080, "consumer in push mode can not set max waiting")
        if self.idle_heartbeat and self.idle_heartbeat < _HEARTBEAT_MIN_NS:
            raise JetStreamError(400, 10083, "consumer idle heartbeat needs to be >= 100ms")
        if self.flow_control and not self.idle_heartbeat:
            raise JetStreamError(400, 10108, "consumer with flow control also needs heartbeats")
        if not is_pattern(self.deliver_group or "group"):
            raise _not_served("this deliver group")

    def _check_pull(self, *, has_rate: bool) -> None:
        if has_rate:
            raise JetStreamError(400, 10086, "consumer in pull mode can not have rate limit set")
        if self.max_waiting < 0:
            raise JetStreamError(400, 10087, "consumer max waiting needs to be positive")
        if self.idle_heartbeat:
            raise JetStreamError(400, 10088, "consumer idle heartbeat requires a push based consumer")
        if self.flow_control:
            raise JetStreamError(400, 10089, "consumer flow control requires a push based consumer")
        if self.max_batch < 0:
            raise JetStreamError(400, 10114, "consumer max request batch needs to be > 0")
        if self.max_expires and self.max_expires < 1_000_000:
            raise JetStreamError(400, 10115, "consumer max request expires needs to be >= 1ms")

    def _check_start(self) -> None:
        policy = self.deliver_policy
        text = _NEEDS[policy]
        if policy == LAST_PER_SUBJECT and not self.filters:
            raise _bad_policy(f"{text}, but optional filter subject is not set")
        if policy == BY_SEQUENCE:
            if not self.opt_start_seq:
                raise _bad_policy(f"{text}, but optional start sequence is not set")
        elif self.opt_start_seq:
            raise _bad_policy(f"{text}, but optional start sequence is also set")
        if policy == BY_TIME:
            if not self.opt_start_time:
                raise _bad_policy(f"{text}, but optional start time is not set")
        elif self.opt_start_time:
            raise _bad_policy(f"{text}, but optional start time is also set")

    def check_update(self, old: "ConsumerConfig") -> None:
        """Check what a consumer cannot change.

        Raises:
            JetStreamError: it would be changed.
        """
        for name, text in (
            ("deliver_policy", "deliver policy"),
            ("opt_start_seq", "start sequence"),
            ("opt_start_time", "start time"),
            ("ack_policy", "ack policy"),
            ("flow_control", "flow control"),
            ("idle_heartbeat", "heart beats"),
            ("filter_subject", "filter subject"),
            ("filter_subjects", "filter subjects"),
        ):
            if getattr(self, name) != getattr(old, name):
                raise JetStreamError(500, 10012, f"{text} can not be updated")
        if self.is_push != old.is_push:
            text = "can not update pull consumer to push based"
            if old.is_push:
                text = "can not update push consumer to pull based"
            raise JetStreamError(500, 10012, text)

    def as_json(self) -> dict[str, object]:
        """Return the configuration as responses have it."""
        found: dict[str, object] = {}
        for name in ("durable_name", "name", "description"):
            if getattr(self, name):
                found[name] = getattr(self, name)
        found["deliver_policy"] = self.deliver_policy
        for name in ("opt_start_seq", "opt_start_time"):
            if getattr(self, name):
                found[name] = getattr(self, name)
        found["ack_policy"] = self.ack_policy
        if self.ack_wait:
            found["ack_wait"] = self.ack_wait
        found["max_deliver"] = self.max_deliver
        for name in ("backoff", "filter_subject", "filter_subjects"):
            value = getattr(self, name)
            if value:
                found[name] = list(value) if isinstance(value, tuple) else value
        found["replay_policy"] = "instant"
        for name in _OPTIONAL:
            if getattr(self, name):
                found[name] = getattr(self, name)
        found["num_replicas"] = self.num_replicas
        if self.mem_storage:
            found["mem_storage"] = True
        if self.metadata:
            found["metadata"] = dict(self.metadata)
        return found


_OPTIONAL: Final = (
    "max_waiting",
    "max_ack_pending",
    "idle_heartbeat",
    "flow_control",
    "headers_only",
    "max_batch",
    "max_expires",
    "max_bytes",
    "inactive_threshold",
    "deliver_subject",
    "deliver_group",
)


def check_consumer_name(name: str) -> None:
    """Check the name of a consumer.

    Raises:
        JetStreamError: it is not valid.
    """
    if len(name) > NAME_CHARACTERS_MAX:
        text = f"consumer name is too long, maximum allowed is {NAME_CHARACTERS_MAX}"
        raise JetStreamError(400, 10102, text)
    if not name or not _NAME_CHARACTERS.issuperset(name):
        text = "durable name can not contain '.', '*', '>'"
        raise JetStreamError(400, 10103, text)


def _is_of_stream(pattern: str, stream: StreamConfig) -> bool:
    wanted = Pattern(pattern.encode())
    return any(Pattern(each.encode()).overlaps(wanted) for each in stream.subjects)


def _bad_policy(text: str) -> JetStreamError:
    return JetStreamError(400, 10094, text)


def _not_served(what: str) -> JetStreamError:
    return JetStreamError(500, 10012, f"{what} is not supported")
