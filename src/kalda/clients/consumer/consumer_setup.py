"""Turns a consumer's arguments into settings, deserializers, interceptors and the member of the group."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self

from kalda.clients.argument_checks import check_interceptors, check_offset, checked_partition
from kalda.clients.consumer.assignors.assignor_names import common_protocol, find_assignors
from kalda.clients.consumer.assignors.partition_assignor import PartitionAssignor
from kalda.clients.consumer.consumer_config import ConsumerConfig
from kalda.clients.consumer.consumer_core import ConsumerCore
from kalda.clients.consumer.deserializers import DeserializerOption
from kalda.clients.consumer.group.membership import GroupOptions
from kalda.clients.consumer.group.port import GroupPort, Offsets
from kalda.clients.consumer.rebalance_listener import ConsumerInterceptor, RebalanceCallbacks
from kalda.clients.consumer.record_decoder import Deserializers
from kalda.clients.errors import ClientConfigError
from kalda.clients.metrics.consumer_metrics import CoordinatorMetrics
from kalda.clients.values import OffsetAndMetadata
from kalda.common.types import TopicPartition, random_uuid, uuid_to_text

OffsetLike = int | OffsetAndMetadata
"""An offset as a user writes it: the offset of the next record to read."""


@dataclass(frozen=True, slots=True)
class ConsumerSetup:
    """The parts of a consumer."""

    config: ConsumerConfig
    deserializers: Deserializers
    interceptors: tuple[ConsumerInterceptor, ...]
    assignors: tuple[PartitionAssignor, ...]
    """Those of `partition.assignment.strategy`; they have state and serve this consumer only."""

    @classmethod
    def from_options(
        cls, options: Mapping[str, object], interceptors: Sequence[ConsumerInterceptor] = ()
    ) -> Self:
        """Read keyword arguments.

        Raises:
            ClientConfigError: see `CommonClientConfig.from_options`; or a deserializer or an interceptor is
                not one, or the assignors do not go together.
        """
        check_interceptors(interceptors, ("on_consume", "on_commit", "close"))
        texts = dict(options)
        own = _own_assignors(options.get("partition_assignment_strategy"))
        if own is not None:
            texts["partition_assignment_strategy"] = [
                each if isinstance(each, str) else each.name for each in own
            ]
        objects: dict[str, Any] = {
            name: texts.pop(name)
            for name in ("key_deserializer", "value_deserializer")
            if not isinstance(texts.get(name, ""), str | None)
        }
        reset = texts.get("auto_offset_reset")
        if isinstance(reset, timedelta):
            texts["auto_offset_reset"] = f"by_duration:PT{reset.total_seconds():f}S"
        config = ConsumerConfig.from_options(texts)
        deserializers = Deserializers(
            objects.get("key_deserializer", config.key_deserializer),
            objects.get("value_deserializer", config.value_deserializer),
        )
        assignors = find_assignors(config.partition_assignment_strategy if own is None else own)
        common_protocol(assignors)
        return cls(config, deserializers, tuple(interceptors), tuple(assignors))


def given_deserializers(key: DeserializerOption, value: DeserializerOption) -> dict[str, DeserializerOption]:
    """Return the keyword arguments that are not None, to go before those of a properties file."""
    given = {"key_deserializer": key, "value_deserializer": value}
    return {name: option for name, option in given.items() if option is not None}


def option_names(properties: Mapping[str, object]) -> dict[str, object]:
    """Return keyword arguments for properties with Kafka's dotted names.

    Raises:
        ClientConfigError: a name is unknown; the message offers the nearest one.
    """
    attributes = {key.name: attribute for attribute, key in ConsumerConfig.definitions().items()}
    unknown = {name: value for name, value in properties.items() if name not in attributes}
    if unknown:
        # It knows how to word the refusal.
        ConsumerConfig.from_properties(unknown)
    return {attributes[name]: value for name, value in properties.items()}


def create_group(
    core: ConsumerCore,
    assignors: Sequence[PartitionAssignor],
    callbacks: RebalanceCallbacks,
    on_committed: Callable[[Offsets], None],
) -> GroupPort | None:
    """Return the member of the group, or None without `group.id`."""
    config = core.config
    if not config.group_id:
        return None
    options = GroupOptions(
        group_id=config.group_id,
        group_instance_id=config.group_instance_id,
        rack=config.client_rack,
        max_poll_interval_ms=config.max_poll_interval_ms,
        auto_commit_interval_ms=config.auto_commit_interval_ms if config.has_auto_commit else None,
        exclude_internal_topics=config.exclude_internal_topics,
        wake=core.wake_poll,
        on_committed=on_committed,
        metrics=CoordinatorMetrics(core.metrics, lambda: len(core.subscription.assigned())),
    )
    # Each protocol is a dozen modules: a consumer loads the one that it speaks, or neither.
    if config.is_consumer_protocol:
        from kalda.clients.consumer.group.consumer_membership import ConsumerMembership

        return ConsumerMembership(
            core.network,
            core.subscription,
            callbacks,
            options,
            member_id=uuid_to_text(random_uuid(core.network.runtime.random)),
            server_assignor=config.group_remote_assignor,
        )
    from kalda.clients.consumer.group.classic_membership import ClassicMembership

    return ClassicMembership(
        core.network,
        core.subscription,
        callbacks,
        options,
        assignors,
        session_timeout_ms=config.session_timeout_ms,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
    )


def _own_assignors(strategy: object) -> list[str | PartitionAssignor] | None:
    """Return a strategy that has objects in it; None if it consists of names."""
    if isinstance(strategy, PartitionAssignor):
        return [strategy]
    if isinstance(strategy, str) or not isinstance(strategy, Iterable):
        return None
    found = list(strategy)
    return found if any(isinstance(each, PartitionAssignor) for each in found) else None


def read_offsets(offsets: Mapping[TopicPartition, OffsetLike]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return offsets to commit.

    Raises:
        ClientConfigError: an offset is negative.
        ValueError: they are not offsets by partition.
    """
    if not isinstance(offsets, Mapping):
        raise ValueError(f"offsets={offsets!r} is not allowed: it takes a dict of partitions and offsets")
    found = {}
    for named, offset in offsets.items():
        partition = checked_partition(named)
        if isinstance(offset, bool) or not isinstance(offset, int | OffsetAndMetadata):
            raise ValueError(
                f"offset={offset!r} of {partition} is not allowed: it takes an int or an OffsetAndMetadata"
            )
        read = OffsetAndMetadata(offset) if isinstance(offset, int) else offset
        if read.offset < 0:
            raise ClientConfigError(f"offset {read.offset} of {partition} is negative; offsets begin with 0")
        check_offset(f"offset of {partition}", read.offset)
        found[partition] = read
    return found
