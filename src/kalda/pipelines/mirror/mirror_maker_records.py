"""Encodes the records of MirrorMaker 2's internal topics, which `RemoteClusterUtils` of Java reads (KIP-382).

All fields are big-endian; a string is its length in an int16 and UTF-8. Values begin with a version, 0.
"""

import struct
from dataclasses import dataclass
from typing import Final

from kalda.common.types import TopicPartition

_VERSION: Final = 0
_STRING_BYTES_MAX: Final = 0x7FFF
_VERSION_AND_TIME: Final = struct.Struct(">hq")
_VERSION_AND_OFFSETS: Final = struct.Struct(">hqq")


class MirrorMakerRecordError(ValueError):
    """A record of an internal topic cannot be read, or a string is too long for one."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where a group of the source goes on in the target."""

    group: str
    partition: TopicPartition
    """In the target, by its name there."""
    upstream: int
    """The offset that the group committed in the source."""
    downstream: int
    """The offset that this is in the target."""
    metadata: str = ""

    def key(self) -> bytes:
        """Return the key of the record.

        Raises:
            MirrorMakerRecordError: a name is too long.
        """
        topic, number = self.partition
        return _string(self.group) + _string(topic) + struct.pack(">i", number)

    def value(self) -> bytes:
        """Return the value of the record.

        Raises:
            MirrorMakerRecordError: the metadata is too long.
        """
        return _VERSION_AND_OFFSETS.pack(_VERSION, self.upstream, self.downstream) + _string(self.metadata)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A sign that a mirror between two clusters is alive."""

    source: str
    target: str
    timestamp_ms: int

    def key(self) -> bytes:
        """Return the key of the record.

        Raises:
            MirrorMakerRecordError: a name is too long.
        """
        return _string(self.source) + _string(self.target)

    def value(self) -> bytes:
        """Return the value of the record."""
        return _VERSION_AND_TIME.pack(_VERSION, self.timestamp_ms)


def read_checkpoint(key: bytes, value: bytes) -> Checkpoint:
    """Read a record of a topic of checkpoints.

    Raises:
        MirrorMakerRecordError: it is none, or of a newer version.
    """
    try:
        group, position = _read_string(key, 0)
        topic, position = _read_string(key, position)
        (number,) = struct.unpack_from(">i", key, position)
        version, upstream, downstream = _VERSION_AND_OFFSETS.unpack_from(value)
        metadata, _ = _read_string(value, _VERSION_AND_OFFSETS.size)
    except (struct.error, UnicodeDecodeError) as error:
        raise MirrorMakerRecordError(f"{key[:100]!r} is no key of a checkpoint: {error}") from error
    if version != _VERSION:
        raise MirrorMakerRecordError(f"checkpoint {key[:100]!r} has version {version}; known is {_VERSION}")
    return Checkpoint(group, TopicPartition(topic, number), upstream, downstream, metadata)


def _string(text: str) -> bytes:
    encoded = text.encode()
    if len(encoded) > _STRING_BYTES_MAX:
        raise MirrorMakerRecordError(
            f"{text[:100]!r}... has {len(encoded)} bytes; a string of MirrorMaker has at most "
            f"{_STRING_BYTES_MAX}"
        )
    return struct.pack(">h", len(encoded)) + encoded


def _read_string(data: bytes, position: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", data, position)
    end = position + 2 + length
    if length < 0 or end > len(data):
        raise struct.error(f"a string of {length} bytes at position {position} of {len(data)}")
    return data[position + 2 : end].decode(), end
