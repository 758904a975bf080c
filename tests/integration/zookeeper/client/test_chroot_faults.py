"""The chroot is made over a connection that may break, like everything else."""

from collections.abc import Callable

import pytest

from kalda.zookeeper.client.ensemble_client import EnsembleClient
from kalda.zookeeper.errors import ConnectionLossError
from kalda.zookeeper.port import Stat, WatchEvent
from tests.integration.zookeeper.client.engines import EnsembleEngine


def fail_times(monkeypatch: pytest.MonkeyPatch, count: int) -> list[str]:
    """Have the first questions for a znode meet a connection that breaks; return which they were."""
    exists = EnsembleClient.exists
    failed: list[str] = []

    async def failing(
        session: EnsembleClient, path: str, watch: Callable[[WatchEvent], None] | None = None
    ) -> Stat | None:
        if len(failed) < count:
            failed.append(path)
            raise ConnectionLossError("the connection broke", path)
        return await exists(session, path, watch)

    monkeypatch.setattr(EnsembleClient, "exists", failing)
    return failed


async def test_a_connection_that_breaks_meanwhile_costs_only_time(
    ensemble_engine: EnsembleEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker whose start it ended would have to be started by hand, though coordination is there again."""
    failed = fail_times(monkeypatch, 3)
    session = await ensemble_engine.connect()
    assert 3 == len(failed)
    assert "/a" == await session.create("/a")


async def test_one_that_is_never_there_ends_with_the_time_for_it(
    ensemble_engine: EnsembleEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = fail_times(monkeypatch, 10**9)
    with pytest.raises(ConnectionLossError, match="the connection broke"):
        # Long enough for a ZooKeeper on a busy machine to open the session before.
        await ensemble_engine.connect(connection_timeout_ms=6_000)
    assert len(failed) > 1
