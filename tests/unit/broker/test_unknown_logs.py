"""Logs whose topics ZooKeeper does not have."""

import uuid

import pytest

from kalda.broker.logs import unknown_logs
from kalda.broker.logs.unknown_logs import warn_of_unknown_logs
from kalda.cluster.cluster_store import NewTopic
from kalda.cluster.layout import ATTEMPTS_MAX
from kalda.cluster.schema import ReplicaAssignment
from kalda.common.types import TopicPartition
from kalda.zookeeper.errors import ConnectionLossError, SessionExpiredError, ZooKeeperError
from tests.unit.cluster.in_memory import InMemoryZooKeeper


async def test_topics_that_older_data_of_zookeeper_lacks_are_named_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a restored backup would hide acknowledged records without a word."""
    store = await InMemoryZooKeeper().cluster()
    await store.create_topics([NewTopic("old", {0: ReplicaAssignment((0,))}, {}, uuid.uuid4())])
    known = [TopicPartition("old", 0)]
    await warn_of_unknown_logs(store, [], ["/logs"])
    await warn_of_unknown_logs(store, known, ["/logs"])
    assert [] == caplog.records

    logs = [*known, TopicPartition("old", 1), TopicPartition("new", 0), TopicPartition("new", 1)]
    await warn_of_unknown_logs(store, logs, ["/logs"])
    (record,) = caplog.records
    assert "WARNING" == record.levelname
    text = "ZooKeeper does not have 3 partitions whose records are in /logs, of these topics: new, old. "
    assert record.getMessage().startswith(text)

    monkeypatch.setattr(unknown_logs, "_NAMED_MAX", 1)
    await warn_of_unknown_logs(store, logs, ["/logs"])
    assert "new and 1 more" in caplog.text


@pytest.mark.parametrize("error", [ConnectionLossError("lost"), SessionExpiredError("expired")])
@pytest.mark.parametrize("losses", [1, ATTEMPTS_MAX])
async def test_a_session_that_ended_while_logs_were_opened_does_not_end_the_start(
    losses: int, error: ZooKeeperError, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand logs on a busy machine take longer than a session of some seconds."""
    store = await InMemoryZooKeeper().cluster()
    topics, left = store.topics, losses

    async def lossy() -> list[str]:
        nonlocal left
        left -= 1
        if left >= 0:
            raise error
        return await topics()

    monkeypatch.setattr(store, "topics", lossy)
    monkeypatch.setattr(unknown_logs, "_RETRY_SECONDS", 0)
    if losses < ATTEMPTS_MAX:
        await warn_of_unknown_logs(store, [TopicPartition("old", 0)], ["/logs"])
    else:
        with pytest.raises(type(error)):
            await warn_of_unknown_logs(store, [TopicPartition("old", 0)], ["/logs"])
