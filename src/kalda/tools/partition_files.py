"""Reads the JSON files in which Kafka's tools name partitions: for deletions of records and for elections."""

from collections.abc import Mapping

from kalda.command.errors import ToolUsageError
from kalda.command.output import Json
from kalda.common.types import TopicPartition

_VERSION = 1


def parse_partitions(document: Mapping[str, Json], source: str) -> list[TopicPartition]:
    """Read ``{"partitions": [{"topic": "foo", "partition": 1}]}``.

    Raises:
        ToolUsageError: the document has another form, is empty, or names a partition twice.
    """
    return [partition for partition, _ in _entries(document, source)]


def parse_offsets(document: Mapping[str, Json], source: str) -> dict[TopicPartition, int]:
    """Read ``{"partitions": [{"topic": "foo", "partition": 1, "offset": 1}], "version": 1}``.

    Raises:
        ToolUsageError: the document has another form, is empty, or names a partition twice.
    """
    offsets = {}
    for partition, entry in _entries(document, source):
        offset = entry.get("offset")
        if not isinstance(offset, int) or isinstance(offset, bool) or offset < -1:
            raise ToolUsageError(
                f'{source}: "offset" of partition {partition} must be a number, at least 0, or -1 for the end'
            )
        offsets[partition] = offset
    return offsets


def _entries(document: Mapping[str, Json], source: str) -> list[tuple[TopicPartition, Mapping[str, Json]]]:
    if document.get("version", _VERSION) != _VERSION:
        raise ToolUsageError(
            f'{source} has "version": {document["version"]}; this tool reads version {_VERSION}'
        )
    listed = document.get("partitions")
    if not isinstance(listed, list) or not listed:
        raise ToolUsageError(f'{source}: "partitions" must be a list of objects, at least one')
    found: dict[TopicPartition, Mapping[str, Json]] = {}
    for entry in listed:
        match entry:
            case {"topic": str(topic), "partition": int(number)} if number >= 0 and number is not True:
                partition = TopicPartition(topic, number)
            case _:
                raise ToolUsageError(
                    f'{source}: {entry} has no "topic" with a text and "partition" with a number'
                )
        if partition in found:
            raise ToolUsageError(f"{source} names partition {partition} twice; keep one of the entries")
        found[partition] = entry
    return list(found.items())
