"""Declares a consumer's settings with Kafka's names, defaults and rules (those of Kafka 4.x).

`ConsumerOptions` types the same settings as keyword arguments.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, Literal

from kalda.clients.config.isolation_level import IsolationLevel
from kalda.clients.config.reader_config import ReaderConfig, ReaderOptions
from kalda.clients.consumer.assignors.partition_assignor import PartitionAssignor
from kalda.clients.consumer.offset_reset import ALLOWED, OffsetReset, parse_offset_reset
from kalda.clients.errors import ClientConfigError
from kalda.common.config_def import ConfigValue, MissingFeature, Validator, at_least, one_of
from kalda.common.public import public
from kalda.common.settings import HIGH, LOW, boolean, integer, string, string_list
from kalda.runtime.system.runtime import client_runtime

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"

GroupProtocol = Literal["classic", "consumer"]
AutoOffsetReset = Literal["earliest", "latest", "none"] | timedelta
"""A timedelta stands for ``by_duration:``: it starts at records of that age."""
Isolation = Literal["read_uncommitted", "read_committed"] | IsolationLevel


_JAVA_INTERCEPTORS: Final = MissingFeature(
    "Java classes", "pass ConsumerInterceptor objects as the keyword argument interceptors"
)


def _is_offset_reset(value: ConfigValue) -> bool:
    try:
        parse_offset_reset(str(value))
    except ValueError:
        return False
    return True


@public
class ConsumerOptions(ReaderOptions, total=False):
    """The settings as keyword arguments; `ConsumerConfig` documents them."""

    group_id: str | None
    group_instance_id: str | None
    group_protocol: GroupProtocol
    group_remote_assignor: str | None
    partition_assignment_strategy: str | PartitionAssignor | Sequence[str | PartitionAssignor]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    auto_offset_reset: AutoOffsetReset
    isolation_level: Isolation
    max_partition_fetch_bytes: int
    interceptor_classes: str | Sequence[str]


class ConsumerConfig(ReaderConfig):
    """The settings of a consumer."""

    group_id = string(
        None,
        "The group that this consumer belongs to. Needed to subscribe and to commit offsets; a consumer "
        "that is assigned partitions and commits nothing needs none.",
        importance=HIGH,
    )
    group_instance_id = string(
        None,
        "The id of a static member (KIP-345): a restart within the session time-out causes no rebalance.",
    )
    group_protocol = string(
        CLASSIC,
        "How the group assigns partitions: by its members (classic), or by the broker (consumer, KIP-848).",
        Validator(
            "one of classic, consumer", lambda value: str(value).strip().lower() in (CLASSIC, CONSUMER)
        ),
        importance=HIGH,
    )
    group_remote_assignor = string(
        None,
        "The broker's assignor under `group.protocol`=consumer, such as uniform or range; without it the "
        "broker chooses.",
    )
    partition_assignment_strategy = string_list(
        ("range", "cooperative-sticky"),
        "The assignors that this member offers under `group.protocol`=classic, best first: range, "
        "roundrobin, sticky, cooperative-sticky, or the names of Java's classes for them.",
    )
    session_timeout_ms = integer(
        45_000,
        "After how long without a heartbeat the group removes the member, under `group.protocol`=classic.",
        at_least(1),
        importance=HIGH,
    )
    heartbeat_interval_ms = integer(
        3_000,
        "How often the member sends a heartbeat, under `group.protocol`=classic; a third of the session "
        "time-out at most.",
        at_least(1),
        importance=HIGH,
    )
    enable_auto_commit = boolean(
        True,
        "Whether to commit the offsets of processed records every `auto.commit.interval.ms`. Without a group "
        "the default is false.",
    )
    auto_commit_interval_ms = integer(
        5_000, "How often offsets are committed under `enable.auto.commit`.", at_least(0), importance=LOW
    )
    auto_offset_reset = string(
        "latest",
        "Where to start in a partition without a committed offset, or whose position is gone: earliest, "
        "latest, by_duration: and an ISO-8601 duration before now, such as by_duration:PT1H (KIP-1106), or "
        "none to raise an error. The keyword argument takes a timedelta for by_duration:.",
        Validator(ALLOWED, _is_offset_reset),
    )
    isolation_level = string(
        "read_uncommitted",
        "Whether records of open and aborted transactions are returned, too.",
        one_of("read_uncommitted", "read_committed"),
    )
    # Kafka's default is 1048576. A fetch costs two threads and the broker a fixed time besides that of its
    # bytes: with 2 MiB, `poll_arrow` takes a sixth less CPU time for records of 1 KB. Larger fetches gain no
    # more, because the columns of one decode leave the processor's cache.
    max_partition_fetch_bytes = integer(
        2_097_152,
        "How many bytes of one partition a fetch returns at most; a single larger batch is returned "
        "nevertheless. A partition with more fetched and unread bytes is not fetched.",
        at_least(0),
        importance=HIGH,
    )

    interceptor_classes = string_list(
        (), "Java classes that see records and commits.", importance=LOW, requires=_JAVA_INTERCEPTORS
    )

    @property
    def is_consumer_protocol(self) -> bool:
        """Whether the broker assigns the partitions (KIP-848)."""
        return self.group_protocol.strip().lower() == CONSUMER

    @property
    def offset_reset(self) -> OffsetReset:
        """`auto.offset.reset`, parsed."""
        return parse_offset_reset(self.auto_offset_reset)

    @property
    def isolation(self) -> IsolationLevel:
        """`isolation.level` as the number on the wire."""
        return IsolationLevel[self.isolation_level.upper()]

    @property
    def has_auto_commit(self) -> bool:
        """Whether offsets are committed automatically; never without a group."""
        return self.enable_auto_commit and bool(self.group_id)

    def check_rules(self) -> None:
        """Check the rules between settings, and fill in `client.id`.

        Raises:
            ClientConfigError: as `CommonClientConfig.check_rules`.
        """
        super().check_rules()
        given = vars(self)
        if not self.group_id and given.get("enable_auto_commit"):
            raise ClientConfigError("`enable.auto.commit`=true needs `group.id`; set it, or leave both out")
        if self.group_id is not None and not self.group_id.strip():
            raise ClientConfigError("`group.id` is empty; set it to a name, or leave it out")
        if self.group_instance_id is not None and not self.group_instance_id.strip():
            raise ClientConfigError("`group.instance.id` is empty; set it to a name, or leave it out")
        if self.is_consumer_protocol:
            self._check_consumer_protocol()
        else:
            self._check_classic_protocol()
        if not self.client_id:
            number = self.group_instance_id or str(client_runtime().client_numbers.next("consumer"))
            given["client_id"] = (
                f"consumer-{self.group_id}-{number}" if self.group_id else f"consumer-{number}"
            )

    def _check_consumer_protocol(self) -> None:
        for attribute in ("partition_assignment_strategy", "session_timeout_ms", "heartbeat_interval_ms"):
            if attribute in vars(self):
                name = self.definitions()[attribute].name
                raise ClientConfigError(
                    f"`{name}` cannot be set with `group.protocol`=consumer: the broker decides; leave it out"
                )
        if not self.group_id:
            raise ClientConfigError("`group.protocol`=consumer needs `group.id`")

    def _check_classic_protocol(self) -> None:
        if self.group_remote_assignor:
            raise ClientConfigError(
                f"`group.remote.assignor`={self.group_remote_assignor} needs `group.protocol`=consumer"
            )
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ClientConfigError(
                f"`heartbeat.interval.ms`={self.heartbeat_interval_ms} must be below "
                f"`session.timeout.ms`={self.session_timeout_ms}; a third of it is usual"
            )
        if not self.partition_assignment_strategy:
            raise ClientConfigError("`partition.assignment.strategy` is empty; it takes range or others")
