"""Checks ask again where a broker has just lost its connection to the coordination engine."""

import pytest

from kalda.clients.errors import BrokerResponseError
from kalda.common.errors import ErrorCode
from kalda.simulation.workloads.reading import describe
from tests.virtual_time import run_virtual


class Broker:
    """Answers with these codes, one after the other, and then with no error."""

    def __init__(self, *codes: ErrorCode) -> None:
        self.codes = list(codes)

    async def ask(self) -> str:
        if self.codes:
            raise BrokerResponseError(self.codes.pop(0), "describe quotas")
        return "quotas"


def test_a_broker_that_reconnects_is_asked_again() -> None:
    assert "quotas" == run_virtual(describe(Broker(*[ErrorCode.REQUEST_TIMED_OUT] * 3).ask))


def test_a_broker_that_never_reconnects_is_a_failure() -> None:
    with pytest.raises(BrokerResponseError):
        run_virtual(describe(Broker(*[ErrorCode.REQUEST_TIMED_OUT] * 100).ask))


def test_other_errors_are_failures_at_once() -> None:
    broker = Broker(ErrorCode.UNKNOWN_SERVER_ERROR)
    with pytest.raises(BrokerResponseError):
        run_virtual(describe(broker.ask))
    assert [] == broker.codes
