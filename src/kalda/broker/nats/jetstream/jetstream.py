"""Serves JetStream's API on a broker: requests to `$JS.API.>`, messages for streams, acknowledgements.

It is a subscriber of the exchange among others. Requests wait in a queue and are answered by some tasks,
those that change one stream one after the other; messages, pull requests and acknowledgements are taken at
once. What is for a stream that another broker leads is carried there, and what another broker has carried
here is answered here or refused: it takes one hop.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable
from functools import partial
from typing import Final

from kalda.broker.nats.jetstream.api_request import ApiRequest, TryAgainError
from kalda.broker.nats.jetstream.attempts import Attempts
from kalda.broker.nats.jetstream.carrier import Carrier
from kalda.broker.nats.jetstream.consumers import Consumers
from kalda.broker.nats.jetstream.jetstream_metrics import register
from kalda.broker.nats.jetstream.jetstream_parts import JetStreamParts
from kalda.broker.nats.jetstream.led_stream import LedStream
from kalda.broker.nats.jetstream.stream_consumer import StreamConsumer
from kalda.broker.nats.jetstream.stream_requests import LIST_BYTES_MAX, LIST_MAX, StreamRequests
from kalda.broker.nats.jetstream.streams import Streams
from kalda.broker.nats.nats_access import NatsAccess, RemoteClients
from kalda.common.metrics import Metrics
from kalda.common.types import uuid_to_text
from kalda.nats.carried_requests import NOT_SERVED
from kalda.nats.exchange import LiveMessage, Subscription
from kalda.nats.jetstream import fields
from kalda.nats.jetstream.acks import NEXT, PREFIX, Acknowledgement, parse_ack
from kalda.nats.jetstream.api_errors import (
    JetStreamError,
    bad_request,
    consumer_not_found,
    not_permitted,
    unavailable,
)
from kalda.nats.jetstream.consumer_config import ConsumerConfig, check_consumer_name
from kalda.nats.jetstream.pull_requests import status
from kalda.nats.operations import Publish
from kalda.nats.routing import ANSWER, RoutedMessage
from kalda.nats.session import Session
from kalda.security.acl.model import AclOperation
from kalda.zookeeper.errors import ZooKeeperError

logger: Final = logging.getLogger(__name__)

API: Final = b"$JS.API."
WORKERS: Final = 8
READY_SECONDS_MAX: Final = 10.0
DENIED: Final = status(403, "Permissions Violation")

_EXPIRE_SECONDS: Final = 1.0
QUEUED_REQUESTS_MAX: Final = 1_000
QUEUED_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of the bodies of these requests."""

BODY_BYTES_MAX: Final = 256 * 1024
"""Of a request; a configuration is much smaller."""

_NEXT: Final = b"$JS.API.CONSUMER.MSG.NEXT."
_FLOW: Final = b"$JS.FC."
_DIRECT_GET: Final = "DIRECT.GET"

_WITHOUT_TOPIC: Final = frozenset(("STREAM.CREATE", "STREAM.DELETE"))
"""Requests that any broker answers if the topic of the stream does not exist."""

_CHANGES: Final = frozenset(("STREAM.CREATE", "STREAM.UPDATE", "STREAM.DELETE"))
"""Requests after which a broker looks at the stream again."""

_TYPES: Final = {
    "INFO": "account_info_response",
    "STREAM.CREATE": "stream_create_response",
    "STREAM.UPDATE": "stream_update_response",
    "STREAM.INFO": "stream_info_response",
    "STREAM.NAMES": "stream_names_response",
    "STREAM.LIST": "stream_list_response",
    "STREAM.DELETE": "stream_delete_response",
    "STREAM.PURGE": "stream_purge_response",
    "STREAM.MSG.GET": "stream_msg_get_response",
    "STREAM.MSG.DELETE": "stream_msg_delete_response",
    "STREAM.SNAPSHOT": "stream_snapshot_response",
    "STREAM.RESTORE": "stream_restore_response",
    "STREAM.PEER.REMOVE": "stream_remove_peer_response",
    "STREAM.LEADER.STEPDOWN": "stream_leader_stepdown_response",
    "CONSUMER.CREATE": "consumer_create_response",
    "CONSUMER.DURABLE.CREATE": "consumer_create_response",
    "CONSUMER.INFO": "consumer_info_response",
    "CONSUMER.NAMES": "consumer_names_response",
    "CONSUMER.LIST": "consumer_list_response",
    "CONSUMER.DELETE": "consumer_delete_response",
    "CONSUMER.LEADER.STEPDOWN": "consumer_leader_stepdown_response",
}
"""The kinds of requests, with the end of the type of their responses."""

_ZEROS: Final[dict[str, dict[str, object]]] = {
    "STREAM.INFO": {"total": 0, "offset": 0, "limit": 0},
    "STREAM.PURGE": {"purged": 0},
    "CONSUMER.NAMES": {"total": 0, "offset": 0, "limit": 0, "consumers": []},
    "CONSUMER.LIST": {"total": 0, "offset": 0, "limit": 0, "consumers": []},
    "STREAM.NAMES": {"total": 0, "offset": 0, "limit": 0, "streams": []},
    "STREAM.LIST": {"total": 0, "offset": 0, "limit": 0, "streams": []},
}
"""What a response has beside an error."""

NAMES_MAX: Final = 1024


class JetStream:
    """JetStream on one broker; a `Subscriber`."""

    takes_everything = False

    def __init__(self, parts: JetStreamParts, clients: RemoteClients) -> None:
        """`clients` are those whose requests other brokers carry here."""
        self._parts: Final = parts
        self._counts: Final = parts.counts
        self._clients: Final = clients
        self.streams: Final = Streams(parts, self)
        self.carrier: Final = Carrier(parts, self.streams)
        self.consumers: Final = Consumers(parts, self.streams.learn)
        self.streams.open_consumers = self._open_consumers
        self._stream_requests: Final = StreamRequests(parts, self.streams, self.consumers, self.carrier)
        self._queue: Final[asyncio.Queue[ApiRequest]] = asyncio.Queue(QUEUED_REQUESTS_MAX)
        self._queued_bytes = 0
        self._attempts: Final = Attempts(parts)
        self._is_closed = False
        for prefix in (API, PREFIX, _FLOW):
            parts.exchange.add(Subscription(self, prefix + b">", b"", b""))
        parts.exchange.on_added = self.on_subscription

    async def run(self) -> None:
        """Answer requests until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.streams.run(), name="NATS streams")
            tasks.create_task(self.streams.follow_time(), name="NATS streams by time")
            tasks.create_task(self._expire(), name="JetStream requests to others")
            for number in range(WORKERS):
                tasks.create_task(self._work(), name=f"JetStream requests {number}")

    async def wait_ready(self) -> None:
        """Wait until the streams are known and those that are led here are open; not for too long."""
        try:
            async with asyncio.timeout(READY_SECONDS_MAX):
                await self.streams.wait_read()
                for known in list(self.streams.known.values()):
                    led = self.streams.led(known.name)
                    if led is not None:
                        await led.wait_open()
        except TimeoutError:
            logger.warning("clients of NATS are served before all streams are open")

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(_EXPIRE_SECONDS)
            self.carrier.requests.expire(self._parts.loop.time())

    def register_metrics(self, metrics: Metrics) -> None:
        """Register what this broker leads and has done."""
        register(metrics, self.streams, self.carrier.requests, self._counts)

    def close(self) -> None:
        """Stop delivering."""
        self._is_closed = True
        self._attempts.close()
        self.streams.close()

    # Called by the exchange.

    def send(self, data: bytes) -> None:
        """Send nothing: messages come by `deliver`."""

    def queued_bytes(self) -> int:
        """Return 0: nothing waits for a socket."""
        return 0

    def deliver(self, subscription: Subscription, message: LiveMessage) -> bool:
        """Take a message; return whether it is for a stream, a consumer or the API."""
        if self._is_closed:
            return False
        sent = message.sent
        access = _access_of(message.origin)
        if sent.reply and access is not None and not access.may_be_sent_to(sent.reply):
            # What it asks for would go to others in its name.
            sent = sent._replace(reply=b"")
        known = self.streams.of(subscription)
        origin = message.origin
        client = origin.key if isinstance(origin, Session) else None
        return self._take(sent, "" if known is None else known.name, access, client)

    # Called by the routes.

    def take_carried(self, broker_id: int, message: RoutedMessage) -> None:
        """Take the request of a client of another broker, or another broker's answer."""
        if message.kind == ANSWER:
            self.carrier.requests.answer(broker_id, message.sent)
            return
        access = self._clients.access(message.principal, message.host)
        client = broker_id, message.principal, message.host
        if self._is_closed or not self._take(message.sent, message.stream, access, client, is_carried=True):
            self._refuse(message.sent.reply)

    def lost(self, broker_id: int) -> None:
        """Fail the requests that a broker has not answered, because the route to it is closed."""
        self.carrier.requests.lost(broker_id)

    def on_subscription(self, subject: bytes) -> None:
        """Wake the push consumers that may deliver to a new subscription."""
        if not subject.startswith((b"$JS.", b"$SYS.")):
            self.consumers.wake_pushing_soon()

    # Messages, acknowledgements and pull requests.

    def _take(
        self,
        sent: Publish,
        stream: str,
        access: NatsAccess | None,
        client: Hashable,
        *,
        is_carried: bool = False,
    ) -> bool:
        """Handle a message for a stream or for the API, by its subject; return False if no one handles it."""
        if stream:
            self._add(stream, sent, access, is_carried=is_carried)
        elif sent.subject.startswith(PREFIX):
            return self._acknowledge(sent, access, client, is_carried=is_carried)
        elif sent.subject.startswith(_FLOW):
            self._flow(sent, access, is_carried=is_carried)
        elif sent.subject.startswith(_NEXT):
            self._next(sent, access, client, is_carried=is_carried)
        else:
            self._enqueue(sent, access, is_carried=is_carried)
        return True

    def _other_leader(self, stream: str, is_carried: bool) -> int | None:
        """Return the broker that a request is carried to, None without one: it takes one hop."""
        return None if is_carried else self.carrier.leader(stream)

    def _refuse(self, reply: bytes) -> None:
        """Answer a refused request with 503, which a client takes for the absence of responders."""
        if reply:
            self._parts.send(reply, b"", NOT_SERVED)

    def _add(self, name: str, sent: Publish, access: NatsAccess | None, *, is_carried: bool) -> None:
        led = self.streams.led(name)
        if led is not None:
            if is_carried and not led.has_subject(sent.subject):
                # The other broker does not know yet that the stream was changed.
                self._refuse(sent.reply)
            elif access is not None and not access.may(AclOperation.WRITE, name):
                self._answer_publisher(name, sent.reply, not_permitted())
            else:
                led.add(sent)
            return
        failed = partial(self._answer_publisher, name, sent.reply, unavailable())
        known = self.streams.known.get(name)
        if known is not None and known.config.no_ack:
            sent = sent._replace(reply=b"")
        broker_id = self._other_leader(name, is_carried)
        if broker_id is None or not self.carrier.carry(broker_id, sent, access, failed, stream=name):
            failed()

    def _answer_publisher(self, name: str, reply: bytes, error: JetStreamError) -> None:
        if reply:
            self._parts.send(reply, fields.dumps({"error": error.as_json(), "stream": name, "seq": 0}))

    def _acknowledge(
        self, sent: Publish, access: NatsAccess | None, client: Hashable, *, is_carried: bool
    ) -> bool:
        ack = parse_ack(sent.subject, sent.payload)
        if ack is None:
            return False
        stream, consumer = (each.decode(errors="replace") for each in sent.subject.split(b".")[2:4])
        if stream not in self.streams.known:
            return False
        attempt = partial(
            self._try_acknowledge, stream, consumer, ack, sent, access, client, is_carried=is_carried
        )
        if not attempt():
            led = self.streams.led(stream)
            if led is not None and led.is_open and consumer not in led.stored.consumers:
                return False
            self._attempts.add(len(sent.payload), attempt, partial(self._refuse, sent.reply))
        return True

    def _try_acknowledge(
        self,
        stream: str,
        name: str,
        ack: Acknowledgement,
        sent: Publish,
        access: NatsAccess | None,
        client: Hashable,
        *,
        is_carried: bool,
    ) -> bool:
        led = self.streams.led(stream)
        if led is None:
            broker_id = self._other_leader(stream, is_carried)
            if broker_id is None:
                return False
            if ack.kind == NEXT:
                self.carrier.carry_pull(broker_id, sent, access)
                return True
            return self.carrier.carry(broker_id, sent, access, partial(self._refuse, sent.reply))
        if access is not None and not access.may(AclOperation.READ, stream):
            return True
        consumer = led.consumers.get(name)
        if consumer is None:
            return False
        reply = sent.reply
        if ack.kind == NEXT and reply and access is not None and _is_denied(access, consumer, led):
            self._parts.send(reply, b"", DENIED)
            reply = b""
        consumer.acknowledge(ack, reply, client)
        return True

    def _flow(self, sent: Publish, access: NatsAccess | None, *, is_carried: bool) -> None:
        tokens = sent.subject.decode(errors="replace").split(".")
        led = self.streams.led(tokens[2])
        if led is not None:
            consumer = led.consumers.get(tokens[3]) if len(tokens) > 4 else None
            if consumer is not None and (access is None or access.may(AclOperation.READ, tokens[2])):
                consumer.flow_answered(sent.subject)
            return
        broker_id = self._other_leader(tokens[2], is_carried)
        if broker_id is not None:
            self.carrier.carry_pull(broker_id, sent._replace(reply=b""), access)

    def _next(self, sent: Publish, access: NatsAccess | None, client: Hashable, *, is_carried: bool) -> None:
        names = sent.subject[len(_NEXT) :].decode(errors="replace").split(".")
        if len(names) != 2 or names[0] not in self.streams.known:
            self._refuse(sent.reply)
            return
        if not sent.reply:
            return
        attempt = partial(self._try_next, names[0], names[1], sent, access, client, is_carried=is_carried)
        if not attempt():
            self._attempts.add(len(sent.payload), attempt, partial(self._refuse, sent.reply))

    def _try_next(
        self,
        stream: str,
        name: str,
        sent: Publish,
        access: NatsAccess | None,
        client: Hashable,
        *,
        is_carried: bool,
    ) -> bool:
        led = self.streams.led(stream)
        if led is None:
            broker_id = self._other_leader(stream, is_carried)
            if broker_id is None:
                return False
            self.carrier.carry_pull(broker_id, sent, access)
            return True
        if access is not None and not access.may(AclOperation.READ, stream):
            return True
        consumer = led.consumers.get(name)
        if consumer is not None:
            if access is not None and _is_denied(access, consumer, led):
                self._parts.send(sent.reply, b"", DENIED)
            else:
                consumer.pull(sent.payload, sent.reply, client)
            return True
        if led.is_open and name not in led.stored.consumers:
            self._refuse(sent.reply)
            return True
        # It is being restored.
        return False

    # Requests.

    def _enqueue(self, sent: Publish, access: NatsAccess | None, *, is_carried: bool) -> None:
        if not sent.reply:
            # Nobody would see the result.
            return
        request = _parse(sent, access, is_carried=is_carried)
        if request is None:
            # nats-server is silent. A newer client that asks for what is not served gets an error.
            self._counts.requests += 1
            self._counts.errors += 1
            self._parts.send(sent.reply, fields.dumps({"error": bad_request().as_json()}))
        elif len(sent.payload) > BODY_BYTES_MAX:
            self._answer_error(request, bad_request())
        elif not self._put(request):
            self._answer_error(request, unavailable())

    def _put(self, request: ApiRequest) -> bool:
        size = len(request.body)
        if self._queue.full() or self._queued_bytes + size > QUEUED_BYTES_MAX:
            return False
        self._queued_bytes += size
        self._queue.put_nowait(request)
        return True

    async def _work(self) -> None:
        while True:
            request = await self._queue.get()
            self._queued_bytes -= len(request.body)
            try:
                await self._answer(request)
            except TryAgainError:
                self._try_again(request)
            except JetStreamError as error:
                self._answer_error(request, error)
            except Exception:
                # Not the broker's end: other clients go on.
                logger.exception("the JetStream request %s failed", request.kind)
                self._answer_error(request, unavailable())

    def _try_again(self, request: ApiRequest) -> None:
        """Answer a request when its stream has a leader."""

        def attempt() -> bool:
            name = request.names[0]
            has_leader = self.streams.led(name) is not None or self.carrier.leader(name) is not None
            return has_leader and self._put(request)

        self._attempts.add(len(request.body), attempt, partial(self._answer_error, request, unavailable()))

    def _answer_error(self, request: ApiRequest, error: JetStreamError) -> None:
        self._counts.requests += 1
        self._counts.errors += 1
        if request.kind == _DIRECT_GET:
            self._refuse(request.reply)
        else:
            self._reply(request, {"error": error.as_json(), **_ZEROS.get(request.kind, {})})

    def _reply(self, request: ApiRequest, fields_: dict[str, object]) -> None:
        kind = f"io.nats.jetstream.api.v1.{_TYPES[request.kind]}"
        self._parts.send(request.reply, fields.dumps({"type": kind, **fields_}))

    async def _is_carried_on(self, request: ApiRequest) -> bool:
        """Carry a request to the leader of its stream, if that is another broker.

        Raises:
            TryAgainError: the stream has no leader now.
        """
        if not request.names:
            return False
        name = request.names[0]
        known = self.streams.known.get(name)
        if known is None:
            try:
                known = await self.streams.look_up(name)
            except ZooKeeperError as error:
                logger.warning("stream %s cannot be read: %s", name, error)
                raise unavailable() from None
        if known is None or self.streams.led(name) is not None:
            return False
        broker_id = None if request.is_carried else self.carrier.leader(name)
        if broker_id is None:
            topic_id = uuid_to_text(self._parts.cache.topic_id(name))
            if request.kind in _WITHOUT_TOPIC and topic_id != known.stored.topic_id:
                # A client of Kafka has deleted the topic, and perhaps made another of that name.
                return False
            raise TryAgainError
        failed = partial(self._answer_error, request, unavailable())
        answered = partial(self._pass_on_change, name, request.reply) if request.kind in _CHANGES else None
        if not self.carrier.carry(broker_id, request.sent, request.access, failed, answered):
            raise unavailable()
        return True

    def _pass_on_change(self, name: str, reply: bytes, headers: bytes, payload: bytes) -> None:
        self._parts.run("look up a stream", self._look_up_first(name, reply, headers, payload))

    async def _look_up_first(self, name: str, reply: bytes, headers: bytes, payload: bytes) -> None:
        """Pass an answer on when this broker knows what has changed: the client may go on with it here."""
        try:
            await self.streams.look_up(name)
        except ZooKeeperError as error:
            logger.warning("stream %s cannot be read: %s", name, error)
        self.carrier.pass_on(reply, headers, payload)

    async def _answer(self, request: ApiRequest) -> None:
        await self.streams.wait_read()
        if await self._is_carried_on(request):
            return
        if request.kind == _DIRECT_GET:
            await self._stream_requests.direct_get(request)
            self._counts.requests += 1
            return
        handlers: dict[str, Callable[[ApiRequest], Awaitable[dict[str, object]]]] = {
            "INFO": self._info,
            **self._stream_requests.handlers,
            "CONSUMER.CREATE": self._create_consumer,
            "CONSUMER.DURABLE.CREATE": self._create_consumer,
            "CONSUMER.INFO": self._consumer_info,
            "CONSUMER.NAMES": self._consumer_names,
            "CONSUMER.LIST": self._consumer_list,
            "CONSUMER.DELETE": self._delete_consumer,
        }
        handler = handlers.get(request.kind)
        if handler is None:
            if "SNAPSHOT" in request.kind or "RESTORE" in request.kind:
                raise bad_request()
            raise JetStreamError(503, 10010, "JetStream clustering support required")
        answer = await handler(request)
        self._counts.requests += 1
        self._reply(request, answer)

    async def _info(self, request: ApiRequest) -> dict[str, object]:
        visible = await self._stream_requests.visible(request)
        led = [each.led for each in visible if each.led is not None]
        found = {
            "storage": sum(each.index.bytes for each in led),
            "consumers": sum(len(each.consumers) for each in led),
        }
        api = {"total": self._counts.requests, "errors": self._counts.errors}
        if not request.is_carried:
            leaders = {self.streams.leader(name) for name in self.streams.known} - {None}
            for other in await self._ask_all(request, (each for each in leaders if each is not None)):
                for key in found:
                    found[key] += fields.natural(other, key)
                for key in api:
                    api[key] += fields.natural(fields.part(other, "api"), key)
        return {
            "memory": 0,
            "streams": len(visible),
            **found,
            "limits": {
                "max_memory": -1,
                "max_storage": -1,
                "max_streams": -1,
                "max_consumers": -1,
                "max_ack_pending": -1,
                "memory_max_stream_bytes": -1,
                "storage_max_stream_bytes": -1,
                "max_bytes_required": False,
            },
            "api": api,
        }

    async def _ask_all(self, request: ApiRequest, brokers: Iterable[int]) -> list[fields.Json]:
        """Return what other brokers answer to the same request, without those that do not."""
        subject = request.sent.subject
        asked = [self.carrier.ask(each, subject, request.body, request.access) for each in brokers]
        return [each for each in await asyncio.gather(*asked) if each is not None]

    # Consumers.

    def _open_consumers(self, led: LedStream) -> None:
        self._parts.run(f"open the consumers of {led.name}", self.consumers.restore(led))

    async def _create_consumer(self, request: ApiRequest) -> dict[str, object]:
        sent = fields.read_object(request.body)
        wanted = fields.part(sent, "config")
        stream_name = request.names[0]
        if fields.text(sent, "stream_name") != stream_name:
            raise JetStreamError(400, 10056, "stream name in subject does not match request")
        durable, name = fields.text(wanted, "durable_name"), fields.text(wanted, "name")
        if request.kind == "CONSUMER.DURABLE.CREATE":
            if not durable:
                text = "consumer expected to be durable but a durable name was not set"
                raise JetStreamError(400, 10018, text)
            if len(request.names) != 2 or request.names[1] != durable:
                text = "consumer name in subject does not match durable name in request"
                raise JetStreamError(400, 10017, text)
            name = durable
        elif len(request.names) == 1:
            if durable:
                text = "consumer expected to be ephemeral but a durable name was set in request"
                raise JetStreamError(400, 10020, text)
            name = ""
        else:
            if any(each and each != request.names[1] for each in (name, durable)):
                text = "consumer name in subject does not match name in request"
                raise JetStreamError(400, 10017, text)
            filter_ = ".".join(request.names[2:])
            if filter_ and fields.texts(wanted, "filter_subjects"):
                text = "consumer with multiple subject filters cannot use subject based API"
                raise JetStreamError(400, 10137, text)
            if filter_ and filter_ != fields.text(wanted, "filter_subject"):
                text = "Consumer create request did not match filtered subject from create subject"
                raise JetStreamError(400, 10131, text)
            name = request.names[1]
        if name:
            check_consumer_name(name)
        led = await self._stream_requests.led(request, AclOperation.READ)
        config = ConsumerConfig.parse(wanted, led.config)
        request.require_not_denied(config.filters or led.config.subjects)
        if config.is_push:
            # Messages of the stream go where the client says.
            request.require_to_send(config.deliver_subject)
        async with led.lock:
            return (await self.consumers.create(led, name, config)).info()

    async def _consumer_info(self, request: ApiRequest) -> dict[str, object]:
        led = await self._stream_requests.led(request, AclOperation.DESCRIBE)
        return _consumer(led, request).info()

    async def _consumer_names(self, request: ApiRequest) -> dict[str, object]:
        led = await self._stream_requests.led(request, AclOperation.DESCRIBE)
        offset = fields.page(fields.read_object(request.body, may_be_empty=True))
        names = sorted(led.consumers)
        offset = min(offset, len(names))
        found = names[offset : offset + NAMES_MAX]
        return {"total": len(names), "offset": offset, "limit": NAMES_MAX, "consumers": found}

    async def _consumer_list(self, request: ApiRequest) -> dict[str, object]:
        led = await self._stream_requests.led(request, AclOperation.DESCRIBE)
        offset = fields.page(fields.read_object(request.body, may_be_empty=True))
        names = sorted(led.consumers)
        offset = min(offset, len(names))
        found: list[object] = []
        size = 0
        for name in names[offset : offset + LIST_MAX]:
            consumer = led.consumers[name]
            size += consumer.config.size
            if found and size > LIST_BYTES_MAX:
                break
            found.append(consumer.info())
        return {"total": len(names), "offset": offset, "limit": LIST_MAX, "consumers": found}

    async def _delete_consumer(self, request: ApiRequest) -> dict[str, object]:
        led = await self._stream_requests.led(request, AclOperation.READ)
        if request.body.strip():
            raise JetStreamError(400, 10038, "expected an empty request payload")
        async with led.lock:
            await self.consumers.remove(led, _consumer(led, request))
        return {"success": True}


def _consumer(led: LedStream, request: ApiRequest) -> StreamConsumer:
    consumer = led.consumers.get(request.names[1]) if len(request.names) == 2 else None
    if consumer is None:
        if len(request.names) == 2 and request.names[1] in led.stored.consumers:
            # It is not restored yet.
            raise unavailable()
        raise consumer_not_found()
    return consumer


def _is_denied(access: NatsAccess, consumer: StreamConsumer, led: LedStream) -> bool:
    """Return whether a client may not read some of what a consumer delivers."""
    return any(access.is_denied_any(each.encode()) for each in consumer.config.filters or led.config.subjects)


def _access_of(origin: object) -> NatsAccess | None:
    """Return the permissions of the client that published a message; None if it may do everything."""
    access = origin.access if isinstance(origin, Session) else None
    return access if isinstance(access, NatsAccess) else None


def _parse(sent: Publish, access: NatsAccess | None, *, is_carried: bool) -> ApiRequest | None:
    """Return the request that a message is, None if it is none that is known."""
    tokens = sent.subject[len(API) :].decode(errors="replace").split(".")
    for count in (3, 2, 1):
        kind = ".".join(tokens[:count])
        names = tokens[count:]
        if kind not in _TYPES and kind != _DIRECT_GET:
            continue
        if bool(names) is (kind not in ("INFO", "STREAM.NAMES", "STREAM.LIST")):
            return ApiRequest(kind, names, sent, access, is_carried)
    return None
