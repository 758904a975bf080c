"""The paths of Kafka's znodes in ZooKeeper, with Kafka 3.9's layout.

/brokers/ids/N                          ephemeral: a live broker
/brokers/seqid                          its version is the source of generated broker ids
/brokers/topics/T                       replicas of each partition, topic id
/brokers/topics/T/partitions/P/state    leader, epoch, ISR
/controller  /controller_epoch          ephemeral: the controller's broker id; the number of elections
/config/{topics,brokers,...}/NAME       dynamic configuration
/config/changes/config_change_N         sequential: "the configuration of NAME changed"
/admin/delete_topics/T                  the topic is to be deleted
/isr_change_notification/isr_change_N   sequential: leaders changed these partitions' ISR
/latest_producer_id_block               the last block of producer ids handed out
/cluster/id                             the cluster's id
"""

from collections.abc import Iterable
from typing import Final

from kalda.common.types import TopicPartition

INT32_MAX: Final = 2**31 - 1
"""The greatest broker id, partition and epoch that requests can name."""

_DIGITS_MAX: Final = 10

CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
BROKER_IDS: Final = "/brokers/ids"
BROKER_SEQUENCE_ID: Final = "/brokers/seqid"
TOPICS: Final = "/brokers/topics"
CONFIG: Final = "/config"
CONFIG_CHANGES: Final = "/config/changes"
CONFIG_CHANGE_PREFIX: Final = "config_change_"
DELETE_TOPICS: Final = "/admin/delete_topics"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION: Final = "/admin/preferred_replica_election"
ISR_CHANGES: Final = "/isr_change_notification"
ISR_CHANGE_PREFIX: Final = "isr_change_"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX: Final = "log_dir_event_"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"
CLUSTER: Final = "/cluster"
CLUSTER_ID: Final = "/cluster/id"
CONSUMERS: Final = "/consumers"
FEATURE: Final = "/feature"

CONFIG_ENTITY_TYPES: Final = ("topics", "clients", "users", "brokers", "ips", "client-metrics", "groups")
DEFAULT_ENTITY: Final = "<default>"
"""The entity that stands for all of its type, e.g. the cluster-wide broker configuration."""

PERSISTENT: Final = (
    CONSUMERS,
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE_ID,
    ISR_CHANGES,
    LOG_DIR_EVENTS,
    *(f"{CONFIG}/{entity_type}" for entity_type in CONFIG_ENTITY_TYPES),
)
"""The persistent znodes that every broker creates at its start if they are missing.

`PRODUCER_ID_BLOCK` is made with its first block: an empty one stops brokers of Apache Kafka before 3.0.
"""


def broker(broker_id: int) -> str:
    """Return the path of a live broker's registration."""
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    """Return the path of a topic's assignment."""
    return f"{TOPICS}/{name}"


def topic_partitions(name: str) -> str:
    """Return the parent of a topic's partitions."""
    return f"{TOPICS}/{name}/partitions"


def partition(partition: TopicPartition) -> str:
    """Return the parent of a partition's state."""
    return f"{TOPICS}/{partition.topic}/partitions/{partition.partition}"


def partition_state(partition: TopicPartition) -> str:
    """Return the path of a partition's state: its leader and ISR."""
    return f"{TOPICS}/{partition.topic}/partitions/{partition.partition}/state"


def config(entity_type: str, entity_name: str) -> str:
    """Return the path of an entity's dynamic configuration, e.g. that of topic ``orders``."""
    return f"{CONFIG}/{entity_type}/{entity_name}"


def delete_topic(name: str) -> str:
    """Return the path of the mark that a topic is to be deleted."""
    return f"{DELETE_TOPICS}/{name}"


def number(text: str) -> int | None:
    """Parse a broker id, partition or epoch as Kafka writes it; return None if it does not fit the wire."""
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        return None
    value = int(text)
    return value if value <= INT32_MAX and str(value) == text else None


def numbers(names: Iterable[str]) -> list[int]:
    """Parse the names that are numbers, and sort them; other znodes may have been created beside them."""
    return sorted(value for value in map(number, names) if value is not None)


def sequence_number(child: str) -> int:
    """Return the counter at the end of a sequential znode's name, e.g. 12 of ``config_change_0000000012``.

    Raises:
        ValueError: the name does not end in ten digits.
    """
    digits = child[-10:]
    if len(digits) < 10 or not digits.isascii() or not digits.removeprefix("-").isdigit():
        raise ValueError(f"{child!r} does not end in the ten digits of a sequential znode")
    return int(digits)
