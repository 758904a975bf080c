"""Progress is committed to the consumer group, and nothing about it can fail a query."""

import pytest

from kalda.clients.errors import BrokerResponseError, RequestTimedOutError
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.spark.source.group_commits import REPEAT_SECONDS, LagCommits
from kalda.spark.source.group_offsets import Committed
from tests.unit.spark.source.cluster_fakes import FakeGroup

T0 = TopicPartition("t", 0)
WAIT_SECONDS = 60.0


def test_the_offer_is_committed_in_the_background() -> None:
    group = FakeGroup()
    commits = LagCommits(group, "g")

    commits.offer({T0: Committed(5)})

    assert commits.flush(WAIT_SECONDS)
    assert {T0: Committed(5)} == group.offsets
    commits.close()
    assert group.is_closed
    commits.offer({T0: Committed(6)})
    assert {T0: Committed(5)} == group.offsets


def test_nothing_offered_opens_nothing() -> None:
    commits = LagCommits(FakeGroup(), "g")

    assert commits.flush(0)
    commits.close()


def test_unchanged_progress_is_repeated_seldom() -> None:
    """An idle query keeps its group alive without a request at each trigger."""
    now = [100.0]
    group = FakeGroup()
    commits = LagCommits(group, "g", monotonic=lambda: now[0])

    for elapsed in (0, 1, REPEAT_SECONDS - 2, 1):
        now[0] += elapsed
        commits.send({T0: Committed(5)})

    assert 2 == group.writes


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (RequestTimedOutError("commit"), "commit"),
        (BrokerResponseError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "group g"), "group g"),
    ],
)
def test_a_failure_is_one_warning(
    failure: RequestTimedOutError | BrokerResponseError, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    group = FakeGroup()
    group.failure = failure
    commits = LagCommits(group, "g")

    for offset in range(3):
        commits.send({T0: Committed(offset)})

    assert 1 == len(caplog.records)
    assert text in caplog.text
    assert "The query goes on" in caplog.text


def test_live_members_are_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    group = FakeGroup()
    group.refused = {T0: BrokerResponseError(ErrorCode.UNKNOWN_MEMBER_ID, "commit")}
    commits = LagCommits(group, "g")

    commits.send({T0: Committed(1)})
    commits.send({T0: Committed(2)})

    assert 1 == len(caplog.records)
    assert "the group has consumers of its own" in caplog.text
