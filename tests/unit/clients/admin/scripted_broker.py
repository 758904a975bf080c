"""Runs an admin operation without sockets, against a function that answers requests."""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from kalda.clients.admin.admin_call import AdminCall, AdminOperation, RequestContext
from kalda.clients.admin.outcomes import Outcomes
from kalda.clients.errors import ClientError
from kalda.common.api_keys import ApiKey
from kalda.net.client.api_versions import NodeApiVersions
from kalda.protocol import codec, registry
from kalda.protocol.schema import Message, VersionRange

K = TypeVar("K")
V = TypeVar("V")

BROKER_ID = 5
Answer = Callable[[Message], Message]


def all_versions(**highest: int | None) -> NodeApiVersions:
    """What a broker offers: everything that Kalda declares, up to `highest`; None leaves an API out."""
    limits: Mapping[str, int | None] = highest
    ranges = {}
    for api_key in registry.declared_keys():
        limit = limits.get(ApiKey(api_key).name.lower(), registry.spec(api_key).versions.highest)
        if limit is not None:
            ranges[int(api_key)] = VersionRange(0, limit)
    return NodeApiVersions("broker:9092", ranges, {})


def run(
    operation: AdminOperation[K, V],
    keys: Iterable[K],
    answer: Answer,
    versions: NodeApiVersions | None = None,
) -> Outcomes[K, V]:
    """Run the rounds of a call. Each request and response passes through the codec, in the right version."""
    offered = all_versions() if versions is None else versions
    now = 0.0
    call = AdminCall(operation, keys, now=now, timeout_ms=60_000, backoff=lambda _failures: 1.0)
    context = RequestContext(BROKER_ID, offered, 30_000)
    while not call.is_done:
        dispatches = call.due(now)
        for dispatch in dispatches:
            if dispatch.target is None:
                call.located(dict.fromkeys(dispatch.keys, BROKER_ID), now)
                continue
            try:
                requests = call.prepare(dispatch, context)
            except ClientError as error:
                call.failed(dispatch.keys, error, now, was_sent=False)
                continue
            for request in requests:
                api_key = request.message.SCHEMA.api_key
                assert api_key is not None
                version = offered.latest(api_key, request.version_max)
                response = answer(through_codec(request.message, version))
                call.received(request, through_codec(response, version), now, "broker 1 (h:9092)")
        if not dispatches:
            now = call.next_due()
            call.expire(now)
    return call.outcomes()


def through_codec(message: Message, version: int) -> Message:
    """Encode and decode a message: what the version cannot carry is refused or lost, as on the wire."""
    return codec.decode(type(message), version, codec.encode(message, version))


def no_answer(message: Message) -> Message:
    """Answer nothing: for operations that fail without a request."""
    raise AssertionError(f"nothing should be sent, got {message!r}")
