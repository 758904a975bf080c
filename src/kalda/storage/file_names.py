"""Names the files and directories of a log as Kafka does, so that Kafka's tools can read them."""

import re
from typing import Final

from kalda.common.types import TopicPartition
from kalda.storage.log_config import INT64_MAX

LOG_SUFFIX: Final = ".log"
OFFSET_INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
PRODUCER_SNAPSHOT_SUFFIX: Final = ".snapshot"
INDEX_SUFFIXES: Final = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"

DELETE_DIRECTORY_SUFFIX: Final = "-delete"
STRAY_DIRECTORY_SUFFIX: Final = "-stray"
FUTURE_DIRECTORY_SUFFIX: Final = "-future"

LOCK_FILE: Final = ".lock"
CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
READ_NONCE_FILE: Final = "kalda-read-nonce"
"""What a reader in place compares, to know that it sees the directory of the broker. It is beside the
directories of the partitions, where Kafka ignores it."""
META_PROPERTIES_FILE: Final = "meta.properties"
PARTITION_METADATA_FILE: Final = "partition.metadata"
LEADER_EPOCH_CHECKPOINT_FILE: Final = "leader-epoch-checkpoint"
MISSING_OFFSETS_FILE: Final = "missing-offsets"
REPLACED_DIRECTORIES_FILE: Final = "replaced-directories"
RECOVERY_POINT_CHECKPOINT_FILE: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT_FILE: Final = "log-start-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT_FILE: Final = "cleaner-offset-checkpoint"
REPLICATION_OFFSET_CHECKPOINT_FILE: Final = "replication-offset-checkpoint"

# A directory name is limited to 255 bytes; a long topic name is cut so that the unique part fits.
DIRECTORY_NAME_MAX: Final = 255
_UNIQUE_DIRECTORY: Final = re.compile(r"^.+-\d+\.[0-9a-f]{32}-(delete|future|stray)$")
_FUTURE_DIRECTORY: Final = re.compile(r"^(.+)-(\d+)\.[0-9a-f]{32}-future$")
_PARTITION_DIRECTORY: Final = re.compile(r"^(.+)-(\d+)$")
_SEGMENT_FILE: Final = re.compile(r"^([0-9]{20})(\.[a-z]+)(\.[a-z]+)?$")


def offset_file_name(offset: int, suffix: str) -> str:
    """Name a segment's file: ``offset_file_name(42, ".log")`` is ``00000000000000000042.log``."""
    return f"{offset:020d}{suffix}"


def parse_offset_file_name(name: str) -> tuple[int, str, str] | None:
    """Split a segment file's name into offset, suffix and second suffix (``.swap``, …), or ``None``."""
    match = _SEGMENT_FILE.match(name)
    if match is None or int(match[1]) >= INT64_MAX:
        return None
    return int(match[1]), match[2], match[3] or ""


def partition_directory_name(topic_partition: TopicPartition) -> str:
    """Name the partition's directory: ``<topic>-<partition>``."""
    return f"{topic_partition.topic}-{topic_partition.partition}"


def delete_directory_name(topic_partition: TopicPartition, unique: str) -> str:
    """Name the directory of a partition that waits for deletion: ``<topic>-<p>.<32 hex>-delete``."""
    return _unique_directory_name(topic_partition, unique, DELETE_DIRECTORY_SUFFIX)


def stray_directory_name(topic_partition: TopicPartition, unique: str) -> str:
    """Name the directory of an earlier topic's partition: ``<topic>-<p>.<32 hex>-stray``."""
    return _unique_directory_name(topic_partition, unique, STRAY_DIRECTORY_SUFFIX)


def future_directory_name(topic_partition: TopicPartition, unique: str) -> str:
    """Name the directory of a copy that is to replace the partition's: ``<topic>-<p>.<32 hex>-future``.

    The name is never cut, because a start finds the topic in it; it may be longer than a file system allows.
    """
    return f"{partition_directory_name(topic_partition)}.{unique}{FUTURE_DIRECTORY_SUFFIX}"


def _unique_directory_name(topic_partition: TopicPartition, unique: str, suffix: str) -> str:
    tail = f"-{topic_partition.partition}.{unique}{suffix}"
    return topic_partition.topic[: DIRECTORY_NAME_MAX - len(tail)] + tail


def is_delete_directory(name: str) -> bool:
    """Return whether the directory waits for deletion."""
    return name.endswith(DELETE_DIRECTORY_SUFFIX) and _UNIQUE_DIRECTORY.match(name) is not None


def parse_partition_directory_name(name: str) -> TopicPartition | None:
    """Return the partition in a directory's name, or ``None`` for any other name."""
    if _UNIQUE_DIRECTORY.match(name):
        return None
    match = _PARTITION_DIRECTORY.match(name)
    return TopicPartition(match[1], int(match[2])) if match else None


def parse_future_directory_name(name: str) -> TopicPartition | None:
    """Return the partition in the name of a future log's directory, or ``None`` for any other name."""
    match = _FUTURE_DIRECTORY.match(name)
    return TopicPartition(match[1], int(match[2])) if match else None
