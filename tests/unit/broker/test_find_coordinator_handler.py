"""FindCoordinator: a live broker for every group, a final error for what is not built."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kalda.broker.handlers.find_coordinator import error_response, handle
from kalda.common.errors import ErrorCode
from kalda.protocol.messages.find_coordinator import (
    KEY_TYPE_SHARE,
    KEY_TYPE_TRANSACTION,
    FindCoordinatorRequest,
)
from tests.unit.broker.data_path_fakes import DataPath, leadership


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[DataPath]:
    path = DataPath(tmp_path)
    path.host(leadership())
    yield path
    path.close()


def test_a_group_has_a_live_broker_for_coordinator_and_always_the_same(broker: DataPath) -> None:
    cache = broker.services.metadata_cache
    first = handle(broker.services, FindCoordinatorRequest(key="g"), broker.context(3))
    assert 0 == first.error_code
    found = cache.endpoint(first.node_id, "PLAINTEXT")
    assert found is not None
    assert (found.host, found.port) == (first.host, first.port)
    assert first == handle(broker.services, FindCoordinatorRequest(key="g"), broker.context(3))


def test_many_groups_are_answered_each_and_spread(broker: DataPath) -> None:
    keys = [f"group-{number}" for number in range(30)]
    request = FindCoordinatorRequest(coordinator_keys=keys)
    found = handle(broker.services, request, broker.context(4)).coordinators
    assert [(key, 0) for key in keys] == [(each.key, each.error_code) for each in found]
    assert set(broker.services.metadata_cache.brokers) == {each.node_id for each in found}


@pytest.mark.parametrize(
    ("key_type", "expected"),
    [
        (KEY_TYPE_TRANSACTION, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (KEY_TYPE_SHARE, ErrorCode.INVALID_REQUEST),
        (9, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_not_built_is_refused_for_good(broker: DataPath, key_type: int, expected: ErrorCode) -> None:
    """A retriable error would keep a client waiting for its whole time-out."""
    request = FindCoordinatorRequest(key="k", key_type=key_type)
    response = handle(broker.services, request, broker.context(3))
    assert (expected, -1) == (response.error_code, response.node_id)
    assert not expected.retriable


def test_an_unknown_listener_has_no_coordinator(broker: DataPath) -> None:
    broker.connection.listener = "OTHER"
    response = handle(broker.services, FindCoordinatorRequest(key="g"), broker.context(3))
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE == response.error_code


def test_an_error_is_told_in_the_form_that_was_asked() -> None:
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    many = error_response(FindCoordinatorRequest(coordinator_keys=["a"]), code)
    assert [("a", code)] == [(each.key, each.error_code) for each in many.coordinators]
    assert code == error_response(FindCoordinatorRequest(key="a"), code).error_code
