"""The epochs of a share session, and the partitions and acknowledgements in its requests."""

from typing import Any
from uuid import UUID

from kalda.clients.share.acknowledgements import (
    AcknowledgeType,
    PartitionAcknowledgements,
    Range,
    SharePartition,
)
from kalda.clients.share.share_session import FetchLimits, ShareSession
from kalda.common.types import TopicPartition
from kalda.protocol.messages.share_acknowledge import GROUPS_DELAY, ShareAcknowledgeRequest
from kalda.protocol.messages.share_fetch import ShareFetchRequest

ID = UUID(int=1)
ZERO, ONE, TWO = (SharePartition(ID, TopicPartition("t", number)) for number in range(3))
LIMITS = FetchLimits(max_wait_ms=500, min_bytes=1, max_bytes=1000, max_records=10, is_strict=True)
ACCEPTED = PartitionAcknowledgements([Range(3, 5, 1), Range(6, 6, 0)], [3, 4, 5])


def shown(request: ShareFetchRequest | ShareAcknowledgeRequest) -> dict[str, Any]:
    found: dict[str, Any] = {"epoch": request.share_session_epoch}
    for topic in request.topics:
        assert ID == topic.topic_id
        for each in topic.partitions:
            found[str(each.partition_index)] = [
                (batch.first_offset, batch.last_offset, *batch.acknowledge_types)
                for batch in each.acknowledgement_batches
            ]
    if isinstance(request, ShareFetchRequest) and request.forgotten_topics_data:
        found["forgotten"] = [each for topic in request.forgotten_topics_data for each in topic.partitions]
    return found


def test_a_session_names_what_changes() -> None:
    session = ShareSession("g", "m")
    first = session.fetch_request([ZERO, ONE], {}, LIMITS, 2)
    assert {"epoch": 0, "0": [], "1": []} == shown(first)
    assert ("g", "m", 500, 1, 1000, 10, 1) == (
        first.group_id,
        first.member_id,
        first.max_wait_ms,
        first.min_bytes,
        first.max_bytes,
        first.max_records,
        first.share_acquire_mode,
    )
    session.answered()
    assert session.is_open
    assert {"epoch": 1} == shown(session.fetch_request([ZERO, ONE], {}, LIMITS, 2))
    session.answered()
    changed = session.fetch_request([ONE, TWO], {ZERO: ACCEPTED}, LIMITS, 2)
    assert {"epoch": 2, "2": [], "0": [(3, 5, 1), (6, 6, 0)], "forgotten": [0]} == shown(changed)
    session.answered()
    assert {"epoch": 3, "0": [(3, 5, 1), (6, 6, 0)]} == shown(session.acknowledge_request({ZERO: ACCEPTED}))
    session.answered()
    assert {"epoch": -1} == shown(session.acknowledge_request({}, closes=True))


def test_a_release_names_its_delay() -> None:
    session = ShareSession("g", "m")
    session.answered()
    release = AcknowledgeType.RELEASE
    released = PartitionAcknowledgements([Range(3, 5, release, 700), Range(6, 6, release)])
    requests = (
        session.fetch_request([ZERO], {ZERO: released}, LIMITS, 2),
        session.acknowledge_request({ZERO: released}),
    )
    for request in requests:
        (acknowledged,) = request.topics[0].partitions
        assert [700, GROUPS_DELAY] == [
            batch.release_delay_ms for batch in acknowledged.acknowledgement_batches
        ]


def test_a_rejection_names_its_reason() -> None:
    session = ShareSession("g", "m")
    session.answered()
    reject = AcknowledgeType.REJECT
    rejected = PartitionAcknowledgements([Range(3, 5, reject, reason="too late"), Range(6, 6, reject)])
    requests = (
        session.fetch_request([ZERO], {ZERO: rejected}, LIMITS, 2),
        session.acknowledge_request({ZERO: rejected}),
    )
    for request in requests:
        (acknowledged,) = request.topics[0].partitions
        assert ["too late", None] == [batch.reject_reason for batch in acknowledged.acknowledgement_batches]


def test_a_new_session_names_everything_and_has_another_number() -> None:
    session = ShareSession("g", "m")
    session.fetch_request([ZERO], {}, LIMITS, 2)
    session.answered()
    assert 0 == session.number
    session.restart()
    assert 1 == session.number
    assert not session.is_open
    assert {"epoch": 0, "0": []} == shown(session.fetch_request([ZERO], {}, LIMITS, 2))


def test_renewals_and_strict_limits_are_of_the_second_version() -> None:
    session = ShareSession("g", "m")
    assert 0 == session.fetch_request([ZERO], {}, LIMITS, 1).share_acquire_mode
    session.answered()
    renewed = PartitionAcknowledgements([Range(1, 1, AcknowledgeType.RENEW)], [1])
    assert session.acknowledge_request({ZERO: renewed}).is_renew_ack
    assert not session.acknowledge_request({ZERO: ACCEPTED}).is_renew_ack
