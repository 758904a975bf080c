"""Computes the tables and JSON of `kalda topics`, and selects partitions by options of `describe`."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kalda.command.errors import ToolUsageError
from kalda.command.output import Json
from kalda.command.tables import Table

if TYPE_CHECKING:
    from kalda.clients.admin.configs import ConfigEntry
    from kalda.clients.admin.topics import TopicDescription, TopicPartitionInfo


def is_of_kind(kind: str, partition: "TopicPartitionInfo", configs: "Mapping[str, ConfigEntry]") -> bool:
    """Return whether a partition is of a kind that an option of `describe` names."""
    entry = configs.get("min.insync.replicas")
    needed = int(entry.value) if entry is not None and entry.value is not None else 1
    match kind:
        case "under_replicated_partitions":
            return len(partition.isr) < len(partition.replicas)
        case "unavailable_partitions":
            return not partition.has_leader or partition.leader_id in partition.offline_replicas
        case "under_min_isr_partitions":
            return len(partition.isr) < needed
        case "at_min_isr_partitions":
            return len(partition.isr) == needed
    raise AssertionError(kind)


def parse_replica_assignment(text: str) -> dict[int, list[int]]:
    """Read ``0:1,1:2``: the brokers of partition 0, of partition 1, and so on.

    Raises:
        ToolUsageError: a broker is no number or stands twice, or partitions have different numbers of them.
    """
    try:
        assignment = {
            partition: [int(broker_id) for broker_id in brokers.split(":")]
            for partition, brokers in enumerate(text.split(","))
        }
    except ValueError:
        raise ToolUsageError(
            f"--replica-assignment={text} is not allowed: it takes broker ids, e.g. 0:1,1:2 for two "
            "partitions with two replicas each"
        ) from None
    if any(len(set(brokers)) < len(brokers) for brokers in assignment.values()):
        raise ToolUsageError(f"--replica-assignment={text} names a broker twice for one partition")
    if len({len(brokers) for brokers in assignment.values()}) > 1:
        raise ToolUsageError(f"--replica-assignment={text} gives partitions different numbers of replicas")
    return assignment


def overrides_of(configs: "Mapping[str, ConfigEntry]") -> dict[str, str | None]:
    """Return the settings that a topic has of its own."""
    from kalda.clients.admin.configs import ConfigSource

    return {
        name: entry.value
        for name, entry in sorted(configs.items())
        if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    }


def topics_table(
    descriptions: "Iterable[TopicDescription]", overrides: Mapping[str, Mapping[str, str | None]]
) -> Table:
    """Return one row for each topic."""
    from kalda.common.types import uuid_to_text

    rows = [
        (
            each.name,
            None if each.topic_id is None else uuid_to_text(each.topic_id),
            len(each.partitions),
            len(each.partitions[0].replicas) if each.partitions else None,
            [f"{name}={value}" for name, value in overrides[each.name].items()],
        )
        for each in descriptions
    ]
    return Table(("TOPIC", "TOPIC-ID", "PARTITIONS", "REPLICATION-FACTOR", "CONFIGS"), rows)


def partitions_table(
    partitions: "Iterable[tuple[str, TopicPartitionInfo]]", *, empty: str | None = None
) -> Table:
    """Return one row for each partition, beside its topic's name; `empty` is the remark without any."""
    rows = [
        (
            name,
            each.partition,
            each.leader_id if each.has_leader else "none",
            each.replicas,
            each.isr,
            each.eligible_leader_replicas,
            each.last_known_eligible_leader_replicas,
            each.offline_replicas,
        )
        for name, each in partitions
    ]
    columns = ("TOPIC", "PARTITION", "LEADER", "REPLICAS", "ISR", "ELR", "LAST-KNOWN-ELR", "OFFLINE")
    return Table(columns, rows, empty=empty)


def topic_json(
    topic: "TopicDescription", partitions: "Iterable[TopicPartitionInfo]", overrides: Mapping[str, str | None]
) -> Json:
    """Return a topic with the given partitions."""
    from kalda.common.types import uuid_to_text

    return {
        "name": topic.name,
        "topic_id": None if topic.topic_id is None else uuid_to_text(topic.topic_id),
        "is_internal": topic.is_internal,
        "partition_count": len(topic.partitions),
        "replication_factor": len(topic.partitions[0].replicas) if topic.partitions else None,
        "configs": overrides,
        "partitions": [
            {
                "partition": each.partition,
                "leader": each.leader_id if each.has_leader else None,
                "leader_epoch": each.leader_epoch,
                "replicas": each.replicas,
                "isr": each.isr,
                "eligible_leader_replicas": each.eligible_leader_replicas,
                "last_known_eligible_leader_replicas": each.last_known_eligible_leader_replicas,
                "offline_replicas": each.offline_replicas,
            }
            for each in partitions
        ],
    }
