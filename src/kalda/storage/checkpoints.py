"""Formats and parses the small text files of a log directory, in Kafka's formats.

Offset checkpoints and leader epochs have a version line, a count line and one line per entry.
``meta.properties`` is a Java properties file, and the clean-shutdown marker is JSON. Each file is written
whole and replaced atomically.
"""

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kalda.common.log_text import bytes_text
from kalda.common.types import UUID, ZERO_UUID, TopicPartition, uuid_from_text, uuid_to_text
from kalda.runtime.filesystem import FileSystem
from kalda.storage.errors import CorruptCheckpointError, NewerFormatError
from kalda.storage.file_names import (
    CLEAN_SHUTDOWN_FILE,
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
)
from kalda.storage.log_config import INT64_MAX

_VERSION: Final = 0
"""The version of every text file but ``meta.properties``, and of the clean-shutdown marker."""
# ZooKeeper-era directories carry version 0, KRaft ones version 1; we write the former.
_META_PROPERTIES_VERSION: Final = 0
_META_PROPERTIES_VERSION_MAX: Final = 1
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")
_VERSION_DIGITS: Final = 3
"""A longer number is not a version, but an offset or a part of one: the file is damaged."""


def offset_checkpoint_line(topic_partition: TopicPartition, offset: int) -> bytes:
    """Write one ``topic partition offset`` line."""
    return f"{topic_partition.topic} {topic_partition.partition} {offset}\n".encode()


def format_offset_checkpoint_lines(lines: Sequence[bytes]) -> bytes:
    """Write ``0``, the count, then the lines."""
    return b"%d\n%d\n%b" % (_VERSION, len(lines), b"".join(lines))


def parse_offset_checkpoint(data: bytes) -> dict[TopicPartition, int]:
    """Read what `format_offset_checkpoint_lines` or Kafka wrote; raises `CorruptCheckpointError`."""
    offsets = {}
    for line in _entry_lines(data):
        fields = line.split(" ")
        if len(fields) != 3:
            raise CorruptCheckpointError(f"checkpoint line {line!r} is not 'topic partition offset'")
        offsets[TopicPartition(fields[0], _number(fields[1], line))] = _number(fields[2], line)
    return offsets


def format_leader_epochs(epochs: Iterable[tuple[int, int]]) -> bytes:
    """Write ``0``, the count, then ``epoch start-offset`` lines."""
    lines = [f"{epoch} {start_offset}\n" for epoch, start_offset in epochs]
    return f"{_VERSION}\n{len(lines)}\n{''.join(lines)}".encode()


def parse_leader_epochs(data: bytes) -> list[tuple[int, int]]:
    """Read what `format_leader_epochs` or Kafka wrote; raises `CorruptCheckpointError`."""
    epochs = []
    for line in _entry_lines(data):
        fields = line.split(" ")
        if len(fields) != 2:
            raise CorruptCheckpointError(f"checkpoint line {line!r} is not 'epoch offset'")
        epochs.append((_number(fields[0], line), _number(fields[1], line)))
    return epochs


def format_partition_metadata(topic_id: UUID) -> bytes:
    """Write the topic id of a partition's directory (KIP-516)."""
    return f"version: {_VERSION}\ntopic_id: {uuid_to_text(topic_id)}".encode()


def write_partition_metadata(file_system: FileSystem, directory: str, topic_id: UUID) -> None:
    """Write the topic id of a partition's directory."""
    path = os.path.join(directory, PARTITION_METADATA_FILE)
    file_system.replace(path, format_partition_metadata(topic_id), sync=False)


def is_torn_partition_metadata(data: bytes) -> bool:
    """Whether a loss of power may have left this of a file with a topic id: a part, or zeros."""
    written = data.rstrip(b"\0")
    whole = format_partition_metadata(ZERO_UUID)
    start = whole[: whole.rindex(b" ") + 1]
    return len(written) < len(whole) and (start.startswith(written) or written.startswith(start))


def parse_partition_metadata(data: bytes) -> UUID:
    """Read what `format_partition_metadata` or Kafka wrote; raises `CorruptCheckpointError`.

    Kalda once wrote `ZERO_UUID` for a topic without an id; Kafka refuses such a file.
    """
    fields = dict(line.split(": ", 1) for line in _text(data).splitlines() if ": " in line)
    _check_not_newer("partition.metadata", fields.get("version", ""), _VERSION, "version 0")
    if fields.get("version") != str(_VERSION) or "topic_id" not in fields:
        raise CorruptCheckpointError(
            f"partition metadata {bytes_text(data)} has no version {_VERSION} and topic_id"
        )
    try:
        return uuid_from_text(fields["topic_id"].strip())
    except ValueError as error:
        raise CorruptCheckpointError(str(error)) from None


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The owner of a log directory; a broker refuses a directory of another broker or cluster."""

    cluster_id: str
    broker_id: int
    directory_id: str | None = None


def format_meta_properties(properties: MetaProperties) -> bytes:
    """Write ``meta.properties``."""
    lines = [
        "#",
        f"cluster.id={properties.cluster_id}",
        f"version={_META_PROPERTIES_VERSION}",
        f"broker.id={properties.broker_id}",
    ]
    if properties.directory_id is not None:
        lines.append(f"directory.id={properties.directory_id}")
    return ("\n".join(lines) + "\n").encode()


def parse_meta_properties(data: bytes) -> MetaProperties:
    """Read ``meta.properties`` of version 0 or 1; raises `CorruptCheckpointError`, `NewerFormatError`."""
    fields: dict[str, str] = {}
    for line in _text(data).splitlines():
        name, separator, value = line.partition("=")
        if separator and not line.lstrip().startswith(("#", "!")):
            fields[name.strip()] = value.strip().replace("\\:", ":").replace("\\=", "=")
    version = fields.get("version")
    _check_not_newer(META_PROPERTIES_FILE, version or "", _META_PROPERTIES_VERSION_MAX, "versions 0 and 1")
    if version not in ("0", "1"):
        raise CorruptCheckpointError(f"{META_PROPERTIES_FILE} has version {version}, not 0 or 1")
    broker_id = fields.get("broker.id", fields.get("node.id"))
    if broker_id is None:
        raise CorruptCheckpointError(f"{META_PROPERTIES_FILE} names no broker.id")
    return MetaProperties(
        fields.get("cluster.id", ""), _number(broker_id, META_PROPERTIES_FILE), fields.get("directory.id")
    )


def read_meta_properties(file_system: FileSystem, directory: str) -> MetaProperties | None:
    """Read the directory's ``meta.properties``, or ``None`` if it has none."""
    path = os.path.join(directory, META_PROPERTIES_FILE)
    if not file_system.exists(path):
        return None
    try:
        return parse_meta_properties(file_system.read(path))
    except NewerFormatError as error:
        raise error.at(path) from None
    except CorruptCheckpointError as error:
        raise CorruptCheckpointError(f"{path}: {error}") from None


def write_meta_properties(file_system: FileSystem, directory: str, properties: MetaProperties) -> None:
    """Write the directory's ``meta.properties``."""
    path = os.path.join(directory, META_PROPERTIES_FILE)
    file_system.replace(path, format_meta_properties(properties), sync=True)


def write_clean_shutdown(file_system: FileSystem, directory: str, broker_epoch: int) -> None:
    """Write the marker of a clean shutdown: everything is on disk, and a start need not recover."""
    content = json.dumps({"version": _VERSION, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    file_system.replace(os.path.join(directory, CLEAN_SHUTDOWN_FILE), content.encode(), sync=True)


def take_clean_shutdown(file_system: FileSystem, directory: str) -> bytes | None:
    """Remove the marker and return its content, if it existed; from now on a crash is detected."""
    path = os.path.join(directory, CLEAN_SHUTDOWN_FILE)
    if not file_system.exists(path):
        return None
    content = file_system.read(path)
    file_system.remove(path)
    file_system.sync_directory(directory)
    return content


def put_back_clean_shutdown(file_system: FileSystem, directory: str, content: bytes) -> None:
    """Write the marker again: the start has changed nothing."""
    file_system.replace(os.path.join(directory, CLEAN_SHUTDOWN_FILE), content, sync=True)


def read_offset_checkpoint(file_system: FileSystem, path: str) -> dict[TopicPartition, int]:
    """Read an offset checkpoint; a missing file is empty.

    Raises:
        CorruptCheckpointError, NewerFormatError: the message names the file.
    """
    if not file_system.exists(path):
        return {}
    try:
        return parse_offset_checkpoint(file_system.read(path))
    except NewerFormatError as error:
        raise error.at(path) from None
    except CorruptCheckpointError as error:
        raise CorruptCheckpointError(f"{path}: {error}") from None


def _entry_lines(data: bytes) -> list[str]:
    if not data:
        # Kafka creates its checkpoints so, and leaves them until there is an entry.
        return []
    lines = _text(data).splitlines()
    if len(lines) < 2:
        raise CorruptCheckpointError(f"checkpoint has {len(lines)} lines; expected a version and a count")
    _check_not_newer("checkpoint", lines[0], _VERSION, "version 0")
    version, count = _number(lines[0], lines[0]), _number(lines[1], lines[1])
    if version != _VERSION:
        raise CorruptCheckpointError(f"checkpoint has version {version}; expected {_VERSION}")
    entries = lines[2:]
    if len(entries) != count:
        raise CorruptCheckpointError(f"checkpoint declares {count} entries and has {len(entries)}")
    if not data.endswith(b"\n"):
        # A loss of power may have cut its last number, which would be a number nevertheless.
        raise CorruptCheckpointError(f"checkpoint ends within {lines[-1]!r}")
    return entries


def _check_not_newer(what: str, version: str, newest: int, known: str) -> None:
    """Check that a version is not above the ones that are known. What is no number is damaged, not newer."""
    if version.isascii() and version.isdigit() and len(version) <= _VERSION_DIGITS and int(version) > newest:
        raise NewerFormatError(what, int(version), known)


def _number(text: str, line: str) -> int:
    # `int` takes other digits, signs and underscores as well.
    if _NUMBER.fullmatch(text) is None or abs(int(text)) >= INT64_MAX:
        raise CorruptCheckpointError(
            f"{text!r:.40} in checkpoint line {line!r:.80} is not a number of 64 bits"
        )
    return int(text)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise CorruptCheckpointError("checkpoint is not text") from None
