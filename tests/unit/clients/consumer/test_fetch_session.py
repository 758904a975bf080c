"""Incremental fetch sessions (KIP-227) with one broker."""

from uuid import UUID

from kalda.clients.consumer.fetch_session import FetchSession, FetchTarget, SessionRequest
from kalda.common.errors import ErrorCode
from kalda.common.types import ZERO_UUID, TopicPartition
from kalda.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
IDS = {"a": UUID(int=10), "b": UUID(int=11)}


def target(partition: TopicPartition, offset: int = 0, topic_id: UUID | None = None) -> FetchTarget:
    return FetchTarget(IDS[partition.topic] if topic_id is None else topic_id, offset, 1, 1000)


def response(
    *partitions: TopicPartition, session: int = 77, error: ErrorCode = ErrorCode.NONE
) -> FetchResponse:
    return FetchResponse(
        error_code=error,
        session_id=session,
        responses=[
            FetchableTopicResponse(
                topic=each.topic,
                topic_id=IDS[each.topic],
                partitions=[PartitionData(partition_index=each.partition)],
            )
            for each in partitions
        ],
    )


def named(request: SessionRequest) -> list[tuple[str, list[tuple[int, int]]]]:
    return [
        (topic.topic, [(each.partition, each.fetch_offset) for each in topic.partitions])
        for topic in request.topics
    ]


def forgotten(request: SessionRequest) -> list[tuple[str, UUID, list[int]]]:
    return [(topic.topic, topic.topic_id, topic.partitions) for topic in request.forgotten]


def opened(*partitions: TopicPartition) -> FetchSession:
    session = FetchSession()
    session.next_request({each: target(each) for each in partitions}, 17)
    assert session.received(response(*partitions)) is not None
    return session


def test_the_first_request_is_full_and_the_next_names_what_changed() -> None:
    session = FetchSession()
    first = session.next_request({A0: target(A0), B0: target(B0)}, 17)
    assert (0, 0, 17) == (first.session_id, first.session_epoch, first.version)
    assert [("a", [(0, 0)]), ("b", [(0, 0)])] == named(first)
    found = session.received(response(A0, B0))
    assert found is not None
    assert {A0, B0} == found.keys()
    second = session.next_request({A0: target(A0, 5), B0: target(B0)}, 17)
    assert (77, 1) == (second.session_id, second.session_epoch)
    assert [("a", [(0, 5)])] == named(second)
    assert {} == session.received(response())
    third = session.next_request({A0: target(A0, 5), B0: target(B0), A1: target(A1)}, 17)
    assert (77, 2) == (third.session_id, third.session_epoch)
    assert [("a", [(1, 0)])] == named(third)


def test_partitions_no_longer_wanted_are_forgotten() -> None:
    session = opened(A0, A1, B0)
    request = session.next_request({B0: target(B0)}, 17)
    assert [("a", IDS["a"], [0, 1])] == forgotten(request)
    assert [] == named(request)


def test_a_topic_that_was_created_again_is_replaced() -> None:
    session = opened(A0)
    request = session.next_request({A0: target(A0, 0, UUID(int=99))}, 17)
    assert [("a", IDS["a"], [0])] == forgotten(request)
    assert [UUID(int=99)] == [topic.topic_id for topic in request.topics]


def test_a_topic_that_gets_an_id_stays_in_a_session_of_names() -> None:
    """The broker would remove a partition that one request both names and forgets."""
    session = FetchSession()
    session.next_request({A0: target(A0, 0, ZERO_UUID), B0: target(B0, 0, ZERO_UUID)}, 17)
    assert session.received(response(A0, B0)) is not None
    request = session.next_request({A0: target(A0), B0: target(B0, 0, ZERO_UUID)}, 17)
    assert ([], [("a", [(0, 0)])]) == (forgotten(request), named(request))


def test_without_ids_of_all_topics_names_are_used() -> None:
    session = FetchSession()
    request = session.next_request({A0: target(A0), B0: target(B0, 0, ZERO_UUID)}, 17)
    assert 12 == request.version
    assert session.received(response(A0, B0)) is not None


def test_a_session_does_not_change_from_names_to_ids() -> None:
    """The broker answers FETCH_SESSION_TOPIC_ID_ERROR to such a request."""
    session = FetchSession()
    session.next_request({A0: target(A0, 0, ZERO_UUID)}, 17)
    session.received(response(A0))
    request = session.next_request({A0: target(A0)}, 17)
    assert (77, 0, 17) == (request.session_id, request.session_epoch, request.version)
    assert request.is_full


def test_brokers_before_sessions_get_full_requests() -> None:
    session = FetchSession()
    for _ in range(2):
        request = session.next_request({A0: target(A0, 0, ZERO_UUID)}, 6)
        assert (6, 0, -1) == (request.version, request.session_id, request.session_epoch)
        assert [("a", [(0, 0)])] == named(request)
        assert session.received(response(A0, session=0)) is not None


def test_an_evicted_session_starts_over_without_it() -> None:
    session = opened(A0)
    session.next_request({A0: target(A0, 1)}, 17)
    assert session.received(response(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, session=0)) is None
    request = session.next_request({A0: target(A0, 1)}, 17)
    assert (0, 0) == (request.session_id, request.session_epoch)
    assert [("a", [(0, 1)])] == named(request)


def test_after_other_errors_the_old_session_is_closed_by_the_new_one() -> None:
    session = opened(A0)
    session.next_request({A0: target(A0, 1)}, 17)
    assert session.received(response(error=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session=0)) is None
    request = session.next_request({A0: target(A0, 1)}, 17)
    assert (77, 0) == (request.session_id, request.session_epoch)


def test_a_lost_connection_starts_a_new_session() -> None:
    session = opened(A0)
    session.next_request({A0: target(A0, 1)}, 17)
    session.restart()
    request = session.next_request({A0: target(A0, 1)}, 17)
    assert (77, 0) == (request.session_id, request.session_epoch)
    assert [("a", [(0, 1)])] == named(request)


def test_partitions_that_were_not_asked_for_end_the_session() -> None:
    session = opened(A0)
    session.next_request({A0: target(A0, 1)}, 17)
    assert session.received(response(B0)) is None
    assert session.next_request({A0: target(A0, 1)}, 17).is_full


def test_a_broker_without_room_for_sessions_gets_full_requests() -> None:
    session = FetchSession()
    session.next_request({A0: target(A0)}, 17)
    assert session.received(response(A0, session=0)) is not None
    assert session.next_request({A0: target(A0)}, 17).is_full
    assert not session.is_open


def test_closing_names_the_session_and_no_partition() -> None:
    session = opened(A0)
    assert session.is_open
    request = session.closing_request(17)
    assert (77, -1, []) == (request.session_id, request.session_epoch, request.topics)
    assert not session.is_open
