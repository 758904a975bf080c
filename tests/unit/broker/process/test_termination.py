"""How a process is asked to end."""

import asyncio
import signal

import pytest

from kalda.broker.process.lifecycle import Termination, TerminationRequestedError


async def test_a_first_signal_asks_and_a_second_hurries() -> None:
    termination = Termination()
    termination._on_signal(signal.SIGTERM)
    assert (True, False) == (termination.is_requested, termination.hurried.is_set())
    assert await termination.wait() is None
    termination._on_signal(signal.SIGTERM)
    assert termination.hurried.is_set()


async def test_a_fault_is_the_reason_and_the_first_one_counts() -> None:
    termination = Termination()
    fault = OSError("the disk")
    termination.request(fault)
    termination.request()
    assert fault is await termination.wait()


async def test_a_start_that_lasts_is_given_up() -> None:
    """SIGTERM during a start must not wait for coordination that never answers."""
    termination = Termination()
    is_undone = False

    async def start() -> None:
        nonlocal is_undone
        try:
            await asyncio.Event().wait()
        finally:
            is_undone = True

    termination.request()
    with pytest.raises(TerminationRequestedError):
        await termination.unless_requested(start())
    assert is_undone


async def test_a_start_that_ends_in_time_returns_and_raises() -> None:
    termination = Termination()

    async def good() -> int:
        return 7

    async def bad() -> int:
        raise OSError("taken")

    assert 7 == await termination.unless_requested(good())
    with pytest.raises(OSError, match="taken"):
        await termination.unless_requested(bad())
