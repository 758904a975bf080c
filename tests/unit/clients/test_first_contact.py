"""What a client says and does while no broker has ever answered it, in virtual time."""

import asyncio
import logging

import pytest

from kalda.clients.config.common_config import CommonClientConfig
from kalda.clients.errors import BootstrapError, BrokerConnectionError
from kalda.clients.first_contact import FirstContact
from tests.virtual_time import run_virtual

DEAD = BrokerConnectionError("no connection to b:1: Connection refused")
LOGGER = "kalda.clients.first_contact"


def contact(wait_ms: int = -1) -> FirstContact:
    """The contact of a client with one bootstrap server."""
    return FirstContact(
        CommonClientConfig.from_options({"bootstrap_servers": "b:1", "bootstrap_wait_ms": wait_ms})
    )


async def fail() -> str:
    """No broker is there."""
    raise DEAD


async def answer(seconds: float = 0.0) -> str:
    """A broker answers."""
    await asyncio.sleep(seconds)
    return "answer"


def test_a_client_waits_for_its_brokers_by_default_and_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    """Programs start before their brokers, and a wrong address looks the same."""

    async def main() -> None:
        first = contact()
        for _ in range(3):
            with pytest.raises(BrokerConnectionError, match="Connection refused"):
                await first.attempt(fail())
            await asyncio.sleep(60)
        assert "answer" == await first.attempt(answer(5))

    with caplog.at_level(logging.WARNING, LOGGER):
        run_virtual(main())
    (line,) = caplog.messages
    assert line.startswith("No broker of `bootstrap.servers`=b:1 answers: no connection to b:1: Connection")
    assert "`kalda start`" in line


def test_a_broker_that_is_silent_for_a_second_is_reported_too(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        assert "answer" == await contact().attempt(answer(1.5))

    with caplog.at_level(logging.WARNING, LOGGER):
        run_virtual(main())
    assert ["no answer yet"] == [line.split(": ")[1].split(".")[0] for line in caplog.messages]


def test_a_broker_that_answers_within_a_second_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, LOGGER):
        assert "answer" == run_virtual(contact().attempt(answer(0.9)))
    assert [] == caplog.messages


def test_a_client_that_is_not_to_wait_fails_with_the_address_the_reason_and_the_remedy() -> None:
    expected = r"`bootstrap\.servers`=b:1 answers: .* refused; .*`kalda start`"
    with pytest.raises(BootstrapError, match=expected) as caught:
        run_virtual(contact(0).attempt(fail()))
    assert caught.value.__cause__ is DEAD
    assert not caught.value.is_retriable


def test_a_limited_wait_ends_after_its_time() -> None:
    async def main() -> None:
        first = contact(500)
        with pytest.raises(BrokerConnectionError):
            await first.attempt(fail())
        await asyncio.sleep(0.6)
        with pytest.raises(BootstrapError):
            await first.attempt(fail())

    run_virtual(main())


def test_a_broker_that_answered_once_may_restart() -> None:
    """Only a client that was never connected gives up."""

    async def main() -> None:
        first = contact(0)
        assert "answer" == await first.attempt(answer())
        await asyncio.sleep(60)
        with pytest.raises(BrokerConnectionError, match="Connection refused"):
            await first.attempt(fail())

    run_virtual(main())
