"""Defines acknowledgements of records as requests name them, and checks and cuts them: `parts_of`."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from kalda.common.errors import ApiError, ErrorCode
from kalda.coordinator.share.delivery_state import AcknowledgeType
from kalda.protocol.messages.share_acknowledge import (
    GROUPS_DELAY,
    REJECT_REASON_MAX,
    RELEASE_DELAY_MAX_MS,
)


class Acknowledgement(NamedTuple):
    """The acknowledgement of a range; `types` has one type for all of it, or one for each offset."""

    first: int
    last: int
    types: Sequence[int]
    delay_ms: int = GROUPS_DELAY
    """How long the released records are not delivered; `GROUPS_DELAY`: as the group's settings say."""
    reason: str | None = None
    """Why the rejected records are rejected."""


class Part(NamedTuple):
    """Offsets of one acknowledgement that have one type."""

    first: int
    last: int
    kind: AcknowledgeType
    delay_ms: int
    reason: bytes
    """Why the records are rejected, in UTF-8; empty if the member does not say, or does not reject them."""


def parts_of(acknowledgements: Iterable[Acknowledgement], *, may_renew: bool) -> list[Part]:
    """Return the parts of acknowledgements that have one type each, in order.

    Raises:
        ApiError: INVALID_REQUEST, a range is malformed, a type is unknown or not allowed, or a delay or a
            reason is not one.
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
        if delay_ms != GROUPS_DELAY:
            _check_delay(each)
        reason = b"" if each.reason is None else _reason(each, each.reason)
        if len(each.types) == 1:
            kind = _kind(each.types[0], may_renew=may_renew)
            parts.append(Part(each.first, each.last, kind, delay_ms, reason))
            continue
        if len(each.types) != count:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"{len(each.types)} acknowledge types do not fit the offsets {each.first} to {each.last}.",
            )
        offset = each.first
        for number, alike in groupby(each.types):
            last = offset + sum(1 for _ in alike) - 1
            kind = _kind(number, may_renew=may_renew)
            of_part = reason if kind is AcknowledgeType.REJECT else b""
            parts.append(Part(offset, last, kind, delay_ms, of_part))
            offset = last + 1
    return parts


def _reason(acknowledgement: Acknowledgement, text: str) -> bytes:
    reason = text.encode()
    if not 0 < len(reason) <= REJECT_REASON_MAX:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"The reason for offset {acknowledgement.first} has {len(reason)} bytes; "
            f"1 to {REJECT_REASON_MAX} are allowed.",
        )
    _check_has(acknowledgement, AcknowledgeType.REJECT, "a reason", "rejected")
    return reason


def _check_delay(acknowledgement: Acknowledgement) -> None:
    first, last, _, delay_ms, _ = acknowledgement
    if not 0 <= delay_ms <= RELEASE_DELAY_MAX_MS:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"The offsets {first} to {last} are released for {delay_ms} ms; "
            f"0 to {RELEASE_DELAY_MAX_MS} are allowed.",
        )
    _check_has(acknowledgement, AcknowledgeType.RELEASE, "a delay", "released")


def _check_has(acknowledgement: Acknowledgement, kind: AcknowledgeType, what: str, done: str) -> None:
    """Refuse what an acknowledgement says of records of a kind if it has none of that kind."""
    if kind not in acknowledgement.types:
        first, last = acknowledgement.first, acknowledgement.last
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"The offsets {first} to {last} have {what}, and none of them is {done}.",
        )


def _kind(value: int, *, may_renew: bool) -> AcknowledgeType:
    try:
        kind = AcknowledgeType(value)
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"There is no acknowledge type {value}.") from None
    if kind is AcknowledgeType.RENEW and not may_renew:
        raise ApiError(ErrorCode.INVALID_REQUEST, "The group does not allow to renew acquisitions.")
    return kind
