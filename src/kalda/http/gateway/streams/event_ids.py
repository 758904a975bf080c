"""Writes and reads the ids of a stream's events: the whole position of a reader, such as ``0:120,1:87``.

An id has the next offset of each partition that the reader reads. A reader that comes back with the last id
it saw continues there on any instance, because the id is all that any instance has to know.
"""

from collections.abc import Mapping
from typing import Final

from kalda.http.gateway.parameters import InvalidParameterError

OFFSET_MAX: Final = 2**63 - 1
PARTITION_MAX: Final = 2**31 - 1

TEXT_MAX: Final = 64 * 1024
"""Characters of an id: some 3,000 partitions, which is more than a header can carry."""

_ALLOWED: Final = "pairs partition:offset, separated by commas, each partition once, such as 0:120,1:87"


def format_event_id(position: Mapping[int, int]) -> str:
    """Return the id of a position; partitions are in ascending order."""
    return ",".join(f"{partition}:{position[partition]}" for partition in sorted(position))


def parse_event_id(text: str, name: str = "Last-Event-ID") -> dict[int, int]:
    """Return the position that an id stands for: the next offset of each partition.

    Raises:
        InvalidParameterError: the text is no id.
    """
    if not text or len(text) > TEXT_MAX or not text.isascii():
        raise InvalidParameterError(name, text, _ALLOWED)
    position: dict[int, int] = {}
    for pair in text.split(","):
        partition_text, colon, offset_text = pair.partition(":")
        if not (colon and partition_text.isdigit() and offset_text.isdigit()):
            raise InvalidParameterError(name, text, _ALLOWED)
        if len(partition_text) > 10 or len(offset_text) > 19:
            raise InvalidParameterError(name, text, _ALLOWED)
        partition, offset = int(partition_text), int(offset_text)
        if partition > PARTITION_MAX or offset > OFFSET_MAX or partition in position:
            raise InvalidParameterError(name, text, _ALLOWED)
        position[partition] = offset
    return position
