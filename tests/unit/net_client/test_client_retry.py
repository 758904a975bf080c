from collections.abc import Callable

import pytest

from kalda.common.clock import ManualClock
from kalda.common.errors import ErrorCode
from kalda.net.client.api_versions import highest_shared_version
from kalda.net.client.client_config import ClientConfig
from kalda.net.client.client_errors import (
    BrokerConnectionError,
    BrokerResponseError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from kalda.net.client.cluster_client import UNKNOWN_TOPIC_WAIT_MS, ClusterClient
from kalda.net.client.retry import RetrySchedule
from kalda.protocol.schema import VersionRange


def test_waits_double_up_to_the_maximum_and_end_at_the_deadline() -> None:
    schedule = RetrySchedule(deadline=10.0, backoff_ms=100, backoff_max_ms=1000)

    waits = [schedule.next_wait(0.0) for _ in range(6)]

    for wait, expected in zip(waits, [0.1, 0.2, 0.4, 0.8, 1.0, 1.0], strict=True):
        assert pytest.approx(expected, rel=0.21) == wait
    assert 0.25 == schedule.next_wait(9.75)
    assert schedule.next_wait(10.0) is None


@pytest.mark.parametrize(
    ("ours", "theirs", "shared"),
    [((0, 12), (4, 17), 12), ((0, 12), (0, 9), 9), ((0, 3), (4, 17), None), ((4, 17), (0, 3), None)],
)
def test_highest_shared_version(ours: tuple[int, int], theirs: tuple[int, int], shared: int | None) -> None:
    assert shared == highest_shared_version(VersionRange(*ours), VersionRange(*theirs))


def test_an_api_that_the_broker_does_not_list_is_not_shared() -> None:
    assert highest_shared_version(VersionRange(0, 1), None) is None


class Attempts:
    """Fails in the given ways, one after the other, then succeeds; remembers the deadlines it got."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.deadlines: list[float] = []

    def __call__(self, deadline: float) -> str:
        self.deadlines.append(deadline)
        if self.failures:
            raise self.failures.pop(0)
        return "done"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def client(clock: ManualClock) -> ClusterClient:
    config = ClientConfig((("b", 1),), request_timeout_ms=1_000, default_api_timeout_ms=10_000)
    return ClusterClient(config, clock=clock, sleep=clock.advance)


def test_passing_failures_are_retried(client: ClusterClient) -> None:
    attempts = Attempts(
        BrokerConnectionError("refused"),
        BrokerResponseError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "x"),
        RequestTimedOutError("slow"),
    )

    assert "done" == client.retry("work", attempts)
    assert 4 == len(attempts.deadlines)
    # One try may take a second, the whole ten.
    assert pytest.approx(1.0) == attempts.deadlines[0]


def test_lasting_failures_are_raised_at_once(client: ClusterClient) -> None:
    attempts = Attempts(BrokerResponseError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "x"))

    with pytest.raises(BrokerResponseError, match="TOPIC_AUTHORIZATION_FAILED"):
        client.retry("work", attempts)
    assert 1 == len(attempts.deadlines)


def test_the_end_of_time_tells_the_last_failure(client: ClusterClient, clock: ManualClock) -> None:
    attempts = Attempts(*[BrokerConnectionError("refused") for _ in range(100)])

    with pytest.raises(RequestTimedOutError, match="work: gave up after 10000 ms; last: refused"):
        client.retry("work", attempts)
    assert pytest.approx(10.0) == clock.monotonic()


def test_an_unknown_topic_is_given_a_moment_and_no_more(client: ClusterClient, clock: ManualClock) -> None:
    make: Callable[[], Exception] = lambda: UnknownTopicOrPartitionError("topic t")  # noqa: E731
    attempts = Attempts(*[make() for _ in range(100)])

    with pytest.raises(UnknownTopicOrPartitionError, match="topic t"):
        client.retry("work", attempts)
    assert UNKNOWN_TOPIC_WAIT_MS / 1000 < clock.monotonic() < UNKNOWN_TOPIC_WAIT_MS / 1000 + 2
