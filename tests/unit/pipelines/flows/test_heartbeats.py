"""What ends the heartbeats of a flow, and the settings of their producer."""

import pytest

from kalda.clients.errors import BrokerConnectionError, ClientConfigError
from kalda.pipelines.flows import heartbeats
from kalda.pipelines.flows.flow_file import parse_flows
from kalda.pipelines.flows.heartbeats import Heartbeats


def beats(*settings: str) -> Heartbeats:
    lines = {
        "clusters": "A,B",
        "A.bootstrap.servers": "127.0.0.1:1",
        "B.bootstrap.servers": "127.0.0.1:1",
        "A->B.enabled": "true",
    }
    flow = parse_flows(lines | dict(each.split("=") for each in settings)).flows[0]
    assert flow.heartbeats is not None
    return Heartbeats(flow, flow.heartbeats)


def test_what_another_try_repeats_ends_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command ends with an exit code of its own then; it tried for ever."""
    errors = [BrokerConnectionError("away"), ClientConfigError("wrong")]

    def fail(_: Heartbeats) -> None:
        raise errors.pop(0)

    monkeypatch.setattr(heartbeats, "_BACKOFF_S", 0.0)
    monkeypatch.setattr(Heartbeats, "_run", fail)
    made = beats()
    made.start()
    made._thread.join(30)

    assert (False, "wrong", []) == (made.is_active, str(made.error), errors)


def test_timeouts_of_the_file_are_not_mixed_with_others() -> None:
    """A `request.timeout.ms` of 30 s does not fit into a delivery of 20 s."""
    given = beats("B.producer.request.timeout.ms=30000")._producer_settings()

    assert "20000" == beats()._producer_settings()["delivery.timeout.ms"]
    assert ("30000", None) == (given["request.timeout.ms"], given.get("delivery.timeout.ms"))
