"""Defines acknowledgements of records as requests name them, and checks and cuts them: `parts_of`."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from kalda.common.errors import ApiError, ErrorCode
from kalda.coordinator.share.delivery_state import AcknowledgeType
from kalda.protocol.messages.share_acknowledge import GROUPS_DELAY, RELEASE_DELAY_MAX_MS


class Acknowledgement(NamedTuple):
    """The acknowledgement of a range; `types` has one type for all of it, or one for each offset."""

    first: int
    last: int
    types: Sequence[int]
    delay_ms: int = GROUPS_DELAY
    """How long the released records are not delivered; `GROUPS_DELAY`: as the group's settings say."""


class Part(NamedTuple):
    """Offsets of one acknowledgement that have one type."""

    first: int
    last: int
    kind: AcknowledgeType
    delay_ms: int


def parts_of(acknowledgements: Iterable[Acknowledgement], *, may_renew: bool) -> list[Part]:
    """Return the parts of acknowledgements that have one type each, in order.

    Raises:
        ApiError: INVALID_REQUEST, a range is malformed, a type is unknown or not allowed, or a delay is not
            one.
    """
    parts: list[Part] = []
    position = -1
    for each in acknowledgements:
        if each.first > each.last or each.first <= position:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"The offsets {each.first} to {each.last} are out of order."
            )
        position = each.last
        count, delay_ms = each.last - each.first + 1, each.delay_ms
        if not GROUPS_DELAY <= delay_ms <= RELEASE_DELAY_MAX_MS:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"The offsets {each.first} to {each.last} are released for {delay_ms} ms; "
                f"0 to {RELEASE_DELAY_MAX_MS} are allowed.",
            )
        if len(each.types) == 1:
            parts.append(Part(each.first, each.last, _kind(each.types[0], may_renew=may_renew), delay_ms))
            continue
        if len(each.types) != count:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"{len(each.types)} acknowledge types do not fit the offsets {each.first} to {each.last}.",
            )
        offset = each.first
        for kind, alike in groupby(each.types):
            last = offset + sum(1 for _ in alike) - 1
            parts.append(Part(offset, last, _kind(kind, may_renew=may_renew), delay_ms))
            offset = last + 1
    return parts


def _kind(value: int, *, may_renew: bool) -> AcknowledgeType:
    try:
        kind = AcknowledgeType(value)
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"There is no acknowledge type {value}.") from None
    if kind is AcknowledgeType.RENEW and not may_renew:
        raise ApiError(ErrorCode.INVALID_REQUEST, "The group does not allow to renew acquisitions.")
    return kind
