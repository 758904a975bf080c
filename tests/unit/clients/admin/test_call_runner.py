from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from kalda.clients.admin.call_runner import AdminCallRunner
from kalda.clients.admin.topic_calls import DeleteTopics
from kalda.clients.metadata import ClusterMetadata, Metadata
from kalda.clients.network_client import NetworkClient
from kalda.clients.retry import ExponentialBackoff
from kalda.common.api_keys import ApiKey
from kalda.common.clock import ManualClock
from kalda.common.errors import ErrorCode
from kalda.common.types import BrokerEndpoint
from kalda.net.client.api_versions import NodeApiVersions
from kalda.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from kalda.protocol.schema import VersionRange


async def test_a_controller_that_is_none_any_more_is_looked_up_again() -> None:
    """Its connection is fine, so nothing else would renew the metadata within the time of the call."""
    metadata = Metadata()
    endpoints = {number: BrokerEndpoint(number, "localhost", 9092 + number) for number in (1, 2)}
    metadata.snapshot = ClusterMetadata(1, "c", 1, endpoints, {})

    def refreshed() -> None:
        metadata.snapshot = replace(metadata.snapshot, controller_id=2)

    metadata.on_update_requested = refreshed
    asked: list[int] = []

    async def ready(node_id: int, **_: object) -> NodeApiVersions:
        return NodeApiVersions("b", {ApiKey.DELETE_TOPICS: VersionRange(0, 6)}, {})

    async def send(node_id: int, *_: object, **__: object) -> DeleteTopicsResponse:
        asked.append(node_id)
        code = ErrorCode.NONE if node_id == 2 else ErrorCode.NOT_CONTROLLER
        return DeleteTopicsResponse(responses=[DeletableTopicResult(name="t", error_code=code)])

    client: Any = SimpleNamespace(
        metadata=metadata,
        clock=ManualClock(),
        retry_backoff=ExponentialBackoff(0, 0),
        is_closed=False,
        ready=ready,
        send=send,
    )
    runner = AdminCallRunner(
        cast(NetworkClient, client), default_timeout_ms=1_000, request_timeout_ms=1_000, retries_max=10
    )

    deleted = await runner.run(DeleteTopics(), ["t"])

    assert {"t": None} == dict(deleted)
    assert [1, 2] == asked
