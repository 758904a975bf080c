"""What ends the heartbeats of a flow, and the settings of their producer."""

import threading

import pytest

from kalda.clients.errors import BrokerConnectionError, ClientConfigError
from kalda.pipelines.mirror_maker2 import heartbeats
from kalda.pipelines.mirror_maker2.flow_file import parse_flows
from kalda.pipelines.mirror_maker2.heartbeats import Heartbeats


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


def test_a_stop_does_not_wait_for_a_cluster_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    may_go_on = threading.Event()

    def connect(_: Heartbeats) -> None:
        may_go_on.wait(30)

    monkeypatch.setattr(heartbeats, "_STOP_WAIT_S", 0.0)
    monkeypatch.setattr(Heartbeats, "_run", connect)
    made = beats()
    made.start()
    made.stop(30)

    assert made.is_active
    may_go_on.set()
    made._thread.join(30)
    assert not made.is_active
