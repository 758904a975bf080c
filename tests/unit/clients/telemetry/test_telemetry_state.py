from uuid import UUID

import pytest

from kalda.clients.telemetry.telemetry_state import (
    DEFAULT_INTERVAL_S,
    ClientTelemetryState,
    Push,
    TelemetryState,
)
from kalda.common.errors import ErrorCode
from kalda.common.types import ZERO_UUID
from kalda.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from kalda.records.compression import Compression

ME = UUID(int=77)


def subscription(
    *,
    instance_id: UUID = ME,
    interval_ms: int = 10_000,
    metrics: tuple[str, ...] = ("*",),
    codecs: tuple[int, ...] = (4, 3),
    is_delta: bool = True,
    error: ErrorCode = ErrorCode.NONE,
) -> GetTelemetrySubscriptionsResponse:
    return GetTelemetrySubscriptionsResponse(
        error_code=error,
        client_instance_id=instance_id,
        subscription_id=5,
        accepted_compression_types=list(codecs),
        push_interval_ms=interval_ms,
        telemetry_max_bytes=1000,
        delta_temporality=is_delta,
        requested_metrics=list(metrics),
    )


@pytest.fixture
def state() -> ClientTelemetryState:
    return ClientTelemetryState(lambda low, high: high)


def test_the_subscription_comes_first_and_the_first_push_is_spread(state: ClientTelemetryState) -> None:
    assert 0.0 == state.due_in(0.0)
    assert GetTelemetrySubscriptionsRequest(client_instance_id=ZERO_UUID) == state.next_request()

    assert not state.subscribed(subscription(), 100.0)

    assert 15.0 == state.due_in(100.0)
    push = state.next_request()
    assert isinstance(push, Push)
    assert (ME, 5, Compression.ZSTD, 1000, False) == (
        push.subscription.client_instance_id,
        push.subscription.subscription_id,
        push.subscription.compression,
        push.subscription.bytes_max,
        push.is_terminating,
    )
    state.pushed(ErrorCode.NONE, 115.0)
    assert 10.0 == state.due_in(115.0)


def test_a_subscription_to_nothing_is_asked_again(state: ClientTelemetryState) -> None:
    state.subscribed(subscription(metrics=()), 0.0)

    assert 10.0 == state.due_in(0.0)
    assert GetTelemetrySubscriptionsRequest(client_instance_id=ME) == state.next_request()


def test_codecs_that_are_not_known_here_are_passed_over(state: ClientTelemetryState) -> None:
    chosen = []
    for codecs in ((9, 2), ()):
        state.subscribed(subscription(codecs=codecs), 0.0)
        assert state.subscription is not None
        chosen.append(state.subscription.compression)
        state.pushed(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, 1.0)

    assert [Compression.SNAPPY, Compression.NONE] == chosen


def test_a_bad_interval_is_replaced(state: ClientTelemetryState) -> None:
    state.subscribed(subscription(interval_ms=0, metrics=()), 0.0)

    assert DEFAULT_INTERVAL_S == state.due_in(0.0)


def test_an_unknown_subscription_is_asked_for_at_once_but_not_for_ever(state: ClientTelemetryState) -> None:
    """Brokers that do not agree about a subscription must not be asked in a tight loop."""
    waits = []
    for _ in range(4):
        state.subscribed(subscription(), 0.0)
        state.pushed(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, 0.0)
        waits.append(state.due_in(0.0))

    assert [0.0, 0.0, 0.0, 10.0] == waits
    assert GetTelemetrySubscriptionsRequest(client_instance_id=ME) == state.next_request()


@pytest.mark.parametrize("code", [ErrorCode.TELEMETRY_TOO_LARGE, ErrorCode.THROTTLING_QUOTA_EXCEEDED])
def test_too_much_is_tried_after_the_interval(state: ClientTelemetryState, code: ErrorCode) -> None:
    state.subscribed(subscription(error=code), 0.0)
    assert DEFAULT_INTERVAL_S == state.due_in(0.0)
    state.subscribed(subscription(), 0.0)

    state.pushed(code, 0.0)

    assert 10.0 == state.due_in(0.0)
    assert TelemetryState.SUBSCRIPTION_NEEDED is state.state


@pytest.mark.parametrize(
    "code", [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_RECORD, ErrorCode.UNKNOWN_SERVER_ERROR]
)
def test_other_errors_end_telemetry(state: ClientTelemetryState, code: ErrorCode) -> None:
    state.subscribed(subscription(error=code), 0.0)

    assert state.due_in(0.0) is None


def test_a_broker_that_assigns_no_id_ends_telemetry(state: ClientTelemetryState) -> None:
    state.subscribed(subscription(instance_id=ZERO_UUID), 0.0)

    assert state.due_in(0.0) is None


def test_the_id_is_kept_when_a_later_response_has_none(state: ClientTelemetryState) -> None:
    """KIP-714: a broker assigns an id only to a client that has none."""
    state.subscribed(subscription(metrics=()), 0.0)

    state.subscribed(subscription(instance_id=ZERO_UUID), 10.0)

    assert state.subscription is not None
    assert ME == state.subscription.client_instance_id


def test_a_change_of_temporality_is_noted(state: ClientTelemetryState) -> None:
    state.subscribed(subscription(is_delta=True), 0.0)
    state.unanswered(0.0)

    assert DEFAULT_INTERVAL_S == state.due_in(0.0)
    assert state.subscribed(subscription(is_delta=False), 0.0)


def test_closing_pushes_a_last_time(state: ClientTelemetryState) -> None:
    state.subscribed(subscription(), 0.0)
    state.close()

    push = state.next_request()

    assert 0.0 == state.due_in(0.0)
    assert isinstance(push, Push)
    assert push.is_terminating
    state.pushed(ErrorCode.NONE, 0.0)
    assert state.due_in(0.0) is None


def test_a_last_push_that_fails_is_not_repeated(state: ClientTelemetryState) -> None:
    state.subscribed(subscription(), 0.0)
    state.close()

    state.unanswered(0.0)

    assert state.due_in(0.0) is None


def test_closing_without_a_subscription_pushes_nothing(state: ClientTelemetryState) -> None:
    state.close()

    assert state.due_in(0.0) is None
    state.subscribed(subscription(), 0.0)
    state.unanswered(0.0)
    assert state.due_in(0.0) is None
