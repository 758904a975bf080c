"""Unpacks compressed message sets of old clients in the background before they are appended.

A wrapper of 0.7 MB takes 18 ms to unpack and to pack again, which would hold the event loop. The connection
handles no further request until this one is answered, so the order of its records stays, and each connection
has one copy of a request at most, as with large requests that are being received.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from kalda.protocol.fast.produce import ProduceRequestFields
from kalda.records.batch import COMPRESSION_MASK
from kalda.records.format_conversion import is_message_set
from kalda.storage.log_validator import LogValidator, UnpackedMessages

if TYPE_CHECKING:
    from kalda.broker.requests.services import BrokerServices

PACKED_BYTES_MIN: Final = 4096
"""Smaller ones are unpacked on the event loop: gzip takes some 0.1 ms for them, about what a thread costs."""
_ATTRIBUTES_POSITION: Final = 17

Unpacked: TypeAlias = Mapping[int, UnpackedMessages]
"""What was unpacked, by the place of the records in the request."""


def is_packed(records: memoryview | None) -> bool:
    """Return whether records are a compressed message set that is worth a thread."""
    return (
        records is not None
        and len(records) >= PACKED_BYTES_MIN
        and is_message_set(records)
        and bool(records[_ATTRIBUTES_POSITION] & COMPRESSION_MASK)
    )


def has_packed(fields: ProduceRequestFields) -> bool:
    """Return whether a request has records that `unpack` should take."""
    return any(is_packed(records) for _, partitions in fields.topics for _, records in partitions)


def unpack(
    services: "BrokerServices",
    fields: ProduceRequestFields,
    done: Callable[[BaseException | None, Unpacked], None],
) -> None:
    """Unpack what is packed in a request whose records are the caller's, then call `done` on the event loop.

    `done` gets an error only for a fault of the broker; each result has its own.
    """
    places: list[tuple[int, LogValidator, memoryview]] = []
    place = 0
    for name, partitions in fields.topics:
        for index, records in partitions:
            partition = services.replica_manager.find(name, index)
            if records is not None and is_packed(records) and partition is not None:
                places.append((place, partition.log.validator, records))
            place += 1
    unpacked: dict[int, UnpackedMessages] = {}

    def work() -> None:
        for at, validator, records in places:
            unpacked[at] = validator.unpack(records)

    services.log_manager.resources.executor.submit(work, lambda error: done(error, unpacked))
