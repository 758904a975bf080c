"""Answers the requests that are about streams and their messages."""

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from kalda.broker.nats.jetstream.api_request import ApiRequest, TryAgainError
from kalda.broker.nats.jetstream.carrier import Carrier
from kalda.broker.nats.jetstream.consumers import Consumers
from kalda.broker.nats.jetstream.jetstream_parts import JetStreamParts
from kalda.broker.nats.jetstream.led_stream import LedStream
from kalda.broker.nats.jetstream.streams import STREAMS_MAX, KnownStream, Streams
from kalda.broker.topics.auto_created_topics import BROKER_DEFAULT
from kalda.broker.topics.topic_names import is_internal_topic
from kalda.cluster.nats_streams import StoredStream, StreamTooLargeError
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.turns import Turns, between
from kalda.common.types import uuid_to_text
from kalda.nats.jetstream import fields
from kalda.nats.jetstream.api_errors import (
    JetStreamError,
    bad_request,
    message_not_found,
    no_resources,
    stream_not_found,
    unavailable,
)
from kalda.nats.jetstream.patterns import Pattern, is_pattern, overlapping
from kalda.nats.jetstream.pull_requests import status
from kalda.nats.jetstream.stored_message import StoredMessage
from kalda.nats.jetstream.stream_config import StreamConfig, patterns_of
from kalda.nats.jetstream.stream_index import SubjectEntry, SubjectFilter
from kalda.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
)
from kalda.security.acl.model import AclOperation
from kalda.storage.errors import LOG_ERRORS
from kalda.zookeeper.errors import BadVersionError, NodeExistsError, NoNodeError, ZooKeeperError

logger: Final = logging.getLogger(__name__)

NAMES_MAX: Final = 1024
LIST_MAX: Final = 256
LIST_BYTES_MAX: Final = 512 * 1024
"""Of the configurations in one response; a request for the next page begins where it ends."""

SUBJECTS_PAGE: Final = 100_000
"""Subjects in one response, as in nats-server."""

SUBJECTS_PAGE_BYTES: Final = 4 * 1024 * 1024
"""Of their names."""

DELETED_MAX: Final = 10_000
"""Removed sequences in one response."""

REMOVED_RANGES_MAX: Final = 10_000
"""Ranges of removed messages that the znode of a stream keeps."""

PURGES_MAX: Final = 1_000
_SEARCHED_AT_ONCE: Final = 20_000
_CREATION_TIMES: Final = 20
_CREATION_SECONDS: Final = 0.05
_CLAIM_TIMES: Final = 20
_OVERLAP: Final = 10065

Handler = Callable[[ApiRequest], Awaitable[dict[str, object]]]


class StreamRequests:
    """The requests about streams."""

    def __init__(
        self, parts: JetStreamParts, streams: Streams, consumers: Consumers, carrier: Carrier
    ) -> None:
        self._parts: Final = parts
        self._streams: Final = streams
        self._consumers: Final = consumers
        self._carrier: Final = carrier
        self.handlers: Final[dict[str, Handler]] = {
            "STREAM.CREATE": self._create,
            "STREAM.UPDATE": self._update,
            "STREAM.INFO": self._info,
            "STREAM.NAMES": self._names,
            "STREAM.LIST": self._list,
            "STREAM.DELETE": self._delete,
            "STREAM.PURGE": self._purge,
            "STREAM.MSG.GET": self._get,
            "STREAM.MSG.DELETE": self._delete_message,
        }

    def _known(self, request: ApiRequest, operation: AclOperation) -> KnownStream:
        name = request.names[0]
        known = self._streams.known.get(name)
        if known is None:
            raise stream_not_found()
        request.require(operation, name)
        return known

    async def led(self, request: ApiRequest, operation: AclOperation) -> LedStream:
        """Return the stream of a request that this broker leads, once it is open.

        Raises:
            JetStreamError: there is no such stream, another broker leads it, or the client may not.
        """
        known = self._known(request, operation)
        led = self._streams.led(known.name)
        if led is None:
            raise unavailable()
        await led.wait_open()
        if not led.is_open or led.is_closed:
            raise unavailable()
        return led

    # Streams.

    async def _create(self, request: ApiRequest) -> dict[str, object]:
        config = self._config(request)
        request.require(AclOperation.CREATE, config.name)
        if is_internal_topic(config.name):
            raise JetStreamError(500, 10049, f"{config.name} is an internal topic")
        known = self._streams.known.get(config.name)
        if known is not None and await self._is_without_topic(known):
            await self._forget(known)
            known = None
        if known is not None:
            if known.config != config:
                text = "stream name already in use with a different configuration"
                raise JetStreamError(400, 10058, text)
            led = await self.led(request, AclOperation.CREATE)
            return {**_described(led), "did_create": True}
        if len(self._streams.known) >= STREAMS_MAX:
            raise JetStreamError(400, 10027, "maximum number of streams reached")
        await self._check_subjects(request, config, known=())
        if not await self._create_topic(config):
            await self._look_for_creation(config)
            raise TryAgainError
        try:
            await self._claim(config, lambda version: self._store_new(config, version))
        except JetStreamError as error:
            # With another error the stream may be there.
            if error.err_code == _OVERLAP:
                await self._remove_topic(config.name)
            raise
        led = await self.led(request, AclOperation.CREATE)
        return {**_described(led), "did_create": True}

    async def _store_new(self, config: StreamConfig, subjects_version: int) -> None:
        stored = StoredStream(
            topic_id=uuid_to_text(self._parts.cache.topic_id(config.name)),
            created_ns=self._parts.clock.time_ns(),
            config=config.as_json(),
        )
        try:
            version = await self._parts.store.create(config.name, stored, subjects_version)
        except StreamTooLargeError:
            raise no_resources() from None
        except NodeExistsError:
            text = "stream name already in use with a different configuration"
            raise JetStreamError(400, 10058, text) from None
        except BadVersionError:
            raise
        except ZooKeeperError as error:
            logger.warning("stream %s cannot be created: %s", config.name, error)
            raise unavailable() from None
        self._streams.learn(config.name, stored, version)

    async def _claim(self, config: StreamConfig, store: Callable[[int], Awaitable[None]]) -> None:
        """Store a stream with subjects that no other stream has, nor gets meanwhile.

        Raises:
            JetStreamError: another stream has them, or the stream cannot be stored.
        """
        streams = self._streams
        async with streams.claiming:
            for _ in range(_CLAIM_TIMES):
                # A stream that gets subjects during the check changes the version.
                version = streams.subjects_version
                await self._check_overlap(config)
                try:
                    await store(version)
                except BadVersionError:
                    await self._look_again()
                else:
                    streams.subjects_version = version + 1
                    return
        raise unavailable()

    async def _look_again(self) -> None:
        """Read what another broker has written.

        Raises:
            JetStreamError: it cannot be read.
        """
        try:
            await self._streams.refresh()
        except ZooKeeperError as error:
            logger.warning("the streams cannot be read: %s", error)
            raise unavailable() from None

    async def _remove_topic(self, name: str) -> None:
        """Delete the topic that was created for a stream that is none."""
        try:
            await self._parts.topic_admin.delete_topics([name], self._parts.request_timeout_ms)
        except ZooKeeperError as error:
            logger.warning("the topic %s, which is no stream, cannot be deleted: %s", name, error)

    def _config(self, request: ApiRequest) -> StreamConfig:
        sent = fields.read_object(request.body)
        config = StreamConfig.parse(sent)
        if len(request.names) != 1 or config.name != request.names[0]:
            raise JetStreamError(400, 10056, "stream name in subject does not match request")
        return config

    async def _check_subjects(self, request: ApiRequest, config: StreamConfig, known: Sequence[str]) -> None:
        """Check the subjects of a new configuration, of which the stream has some already.

        Raises:
            JetStreamError: another stream has them, or the client may not read them: who may read the
                stream gets what is published there.
        """
        for subject in config.subjects:
            if subject != config.name and subject not in known:
                request.require_to_read_all(subject)
        await self._check_overlap(config)

    async def _check_overlap(self, config: StreamConfig) -> None:
        known = list(self._streams.known.values())
        others = ((each.name, each.patterns) for each in known if each.name != config.name)
        if await Turns.of_running_loop().result(overlapping(patterns_of(config), others)):
            raise JetStreamError(400, _OVERLAP, "subjects overlap with an existing stream")

    async def _look_for_creation(self, config: StreamConfig) -> None:
        """Return when the stream exists whose topic does: the same request may have come to another broker.

        Raises:
            JetStreamError: it is a topic of its own, or the stream has another configuration.
        """
        for _ in range(_CREATION_TIMES):
            try:
                known = await self._streams.look_up(config.name)
            except ZooKeeperError as error:
                logger.warning("stream %s cannot be read: %s", config.name, error)
                raise unavailable() from None
            if known is not None:
                if known.config == config:
                    return
                break
            await asyncio.sleep(_CREATION_SECONDS)
        text = "stream name already in use with a different configuration"
        raise JetStreamError(400, 10058, text)

    async def _create_topic(self, config: StreamConfig) -> bool:
        """Create the topic of a stream; return False if it exists."""
        parts = self._parts
        settings = config.topic_settings(parts.payload_bytes_max)
        replicas = self._replicas(config.num_replicas)
        wanted = CreatableTopic(
            name=config.name,
            num_partitions=BROKER_DEFAULT,
            replication_factor=BROKER_DEFAULT,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in settings.items()],
        )
        try:
            outcomes = await parts.topic_admin.create_topics([wanted], parts.request_timeout_ms)
        except ZooKeeperError as error:
            logger.warning("the topic of stream %s cannot be created: %s", config.name, error)
            raise unavailable() from None
        outcome = outcomes[config.name]
        if not isinstance(outcome, ApiError):
            return True
        if outcome.code is ErrorCode.TOPIC_ALREADY_EXISTS:
            return False
        raise JetStreamError(500, 10049, f"{outcome.message or outcome.code.name}")

    def _replicas(self, count: int) -> list[int]:
        """Choose the brokers of a stream: this one leads, since its client is connected to it.

        Raises:
            JetStreamError: there are too few.
        """
        parts = self._parts
        others = sorted(parts.cache.brokers.keys() - {parts.broker_id})
        if count > len(others) + 1:
            if not others:
                text = "replicas > 1 not supported in non-clustered mode"
                raise JetStreamError(500, 10074, text)
            raise JetStreamError(400, 10005, "no suitable peers for placement")
        first = parts.random.randrange(len(others)) if others else 0
        return [parts.broker_id, *(others[first:] + others[:first])[: count - 1]]

    async def _update(self, request: ApiRequest) -> dict[str, object]:
        name = request.names[0]
        if name not in self._streams.known:
            raise stream_not_found()
        led = await self.led(request, AclOperation.ALTER)
        config = self._config_for_update(request)
        await self._check_subjects(request, config, known=led.config.subjects)
        async with led.lock:
            if config.subjects == led.config.subjects:
                await self._store_changed(led, config)
            else:
                await self._claim(config, lambda version: self._store_changed(led, config, version))
        return _described(led)

    async def _store_changed(
        self, led: LedStream, config: StreamConfig, subjects_version: int | None = None
    ) -> None:
        if led.is_closed:
            raise unavailable()
        config.check_update(led.config)
        # What smaller limits have removed does not come back with larger ones.
        first = max(led.first_kept, led.stored.first_sequence)
        stored = replace(led.stored, config=config.as_json(), first_sequence=first)
        await self._consumers.write(led, stored, subjects_version)

    def _config_for_update(self, request: ApiRequest) -> StreamConfig:
        sent = fields.read_object(request.body)
        storage = fields.choice(sent, "storage", ("file", "memory"))
        retention = fields.choice(sent, "retention", ("limits", "interest", "workqueue"))
        if retention != "limits":
            text = "stream configuration update can not change retention policy"
            raise JetStreamError(500, 10052, text)
        if storage != "file":
            text = "stream configuration update can not change storage type"
            raise JetStreamError(500, 10052, text)
        return self._config(request)

    async def _info(self, request: ApiRequest) -> dict[str, object]:
        led = await self.led(request, AclOperation.DESCRIBE)
        sent = fields.read_object(request.body, may_be_empty=True)
        pattern = fields.text(sent, "subjects_filter")
        offset = fields.page(sent)
        found = _described(led)
        state = found["state"]
        assert isinstance(state, dict), "a state is an object"
        total = limit = 0
        if pattern and is_pattern(pattern):
            included = led.index.included(SubjectFilter([pattern]))
            entries = await Turns.of_running_loop().result(included)
            if entries:
                total, limit = len(entries), SUBJECTS_PAGE
                state["subjects"] = _subjects_page(entries, offset)
        if fields.flag(sent, "deleted_details"):
            deleted = await Turns.of_running_loop().result(led.index.removed(DELETED_MAX))
            if deleted:
                state["deleted"] = deleted
        return {"total": total, "offset": offset if total else 0, "limit": limit, **found}

    async def visible(self, request: ApiRequest, pattern: str = "") -> list[KnownStream]:
        """Return the streams that the client may describe, in the order of their names; with subjects of a
        pattern if one is given.

        Raises:
            JetStreamError: the pattern is none.
        """
        if pattern and not is_pattern(pattern):
            raise bad_request()
        found: list[KnownStream] = []
        for index, (_, known) in enumerate(sorted(self._streams.known.items())):
            await between(index)
            if request.may(AclOperation.DESCRIBE, known.name):
                found.append(known)
        if not pattern:
            return found
        groups = ((each, each.patterns) for each in found)
        return await Turns.of_running_loop().result(overlapping([Pattern(pattern.encode())], groups))

    async def _names(self, request: ApiRequest) -> dict[str, object]:
        sent = fields.read_object(request.body, may_be_empty=True)
        names = [each.name for each in await self.visible(request, fields.text(sent, "subject"))]
        offset = min(fields.page(sent), len(names))
        found: list[str] | None = names[offset : offset + NAMES_MAX]
        if not found and sent.get("subject"):
            # As nats-server, whose list of that kind begins as Go's nil.
            found = None
        return {"total": len(names), "offset": offset, "limit": NAMES_MAX, "streams": found}

    async def _list(self, request: ApiRequest) -> dict[str, object]:
        sent = fields.read_object(request.body, may_be_empty=True)
        visible = await self.visible(request, fields.text(sent, "subject"))
        offset = min(fields.page(sent), len(visible))
        found: list[object] = []
        missing: list[str] = []
        page = _page(visible[offset : offset + LIST_MAX])
        elsewhere = {} if request.is_carried else await self._described_elsewhere(page, request)
        for index, known in enumerate(page):
            await between(index)
            led = self._streams.led(known.name)
            if led is not None:
                await led.wait_open()
            if led is not None and led.is_open and not led.is_closed:
                found.append(_described(led))
            elif known.name in elsewhere:
                found.append(elsewhere[known.name])
            else:
                missing.append(known.name)
        response: dict[str, object] = {
            "total": len(visible),
            "offset": offset,
            "limit": LIST_MAX,
            "streams": found,
        }
        if missing:
            response["missing"] = missing
        return response

    async def _described_elsewhere(
        self, streams: Sequence[KnownStream], request: ApiRequest
    ) -> dict[str, object]:
        """Return what other brokers say of the streams that they lead."""
        leaders = [(each.name, self._streams.leader(each.name)) for each in streams]
        asked = [(name, broker_id) for name, broker_id in leaders if broker_id is not None]
        answers = await asyncio.gather(
            *(
                self._carrier.ask(broker_id, f"$JS.API.STREAM.INFO.{name}".encode(), b"", request.access)
                for name, broker_id in asked
            )
        )
        return {
            name: {key: answer[key] for key in ("config", "created", "state") if key in answer}
            for (name, _), answer in zip(asked, answers, strict=True)
            if answer is not None
        }

    async def _delete(self, request: ApiRequest) -> dict[str, object]:
        if request.body.strip():
            raise JetStreamError(400, 10038, "expected an empty request payload")
        known = self._known(request, AclOperation.DELETE)
        if await self._is_without_topic(known):
            await self._forget(known)
            return {"success": True}
        led = await self.led(request, AclOperation.DELETE)
        async with led.lock:
            self._consumers.forget(led)
            await self._forget(known)
        try:
            codes = await self._parts.topic_admin.delete_topics([known.name], self._parts.request_timeout_ms)
        except ZooKeeperError as error:
            logger.warning("the topic of stream %s cannot be deleted: %s", known.name, error)
            raise unavailable() from None
        code = codes[known.name]
        if code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            raise JetStreamError(500, 10050, f"the topic is not deleted yet: {code.name}")
        return {"success": True}

    async def _is_without_topic(self, known: KnownStream) -> bool:
        """Return whether a client of Kafka has deleted the topic of a stream."""
        try:
            found = await self._parts.cluster.topic_assignments([known.name])
        except ZooKeeperError as error:
            logger.warning("the topic of stream %s cannot be looked at: %s", known.name, error)
            raise unavailable() from None
        assignment = found.get(known.name)
        return assignment is None or uuid_to_text(assignment.topic_id) != known.stored.topic_id

    async def _forget(self, known: KnownStream) -> None:
        """Delete the znode of a stream.

        Raises:
            JetStreamError: it cannot be deleted.
        """
        try:
            await self._parts.store.delete(known.name)
        except NoNodeError:
            raise stream_not_found() from None
        except ZooKeeperError as error:
            logger.warning("stream %s cannot be deleted: %s", known.name, error)
            raise unavailable() from None
        self._streams.forget(known.name)

    async def _purge(self, request: ApiRequest) -> dict[str, object]:
        led = await self.led(request, AclOperation.DELETE)
        sent = fields.read_object(request.body, may_be_empty=True)
        pattern = fields.text(sent, "filter")
        before, keep = fields.natural(sent, "seq"), fields.natural(sent, "keep")
        if before and keep:
            raise bad_request()
        if pattern and not is_pattern(pattern):
            raise bad_request()
        if led.config.deny_purge:
            raise JetStreamError(500, 10110, "stream purge not permitted")
        async with led.lock:
            index = led.index
            before = min(before or index.next, index.next)
            if not pattern and not keep:
                stored = replace(led.stored, first_sequence=max(before, led.stored.first_sequence))
            else:
                stored = replace(led.stored, purges=_purges(led, pattern or ">", before, keep))
            await self._consumers.write(led, stored)
            count = await led.remove_before(SubjectFilter([pattern] if pattern else ()), before, keep)
        for consumer in list(led.consumers.values()):
            consumer.stream_purged()
            # Each may have 20,000 messages that wait for acknowledgements.
            await asyncio.sleep(0)
        return {"success": True, "purged": count}

    # Messages.

    async def _get(self, request: ApiRequest) -> dict[str, object]:
        led = await self.led(request, AclOperation.READ)
        message = await self._find(request, led, fields.read_object(request.body))
        found: dict[str, object] = {
            "subject": message.subject.decode(errors="replace"),
            "seq": message.sequence,
        }
        if message.headers:
            found["hdrs"] = base64.b64encode(message.headers).decode()
        if message.payload:
            found["data"] = base64.b64encode(message.payload).decode()
        found["time"] = fields.time_text(message.time_ms * 1_000_000)
        return {"message": found}

    async def _find(self, request: ApiRequest, led: LedStream, sent: fields.Json) -> StoredMessage:
        """Return the message that a request asks for.

        Raises:
            JetStreamError: there is none, the client may not read it, or the request contradicts itself.
        """
        sequence = fields.natural(sent, "seq")
        last, following = fields.text(sent, "last_by_subj"), fields.text(sent, "next_by_subj")
        if (not sequence and not last and not following) or (last and (sequence or following)):
            raise bad_request()
        if not all(is_pattern(each) for each in (last, following) if each):
            raise message_not_found()
        found: int | None = sequence
        if last:
            steps = led.index.last_before(SubjectFilter([last]), led.replicated)
            found = await Turns.of_running_loop().result(steps)
        elif following:
            found = await _next_by_subject(led, SubjectFilter([following]), sequence)
        if found is None or found >= led.replicated:
            raise message_not_found()
        try:
            message = await led.message(found)
        except LOG_ERRORS as error:
            logger.warning("message %d of stream %s cannot be read: %s", found, led.name, error)
            raise unavailable() from None
        if message is None:
            raise message_not_found()
        request.require_not_denied([message.subject.decode(errors="surrogateescape")])
        return message

    async def direct_get(self, request: ApiRequest) -> None:
        """Answer a request whose answer is the message itself."""
        known = self._streams.known.get(request.names[0])
        if known is None or not known.config.allow_direct or not request.may(AclOperation.READ, known.name):
            # As nats-server, where nobody listens to it.
            return
        try:
            led = await self.led(request, AclOperation.READ)
            if len(request.names) > 1:
                sent: fields.Json = {"last_by_subj": ".".join(request.names[1:])}
            else:
                if not request.body.strip():
                    raise _DirectError(408, "Empty Request")
                sent = _direct_fields(request.body)
            message = await self._find(request, led, sent)
        except _DirectError as error:
            self._parts.send(request.reply, b"", status(error.code, error.text))
            return
        except JetStreamError as error:
            code, text = (404, "Message Not Found") if error.code == 404 else (503, error.description)
            if error.code == 400:
                code, text = 408, "Bad Request"
            elif error.code == 403:
                code = 403
            self._parts.send(request.reply, b"", status(code, text))
            return
        self._parts.send(request.reply, message.payload, _direct_headers(led.name, message))

    async def _delete_message(self, request: ApiRequest) -> dict[str, object]:
        led = await self.led(request, AclOperation.DELETE)
        sent = fields.read_object(request.body)
        sequence, keeps_bytes = fields.natural(sent, "seq"), fields.flag(sent, "no_erase")
        if led.config.deny_delete:
            raise JetStreamError(500, 10057, "message delete not permitted")
        async with led.lock:
            if not led.index.has(sequence) or sequence >= led.replicated:
                raise JetStreamError(500, 10057, "no message found")
            if not keeps_bytes:
                text = "secure erase is not supported, a delete has to have no_erase"
                raise JetStreamError(500, 10057, text)
            removed = with_removed(led.stored.removed, sequence, led.index.first)
            if len(removed) > REMOVED_RANGES_MAX:
                raise no_resources()
            await self._consumers.write(led, replace(led.stored, removed=removed))
            led.remove(sequence)
        return {"success": True}


class _DirectError(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code: Final = code
        self.text: Final = text


def _direct_fields(body: bytes) -> fields.Json:
    try:
        sent = fields.read_object(body)
    except JetStreamError:
        raise _DirectError(408, "Malformed Request") from None
    if not any(sent.get(name) for name in ("seq", "last_by_subj", "next_by_subj")):
        raise _DirectError(408, "Empty Request")
    return sent


def _direct_headers(stream: str, message: StoredMessage) -> bytes:
    before = message.headers[:-2] if message.headers else b"NATS/1.0\r\n"
    lines = (
        b"Nats-Stream: " + stream.encode(),
        b"Nats-Subject: " + message.subject,
        b"Nats-Sequence: %d" % message.sequence,
        b"Nats-Time-Stamp: " + fields.time_text(message.time_ms * 1_000_000).encode(),
    )
    return before + b"\r\n".join((*lines, b"", b""))


def _subjects_page(entries: Sequence[SubjectEntry], offset: int) -> dict[str, int]:
    """Return the numbers of messages of subjects from an offset on, as many as fit into a response."""
    found: dict[str, int] = {}
    size = 0
    offset = min(offset, len(entries))
    for each in islice(entries, offset, offset + SUBJECTS_PAGE):
        size += len(each.name)
        if size > SUBJECTS_PAGE_BYTES and found:
            break
        found[each.name.decode(errors="replace")] = each.count
    return found


async def _next_by_subject(led: LedStream, filter_: SubjectFilter, start: int) -> int | None:
    at = start
    while at < led.replicated:
        found, at = led.index.next_match(filter_, at, _SEARCHED_AT_ONCE)
        if found is not None:
            return found
        await asyncio.sleep(0)
    return None


def _page(streams: Sequence[KnownStream]) -> Sequence[KnownStream]:
    """Return as many streams from the first on as fit into a response."""
    size = 0
    for index, each in enumerate(streams):
        size += each.config.size
        if index and size > LIST_BYTES_MAX:
            return streams[:index]
    return streams


def _described(led: LedStream) -> dict[str, object]:
    return {
        "config": led.config.as_json(),
        "created": fields.time_text(led.stored.created_ns),
        "state": led.state(),
    }


def _purges(led: LedStream, pattern: str, before: int, keep: int) -> Sequence[tuple[str, int, int]]:
    """Return the purges of a stream with one more; those that another one makes needless are left out.

    Raises:
        JetStreamError: there are too many.
    """
    wanted = Pattern(pattern.encode())
    kept = [
        each
        for each in led.stored.purges
        if each[1] > led.index.first
        and not (not keep and each[1] <= before and wanted.includes_all(Pattern(each[0].encode())))
    ]
    if len(kept) >= PURGES_MAX:
        raise no_resources()
    return [*kept, (pattern, before, keep)]


def with_removed(removed: Sequence[tuple[int, int]], sequence: int, first: int) -> list[tuple[int, int]]:
    """Return ranges of removed sequences with one more, in order and without what is below `first`.

    [(3, 4), (6, 6)] with 5 becomes [(3, 6)].
    """
    found: list[tuple[int, int]] = []
    for low, high in sorted([*removed, (sequence, sequence)]):
        if high < first:
            continue
        if found and low <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(high, found[-1][1])
        else:
            found.append((low, high))
    return found
