"""How operations of the active controller wait for the ZooKeeper session."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from kalda.controller.term_session import TermSession
from kalda.zookeeper.port import ZooKeeperClient
from tests.runtimes import seeded


@pytest.mark.parametrize("turns", range(5))
async def test_a_cancelled_pause_ends_although_the_session_changes_at_the_same_moment(turns: int) -> None:
    """A swallowed cancellation leaves the controller's task running when the broker stops or is killed."""
    session = TermSession(cast("ZooKeeperClient", SimpleNamespace(session_id=1)), seeded())
    pausing = asyncio.create_task(session.pause())
    for _ in range(3):
        await asyncio.sleep(0)
    session.on_state()
    for _ in range(turns):
        await asyncio.sleep(0)
    if not pausing.done():
        pausing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pausing
