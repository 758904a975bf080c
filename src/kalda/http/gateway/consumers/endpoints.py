"""Serves consumers of groups: ``/v1/groups/{group}/consumers``.

A consumer lives in the process that made it, because a member of a group is one connection. Its id names that
process; another one answers 421 with the address. A consumer that was not used for a while leaves its group.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from kalda.clients.errors import ClientConfigError, ClientError
from kalda.common.received_json import loads_body
from kalda.common.types import TopicPartition
from kalda.http.callers import Caller, Callers
from kalda.http.errors import HttpError
from kalda.http.gateway.access import TopicAccess
from kalda.http.gateway.consumers.group_consumer import GroupConsumer
from kalda.http.gateway.parameters import InvalidParameterError, read_int, read_word
from kalda.http.gateway.streams.event_ids import OFFSET_MAX, PARTITION_MAX
from kalda.http.gateway.streams.rendering import Format, render_record
from kalda.security.acl.model import AclOperation

logger: Final = logging.getLogger(__name__)

RECORDS_MAX: Final = 5_000
RECORDS_DEFAULT: Final = 500
TIMEOUT_MS_MAX: Final = 60_000
TIMEOUT_MS_DEFAULT: Final = 5_000
IDLE_MS_DEFAULT: Final = 120_000
UNACKED_DEFAULT: Final = 10_000
TOPICS_MAX: Final = 100
ACKS_MAX: Final = 10_000
GROUP_CHARACTERS_MAX: Final = 255
SWEEP_SECONDS: Final = 1.0

_NEW: Final = ("topics", "auto_offset_reset", "isolation", "idle_timeout_ms", "unacked_max")


class ConsumerEndpoints:
    """The consumers of one process.

    Args:
        callers: Who sends requests.
        access: What callers may do.
        consumers_max: How many consumers there may be.
        address: ``HOST:PORT`` under which clients reach this process; None if that is not known.
    """

    def __init__(
        self, callers: Callers, access: TopicAccess, consumers_max: int, address: str | None
    ) -> None:
        self._callers: Final = callers
        self._access: Final = access
        self._consumers_max: Final = consumers_max
        self._instance: Final = secrets.token_hex(4)
        self._address: Final = address
        self._consumers: Final[dict[str, GroupConsumer]] = {}
        self._sweeper: asyncio.Task[None] | None = None

    @property
    def count(self) -> int:
        """How many consumers there are."""
        return len(self._consumers)

    async def create(self, request: Request) -> Response:
        """Answer a POST that makes a consumer."""
        group = request.path_params["group"]
        caller = self._caller(request)
        if not group.strip() or len(group) > GROUP_CHARACTERS_MAX or not group.isprintable():
            raise HttpError(400, f"group {group!r:.80} is not allowed: 1 to 255 printable characters")
        given = _document(await request.body())
        for name in given:
            if name not in _NEW:
                raise HttpError(400, f"{name!r:.80} is no field; the fields are {', '.join(_NEW)}")
        topics = given.get("topics")
        if (
            not isinstance(topics, list)
            or not 0 < len(topics) <= TOPICS_MAX
            or not all(isinstance(each, str) and each for each in topics)
        ):
            raise HttpError(400, f"topics is no array of 1 to {TOPICS_MAX} names")
        idle_ms = _number(given, "idle_timeout_ms", IDLE_MS_DEFAULT, 1_000, 3_600_000)
        unacked_max = _number(given, "unacked_max", UNACKED_DEFAULT, 1, 1_000_000)
        if len(self._consumers) >= self._consumers_max:
            raise HttpError(
                503, f"there are {len(self._consumers)} consumers, the limit (`http.consumers.max`)"
            )
        for topic in topics:
            await self._access.check(caller, topic, AclOperation.READ)
        consumer_id = f"{self._instance}-{secrets.token_hex(8)}"
        try:
            consumer = caller.consumer(
                group_id=group,
                auto_offset_reset=str(given.get("auto_offset_reset", "earliest")),
                isolation_level=str(given.get("isolation", "read_committed")),
                enable_auto_commit="false",
                allow_auto_create_topics="false",
                # The member leaves by itself before the group removes it.
                max_poll_interval_ms=str(idle_ms + 60_000),
                partition_assignment_strategy="cooperative-sticky,range",
                client_id=f"kalda-http-{consumer_id}",
            )
        except ClientConfigError as error:
            raise HttpError(400, str(error)) from None
        made = GroupConsumer(consumer_id, caller.principal, topics, consumer, idle_ms / 1000, unacked_max)
        self._consumers[consumer_id] = made
        try:
            await made.start()
        except BaseException:
            del self._consumers[consumer_id]
            await made.close()
            raise
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep(), name="idle consumers")
        path = f"/v1/groups/{group}/consumers/{consumer_id}"
        location = path if self._address is None else f"{request.url.scheme}://{self._address}{path}"
        return JSONResponse(
            {"id": consumer_id, "group": group, "idle_timeout_ms": idle_ms, "location": location},
            201,
            headers={"Location": location.encode("ascii", "replace").decode()},
        )

    async def records(self, request: Request) -> Response:
        """Answer a GET with the next records."""
        made = await self._find(request)
        try:
            query = _query(request, ("max", "timeout_ms", "key_format", "value_format"))
            records_max = read_int("max", query.get("max", str(RECORDS_DEFAULT)), 1, RECORDS_MAX)
            wait = query.get("timeout_ms", str(TIMEOUT_MS_DEFAULT))
            timeout_ms = read_int("timeout_ms", wait, 0, TIMEOUT_MS_MAX)
            words = [each.value for each in (Format.AUTO, Format.JSON, Format.TEXT, Format.BINARY)]
            formats = [
                Format(read_word(name, query.get(name, "auto"), words))
                for name in ("key_format", "value_format")
            ]
        except InvalidParameterError as error:
            raise HttpError(400, str(error)) from None
        records = await made.poll(records_max, timeout_ms / 1000)
        rendered = [
            f'{{"ack":{json.dumps(f"{each.topic}/{each.partition}/{each.offset}")},'
            f"{render_record(each, *formats)[1:]}"
            for each in records
        ]
        return Response(f'{{"records":[{",".join(rendered)}]}}', media_type="application/json")

    def topics_of(self, request: Request) -> Sequence[str]:
        """Return the topics of a request's consumer; none if it does not live here."""
        made = self._consumers.get(request.path_params["consumer"])
        return () if made is None else made.topics

    async def acknowledge(self, request: Request) -> Response:
        """Answer a POST of acknowledgements with what is committed."""
        made = await self._find(request)
        acks = _document(await request.body()).get("acks")
        if not isinstance(acks, list) or len(acks) > ACKS_MAX:
            raise HttpError(400, f"acks is no array of at most {ACKS_MAX} texts such as orders/0/41")
        lost, offsets = await made.acknowledge([_place(each) for each in acks])
        return JSONResponse(
            {
                "committed": {f"{each.topic}/{each.partition}": at for each, at in offsets.items()},
                "lost": [f"{each.topic}/{each.partition}/{at}" for each, at in lost],
            }
        )

    async def renew(self, request: Request) -> Response:
        """Answer a POST that keeps a consumer."""
        (await self._find(request)).renew()
        return Response(status_code=204)

    async def delete(self, request: Request) -> Response:
        """Answer a DELETE."""
        made = await self._find(request)
        self._consumers.pop(made.id, None)
        await made.close()
        return Response(status_code=204)

    async def close(self) -> None:
        """Have all consumers leave their groups."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        consumers = list(self._consumers.values())
        self._consumers.clear()
        await asyncio.gather(*(each.close() for each in consumers), return_exceptions=True)

    def _caller(self, request: Request) -> Caller:
        caller = self._callers.of(request)
        if caller.is_read_only:
            raise HttpError(403, "a consumer changes its group's offsets, which needs a user and a password")
        return caller

    async def _find(self, request: Request) -> GroupConsumer:
        consumer_id = request.path_params["consumer"]
        caller = self._caller(request)
        await caller.authenticate()
        made = self._consumers.get(consumer_id)
        if made is None and not consumer_id.startswith(f"{self._instance}-"):
            raise HttpError(
                421,
                f"consumer {consumer_id!r:.80} does not live here; use the location that its creation named",
            )
        if made is None or made.principal != caller.principal:
            raise HttpError(
                404, f"there is no consumer {consumer_id!r:.80}; it may have been idle for too long"
            )
        return made

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = loop.time()
            for made in [each for each in self._consumers.values() if each.is_idle(now)]:
                logger.info(
                    "Consumer %s was idle for %.0f s and leaves its group", made.id, made.idle_seconds
                )
                del self._consumers[made.id]
                try:
                    await made.close()
                except ClientError as error:
                    logger.warning("Consumer %s could not leave its group: %s", made.id, error)


def _document(body: bytes) -> dict[str, Any]:
    try:
        document = loads_body(body.decode())
    except ValueError as error:
        raise HttpError(400, f"the body is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise HttpError(400, "the body is not a JSON object")
    return document


def _number(given: Mapping[str, Any], name: str, default: int, low: int, high: int) -> int:
    value = given.get(name, default)
    if type(value) is not int or not low <= value <= high:
        raise HttpError(400, f"{name}={value!r:.80} is not allowed: a whole number from {low} to {high}")
    return value


def _query(request: Request, names: tuple[str, ...]) -> Mapping[str, str]:
    for name in request.query_params:
        read_word("parameter", name, names)
    return request.query_params


def _place(text: object) -> tuple[TopicPartition, int]:
    parts = text.split("/") if isinstance(text, str) else []
    if len(parts) != 3:
        raise HttpError(400, f"{text!r:.80} in acks is no topic/partition/offset")
    try:
        partition = read_int("partition", parts[1], 0, PARTITION_MAX)
        return TopicPartition(parts[0], partition), read_int("offset", parts[2], 0, OFFSET_MAX)
    except InvalidParameterError as error:
        raise HttpError(400, f"{text!r:.80} in acks: {error}") from None
