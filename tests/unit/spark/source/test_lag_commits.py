"""Progress is committed to the consumer group, and nothing about it can fail a query."""

from uuid import UUID

import pytest

from kalda.clients.errors import BrokerResponseError, RequestTimedOutError
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.spark.source.group_offsets import Committed
from kalda.spark.source.lag_commits import REPEAT_SECONDS, LagCommits
from tests.unit.spark.source.cluster_fakes import FakeGroup, FakeTopicIds

T0 = TopicPartition("t", 0)
WAIT_SECONDS = 10.0


def test_the_offer_is_committed_in_the_background() -> None:
    group = FakeGroup()
    commits = LagCommits(group, FakeTopicIds(), "g")

    commits.offer({T0: Committed(5)}, {})

    assert commits.flush(WAIT_SECONDS)
    assert {T0: Committed(5)} == group.offsets
    commits.close()
    assert group.is_closed
    commits.offer({T0: Committed(6)}, {})
    assert {T0: Committed(5)} == group.offsets


def test_nothing_offered_opens_nothing() -> None:
    commits = LagCommits(FakeGroup(), FakeTopicIds(), "g")

    assert commits.flush(0)
    commits.close()


def test_unchanged_progress_is_repeated_seldom() -> None:
    """An idle query keeps its group alive without a request at each trigger."""
    now = [100.0]
    group = FakeGroup()
    commits = LagCommits(group, FakeTopicIds(), "g", monotonic=lambda: now[0])

    for elapsed in (0, 1, REPEAT_SECONDS - 2, 1):
        now[0] += elapsed
        commits.send({T0: Committed(5)}, {})

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
    commits = LagCommits(group, FakeTopicIds(), "g")

    for offset in range(3):
        commits.send({T0: Committed(offset)}, {})

    assert 1 == len(caplog.records)
    assert text in caplog.text
    assert "The query goes on" in caplog.text


def test_live_members_are_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    group = FakeGroup()
    group.refused = {T0: BrokerResponseError(ErrorCode.UNKNOWN_MEMBER_ID, "commit")}
    commits = LagCommits(group, FakeTopicIds(), "g")

    commits.send({T0: Committed(1)}, {})
    commits.send({T0: Committed(2)}, {})

    assert 1 == len(caplog.records)
    assert "the group has consumers of its own" in caplog.text


def test_topic_ids_are_kept_before_the_first_offsets() -> None:
    """A query that is killed before its first batch is done has a checkpoint already."""
    group, kept = FakeGroup(), FakeTopicIds()
    commits = LagCommits(group, kept, "g")

    commits.offer({}, {"t": UUID(int=1)})

    assert commits.flush(WAIT_SECONDS)
    assert {"t": UUID(int=1)} == kept.kept
    assert 0 == group.writes
    commits.close()


def test_topic_ids_that_cannot_be_kept_are_one_warning_and_tried_seldom(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """On a cluster where the topic may not be created, the offsets are committed all the same."""
    now = [100.0]
    group, kept = FakeGroup(), FakeTopicIds()
    kept.failure = BrokerResponseError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic __kalda_sources")
    commits = LagCommits(group, kept, "g", monotonic=lambda: now[0])

    for offset in range(5):
        commits.send({T0: Committed(offset)}, {"t": UUID(int=1)})
    now[0] += REPEAT_SECONDS
    commits.send({T0: Committed(5)}, {"t": UUID(int=1)})

    assert 2 == kept.writes
    assert {T0: Committed(5)} == group.offsets
    assert 1 == len(caplog.records)
    assert "__kalda_sources" in caplog.text
