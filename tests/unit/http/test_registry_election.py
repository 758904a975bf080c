"""The lease of the writer: a change waits for a heartbeat that is late, and not for one that never comes."""

import asyncio
from typing import Any, cast

from kalda.http.registry.election import Election
from kalda.http.registry.identity import Identity
from kalda.http.settings import RegistrySettings


async def _nothing() -> None:
    """Nothing is under way."""


def _writer() -> Election:
    """An election that has made this process the writer, whose lease has ended."""
    election = Election(cast("Any", None), RegistrySettings(), Identity("127.0.0.1", 8081, True), _nothing)
    vars(election)["_is_writer"] = True
    assert not election.is_writer
    return election


async def test_a_change_waits_for_the_heartbeat_of_the_writer() -> None:
    election = _writer()
    waiting = asyncio.create_task(election.is_writer_again(60))
    await asyncio.sleep(0)
    election._extend_lease(asyncio.get_running_loop().time())
    assert await waiting


async def test_a_change_does_not_wait_for_a_writer_that_was_replaced() -> None:
    election = _writer()
    waiting = asyncio.create_task(election.is_writer_again(60))
    await asyncio.sleep(0)
    await election._step_back()
    assert not await waiting
    assert not await election.is_writer_again(60), "nobody comes to wake it"
