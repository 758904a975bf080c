"""Serves ``POST /v1/topics/{topic}``."""

from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from kalda.clients.errors import ClientError
from kalda.clients.producer.async_producer import AsyncProducer
from kalda.clients.producer.record_future import RecordFuture
from kalda.http.background import Background
from kalda.http.callers import Callers
from kalda.http.errors import HttpError, status_of
from kalda.http.gateway.access import TopicAccess
from kalda.http.gateway.cloud_events import InvalidEventError
from kalda.http.gateway.parameters import InvalidParameterError
from kalda.http.gateway.writes.idempotency_keys import check_key, fingerprint
from kalda.http.gateway.writes.ledger import Ledger
from kalda.http.gateway.writes.outgoing import InvalidBodyError, OutgoingRecord, read_records
from kalda.security.acl.model import AclOperation

INLINE_BYTES: Final = 64 * 1024
"""Up to this size, records are read on the event loop."""


class WriteEndpoint:
    """Writes the records of requests.

    A request with an ``Idempotency-Key`` is written as a whole or not at all, by the process after the
    caller's right was checked. Others are written by the caller's own producer, each record for itself.
    """

    def __init__(self, callers: Callers, access: TopicAccess, ledger: Ledger, background: Background) -> None:
        self._background: Final = background
        self._callers: Final = callers
        self._access: Final = access
        self._ledger: Final = ledger

    async def post(self, request: Request) -> Response:
        """Answer a POST with the place of each record, or its error."""
        topic = request.path_params["topic"]
        caller = self._callers.of(request)
        if caller.is_read_only:
            raise HttpError(403, "requests without credentials only read; send a user and a password")
        try:
            key = request.headers.get("idempotency-key")
            if key is not None:
                check_key(key)
            description = await self._access.check(caller, topic, AclOperation.WRITE)
            body = await request.body()
            pairs = request.query_params.multi_items()
            if len(body) <= INLINE_BYTES:
                records = read_records(body, request.headers, pairs)
            else:
                records = await self._background.compute(read_records, body, request.headers, pairs)
        except (InvalidParameterError, InvalidBodyError, InvalidEventError) as error:
            raise HttpError(400, str(error)) from None
        partitions = len(description.partitions)
        for number, record in enumerate(records):
            if record.partition is not None and record.partition >= partitions:
                raise HttpError(
                    422,
                    f"records[{number}] is for partition {record.partition}; topic {topic} has {partitions}",
                )
        if key is not None:
            print_of_request = fingerprint(topic, request.url.query, request.headers.items(), body)
            answer = await self._ledger.write(caller.principal, topic, key, print_of_request, records)
            return Response(answer.body, media_type="application/json")
        return await _write(await caller.producer(), topic, records)


async def _write(
    producer: "AsyncProducer[bytes, bytes]", topic: str, records: list[OutgoingRecord]
) -> Response:
    sent: list[RecordFuture | Exception] = []
    for each in records:
        try:
            sent.append(
                await producer.send(
                    topic, each.value, each.key, each.headers, each.partition, each.timestamp_ms
                )
            )
        except (ClientError, ValueError, TypeError) as error:
            sent.append(error)
    results = [await _result(each) for each in sent]
    errors = [result["error"] for result in results if "error" in result]
    if not errors:
        status = 200
    elif len(errors) == len(results):
        status = errors[0]["status"]
    else:
        status = 207
    return JSONResponse({"records": results}, status)


async def _result(sent: RecordFuture | Exception) -> Mapping[str, Any]:
    error: Exception
    if isinstance(sent, Exception):
        error = sent
    else:
        try:
            written = await sent
            return {
                "partition": written.partition,
                "offset": written.offset,
                "timestamp": written.timestamp_ms,
            }
        except ClientError as failure:
            error = failure
    status = status_of(error) if isinstance(error, ClientError) else 422
    return {"error": {"status": status, "message": str(error)}}
