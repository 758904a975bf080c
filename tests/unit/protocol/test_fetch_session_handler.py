"""The id and the epoch of the requests of a fetch session, on the requesting side (KIP-227)."""

import pytest

from kalda.common.errors import ErrorCode
from kalda.protocol.fetch_session import EPOCH_MAX, FetchSessionHandler, next_epoch


class Requester(FetchSessionHandler):
    """A requester whose requests are their id and their epoch."""

    def request(self) -> tuple[int, int]:
        self._is_awaited = True
        return self._id, self._epoch


def opened() -> Requester:
    session = Requester()
    assert (0, 0) == session.request()
    session.accepted(77)
    return session


def test_a_full_request_opens_a_session_whose_requests_are_counted() -> None:
    session = opened()
    assert session.is_open
    for epoch in (1, 2, 3):
        assert not session.is_full
        assert (77, epoch) == session.request()
        session.accepted(77)


def test_epochs_wrap_past_the_one_that_means_full() -> None:
    assert [1, 2, 1] == [next_epoch(0), next_epoch(1), next_epoch(EPOCH_MAX)]


def test_without_a_session_each_request_is_full() -> None:
    session = Requester()
    for _ in range(2):
        assert (0, 0) == session.request()
        session.accepted(0)
        assert not session.is_open


def test_a_broker_that_closes_the_session_gets_a_full_request() -> None:
    session = opened()
    session.request()
    session.accepted(0)
    assert (0, 0) == session.request()


@pytest.mark.parametrize(
    ("code", "session_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 77),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 77),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 77),
    ],
)
def test_after_an_error_a_full_request_closes_the_session_that_may_be_left(
    code: ErrorCode, session_id: int
) -> None:
    session = opened()
    session.request()
    session.refused(code)
    assert (session_id, 0) == session.request()


def test_a_lost_response_is_followed_by_a_full_request() -> None:
    session = opened()
    session.request()
    session.restart()
    assert (77, 0) == session.request()
    session.accepted(78)
    assert (78, 1) == session.request()


def test_a_restart_before_the_response_keeps_it_from_opening_a_session() -> None:
    """The next request names all partitions, and closes what the response opened."""
    session = Requester()
    session.request()
    session.restart()
    session.accepted(77)
    assert (77, 0) == session.request()
    session.accepted(78)
    assert (78, 1) == session.request()
