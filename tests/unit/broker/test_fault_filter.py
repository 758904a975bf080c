"""Which requests a fault filter looks into."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kalda.broker.requests.api import ApiHandler
from kalda.broker.requests.fault_filter import FaultFilter
from kalda.common.api_keys import ApiKey
from kalda.common.types import UUID
from kalda.faults import FaultPlan
from kalda.faults.state import FaultState
from kalda.net.client.api_versions import BROKER_SOFTWARE_NAME
from kalda.net.connection import Connection
from kalda.net.frame_filters import Answer, Pass, ReplaceRequest
from kalda.protocol import codec
from kalda.protocol.headers import RequestHeader
from kalda.protocol.messages.fetch import FetchRequest, FetchResponse

VERSION = 12


class _Names:
    def topic_name(self, topic_id: UUID) -> str | None:
        return None

    def topic_id(self, name: str) -> UUID:
        return UUID(int=0)


def _fetch(plan: str, software: str, session_id: int, session_epoch: int) -> object:
    """Pass a Fetch request to a filter; return what the filter does with it."""
    handler = SimpleNamespace(
        key=ApiKey.FETCH,
        versions=(4, 18),
        refusal=lambda request, code, version: FetchResponse(error_code=code),
    )
    state = FaultState(FaultPlan.parse(plan), cast(Any, SimpleNamespace(random=lambda: 0.0)))
    faults = FaultFilter(state, [cast(ApiHandler, handler)], broker_id=0, names=_Names())
    head = b"head"
    request = FetchRequest(session_id=session_id, session_epoch=session_epoch)
    frame = memoryview(head + codec.encode(request, VERSION))
    connection = cast(
        Connection, SimpleNamespace(software=(software, "1"), listener="PLAINTEXT", peer="peer")
    )
    return faults.on_request(connection, RequestHeader(ApiKey.FETCH, VERSION, 1, "c"), len(head), frame)


@pytest.mark.parametrize("plan", ["fetch:NOT_LEADER_OR_FOLLOWER,topic=a", "fetch:delay=1s,topic=a"])
def test_fetch_sessions_of_brokers_outlast_faults_of_clients(plan: str) -> None:
    """A cluster would else copy by full requests because some clients have errors."""
    assert Pass() == _fetch(plan, BROKER_SOFTWARE_NAME, 7, 3)


def test_clients_have_no_fetch_sessions_while_a_plan_has_errors_for_their_fetches() -> None:
    plan = "fetch:NOT_LEADER_OR_FOLLOWER,topic=a"

    assert isinstance(_fetch(plan, "kalda", 7, 3), Answer)
    assert isinstance(_fetch(plan, "kalda", 0, 0), ReplaceRequest)


@pytest.mark.parametrize("source", ["brokers", "all"])
def test_brokers_have_no_fetch_sessions_while_a_plan_has_errors_for_theirs(source: str) -> None:
    plan = f"fetch:NOT_LEADER_OR_FOLLOWER,topic=a,from={source}"

    assert isinstance(_fetch(plan, BROKER_SOFTWARE_NAME, 7, 3), Answer)
    assert isinstance(_fetch(plan, "kalda", 7, 3), Pass if source == "brokers" else Answer)
