"""What the tests of the driver share."""

from collections.abc import AsyncIterator

import pytest

from kalda.controller import channel_manager, term_session
from tests.unit.controller.stage import Stage


@pytest.fixture
async def stage(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    monkeypatch.setattr(term_session, "RETRY_SECONDS", 0)
    monkeypatch.setattr(channel_manager, "_BACKOFF_MS", (0, 0))
    stage = Stage()
    yield stage
    for node in stage.nodes:
        await node.stop()
