"""Whether a broker can serve clients."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kalda.broker.context.health import BrokerHealth, BrokerState
from kalda.broker.metadata.registration import RegistrationState


@pytest.mark.parametrize(
    ("state", "registration", "reason"),
    [
        (BrokerState.STARTING, RegistrationState.REGISTERED, "starting"),
        (BrokerState.RUNNING, RegistrationState.REGISTERED, None),
        (BrokerState.RUNNING, RegistrationState.OUT_OF_REACH, None),
        (BrokerState.RUNNING, RegistrationState.NOT_REGISTERED, "not registered"),
        (BrokerState.PENDING_CONTROLLED_SHUTDOWN, RegistrationState.REGISTERED, "shutting down"),
        (BrokerState.SHUTTING_DOWN, RegistrationState.WITHDRAWN, "shutting down"),
    ],
)
def test_a_broker_is_ready_while_it_serves(
    state: BrokerState, registration: RegistrationState, reason: str | None
) -> None:
    registered = SimpleNamespace(state=registration, engine_name="ZooKeeper")
    health = BrokerHealth(cast("Any", registered))
    health.state = state
    found = health.unready_reason()
    assert reason == (None if found is None else found.split(":")[0])
