"""Applies the faults of a plan to the requests of listeners: `FaultFilter`.

A fault that concerns some topics or partitions of a request lets the others succeed: the broker handles the
rest of the request, and the refused partitions are put into its response. Fetch requests have no session
while a plan has errors for those of clients, or of brokers, so that each one names all of its partitions
(KIP-227).
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, assert_never

from kalda.broker.requests.api import ApiHandler
from kalda.broker.requests.produce_routes import (
    RoutedRequest,
    has_header,
    producer_of,
    route,
    strip_producer,
)
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.types import UUID
from kalda.faults import RequestEffect, RequestFault
from kalda.faults.messages import (
    TopicNames,
    can_be_divided,
    groups_of,
    index_of,
    merge,
    name_of,
    part_of,
    set_topic_errors,
    topics_of,
    transactional_ids_of,
)
from kalda.faults.model import code_for
from kalda.faults.state import Faults, RequestFacts, concerned, matches
from kalda.net.client.api_versions import BROKER_SOFTWARE_NAME
from kalda.net.connection import Connection
from kalda.net.frame_filters import (
    Answer,
    Close,
    DelayRequest,
    Ignore,
    Pass,
    ReplaceRequest,
    ReplaceResponse,
    Reply,
    RequestAction,
    ResponseAction,
    Truncate,
    memory_of,
)
from kalda.protocol import codec, framing, registry
from kalda.protocol.headers import RequestHeader, read_response_header, response_header
from kalda.protocol.namespaces.namespace import prefix_of_listener
from kalda.protocol.protocol_errors import MessageError, ProtocolError

logger: Final = logging.getLogger(__name__)

_SESSION_ERRORS: Final = frozenset(
    (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    )
)
"""Errors of a whole Fetch request; all others are errors of its partitions."""

_CLIENTS: Final = "clients"
_BROKERS: Final = "brokers"

_WITHOUT_SESSION: Final = -1
"""The epoch of a Fetch request that neither has nor wants a session."""


@dataclass(frozen=True, slots=True)
class _Note:
    """The effects that the filter has on one response."""

    fault: RequestFault
    request: Any
    names: TopicNames
    refusal: Any = None
    """What is put into the response, where the request went on without it."""
    routed: RoutedRequest | None = None


class PlainNames:
    """The ids of the topics of a namespace, whose names have a prefix that its clients do not see."""

    def __init__(self, names: TopicNames, prefix: str) -> None:
        self._names: Final = names
        self._prefix: Final = prefix

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name without the prefix; None for a topic outside of the namespace."""
        name = self._names.topic_name(topic_id)
        if name is None or not name.startswith(self._prefix):
            return None
        return name.removeprefix(self._prefix)

    def topic_id(self, name: str) -> UUID:
        """Return the id of a topic of the namespace."""
        return self._names.topic_id(self._prefix + name)


class FaultFilter:
    """Applies faults to requests and responses; a filter of listeners (`kalda.net.frame_filters`)."""

    def __init__(
        self,
        faults: Faults,
        handlers: Iterable[ApiHandler],
        *,
        broker_id: int,
        names: TopicNames,
    ) -> None:
        self._faults: Final = faults
        self._handlers: Final = {int(handler.key): handler for handler in handlers}
        self._broker_id: Final = broker_id
        self._names: Final = names
        mine = [each for each in faults.faults if each.broker in (None, broker_id)]
        self._concerned: Final = {
            (int(key), source) for fault in mine for key in fault.apis for source in _sources(fault)
        }
        """The APIs that some fault is about, each with who sends the requests."""
        self._header_routes: Final = [
            replace(fault, header=None)
            for fault in mine
            if fault.effect is RequestEffect.ROUTE and fault.header is not None
        ]
        self._sessions_ended: Final = {
            source
            for each in mine
            if ApiKey.FETCH in each.apis and each.code is not None
            for source in _sources(each)
        }
        """Whose Fetch requests have no sessions: the others keep theirs, as replicas mostly do."""

    def on_request(
        self, connection: Connection, header: RequestHeader, body: int, frame: memoryview
    ) -> RequestAction:
        """Return the plan's effect on a request."""
        source = _BROKERS if _is_of_broker(connection) else _CLIENTS
        # What no fault is about is not decoded: most requests in a cluster are replicas' fetches.
        is_concerned = (header.api_key, source) in self._concerned
        handler = self._handlers.get(header.api_key) if is_concerned else None
        if handler is None or not handler.versions[0] <= header.api_version <= handler.versions[1]:
            return Pass()
        spec = registry.spec(handler.key)
        data = bytes(frame)
        try:
            request: Any = codec.decode(
                spec.request_class, header.api_version, memoryview(data), body, allow_excess=True
            )
        except ProtocolError:
            # The dispatcher closes the connection.
            return Pass()
        if header.api_key == ApiKey.FETCH and source in self._sessions_ended:
            if request.session_epoch > 0:
                # The client makes a full request next.
                code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
                return Answer(_reply(header, self._refusal(handler, request, code, header.api_version)))
            is_changed = request.session_epoch == 0
            request.session_id, request.session_epoch = 0, _WITHOUT_SESSION
        else:
            is_changed = False
        names = PlainNames(self._names, prefix_of_listener(connection.listener))
        facts = self._facts(connection, header, request, names)
        if self._loses_sequences(facts):
            strip_producer(request)
            is_changed = True
        each = _Request(handler, header, request, data[:body], is_changed, names)
        fault = self._faults.next(facts)
        if fault is not None:
            logger.debug("fault %s applies to %s of %s", fault.effect.value, header, connection.peer)
            return self._apply(fault, each)
        return self._pass(each)

    def on_response(
        self, connection: Connection, header: RequestHeader, reply: Reply, note: object
    ) -> ResponseAction | None:
        """Return the plan's effect on the response to a request that it passed."""
        assert isinstance(note, _Note), f"a note of another filter: {note}"
        fault = note.fault
        match fault.effect:
            case RequestEffect.LOSE:
                return Close("a fault lost the answer")
            case RequestEffect.TRUNCATE:
                assert fault.size is not None, "checked by the fault"
                return Truncate(fault.size)
            case _:
                return self._changed(connection, header, reply, note)

    # Requests.

    def _facts(
        self, connection: Connection, header: RequestHeader, request: Any, names: TopicNames
    ) -> RequestFacts:
        is_produce = header.api_key == ApiKey.PRODUCE
        return RequestFacts(
            api_key=header.api_key,
            version=header.api_version,
            broker=self._broker_id,
            client=header.client_id,
            is_of_broker=_is_of_broker(connection),
            topics=topics_of(request, names),
            groups=groups_of(request),
            transactional_ids=transactional_ids_of(request),
            has_header=(lambda text: _has_header(request, text)) if is_produce else (lambda _: False),
            producer=producer_of(request) if is_produce else -1,
        )

    def _loses_sequences(self, facts: RequestFacts) -> bool:
        """Return whether some records of the client go to another topic because of their headers.

        The rest would have gaps in the numbers of an idempotent producer.
        """
        if facts.api_key != ApiKey.PRODUCE or facts.transactional_ids:
            return False
        return any(matches(each, facts) for each in self._header_routes)

    def _apply(self, fault: RequestFault, each: "_Request") -> RequestAction:
        """Return a fault's effect on a request."""
        note = _Note(fault, each.message, each.names)
        match fault.effect:
            case RequestEffect.ERROR:
                return self._refuse(fault, each)
            case RequestEffect.DELAY:
                assert fault.milliseconds is not None, "checked by the fault"
                return DelayRequest(fault.milliseconds / 1000, self._pass(each))
            case RequestEffect.DROP:
                return Close("a fault dropped the request")
            case RequestEffect.HANG:
                return Ignore()
            case RequestEffect.ROUTE:
                return self._route(fault, each)
            case (
                RequestEffect.ERROR_AFTER
                | RequestEffect.LOSE
                | RequestEffect.TRUNCATE
                | RequestEffect.THROTTLE
            ):
                return self._pass(each, note)
            case _:
                assert_never(fault.effect)

    def _pass(self, each: "_Request", note: _Note | None = None) -> RequestAction:
        """Pass a request on."""
        return ReplaceRequest(each.encoded(each.message), note) if each.is_changed else Pass(note)

    def _refuse(self, fault: RequestFault, each: "_Request") -> RequestAction:
        """Refuse a request, or the part of it that a fault is about."""
        code = self._code(fault, each.handler.key, each.header.api_version)
        if each.handler.key is ApiKey.METADATA:
            # It also names the brokers, so that the response is made, and its topics get the error.
            return Pass(_Note(fault, each.message, each.names))
        refused, rest = each.message, None
        if fault.is_partial and can_be_divided(each.message):
            choose = self._choice(fault)
            refused = part_of(each.message, each.names, choose)
            rest = part_of(each.message, each.names, lambda *partition: not choose(*partition))
        refusal = self._refusal(each.handler, refused, code, each.header.api_version)
        if refusal is None:
            return Close(f"a fault refused a request without answer with {code.name}")
        if rest is None:
            return Answer(_reply(each.header, refusal))
        return ReplaceRequest(each.encoded(rest), _Note(fault, each.message, each.names, refusal))

    def _refusal(self, handler: ApiHandler, request: Any, code: ErrorCode, version: int) -> Any:
        response = handler.refusal(request, code, version)
        if handler.key is ApiKey.FETCH and response is not None and code not in _SESSION_ERRORS:
            response.error_code = ErrorCode.NONE
        return response

    def _route(self, fault: RequestFault, each: "_Request") -> RequestAction:
        assert fault.to is not None, "checked by the fault"
        if each.message.transactional_id is not None:
            # The other topic is not part of the transaction.
            return self._pass(each)
        choose = self._choice(fault)

        def is_routed(topic: str, partition: Any) -> bool:
            if not choose(topic, partition):
                return False
            return fault.header is None or has_header(partition.records, fault.header)

        routed = route(each.message, each.names, fault.to, is_routed)
        return ReplaceRequest(
            each.encoded(each.message), _Note(fault, each.message, each.names, routed=routed)
        )

    def _choice(self, fault: RequestFault) -> Callable[[str, Any], bool]:
        def is_meant(topic: str, partition: Any) -> bool:
            return concerned(fault, topic, () if partition is None else (index_of(partition),))

        return is_meant

    @staticmethod
    def _code(fault: RequestFault, key: ApiKey, version: int) -> ErrorCode:
        assert fault.code is not None, f"{fault.effect} has an error"
        code = code_for(fault.code, key, version)
        assert code is not None, "a fault matches only APIs that report its condition"
        return code

    # Responses.

    def _changed(
        self, connection: Connection, header: RequestHeader, reply: Reply, note: _Note
    ) -> ResponseAction | None:
        """Return another response, which the broker did not make."""
        data = memory_of(reply)
        if data is None:
            # Records that are converted while they are sent, for a client of Kafka 0.10.
            return None
        key = ApiKey(header.api_key)
        handler = self._handlers[key]
        version = header.api_version
        try:
            response: Any = _read(key, version, data)
            if note.fault.effect is RequestEffect.THROTTLE:
                seconds = (note.fault.milliseconds or 0) / 1000
                if hasattr(response, "throttle_time_ms"):
                    response.throttle_time_ms = note.fault.milliseconds
                connection.mute(seconds)
            elif note.routed is not None:
                note.routed.undo(response, note.names)
            elif note.refusal is not None:
                merge(response, note.refusal)
            else:
                response = self._with_error(handler, note, response, version)
            if response is None:
                return None
            return ReplaceResponse(_reply(header, response))
        except (ProtocolError, MessageError) as error:
            logger.warning("a fault cannot change the response of %s: %s", key.title, error)
            return None

    def _with_error(self, handler: ApiHandler, note: _Note, response: Any, version: int) -> Any:
        """Return the response with an error, although the broker has performed the request."""
        fault = note.fault
        code = self._code(fault, handler.key, version)
        if handler.key is ApiKey.METADATA:
            is_partial = fault.is_partial

            def is_meant(topic: Any) -> bool:
                return not is_partial or concerned(fault, name_of(topic, note.names), (fault.partition or 0,))

            set_topic_errors(response, code, is_meant)
            return response
        if not fault.is_partial or not can_be_divided(note.request):
            return self._refusal(handler, note.request, code, version)
        refused = part_of(note.request, note.names, self._choice(fault))
        if refused is not None:
            merge(response, self._refusal(handler, refused, code, version))
        return response


@dataclass(frozen=True, slots=True)
class _Request:
    """A request to which a fault applies."""

    handler: ApiHandler
    header: RequestHeader
    message: Any
    head: bytes
    """The header as it came."""
    is_changed: bool
    """Whether the message is another than the one that came."""
    names: TopicNames
    """The ids of the topics as the client names them."""

    def encoded(self, message: Any) -> bytes:
        """Return the frame of another message with the same header."""
        return self.head + codec.encode(message, self.header.api_version)


def _sources(fault: RequestFault) -> tuple[str, ...]:
    """Return which of clients and brokers send the requests that a fault is about."""
    return (_CLIENTS, _BROKERS) if fault.source == "all" else (fault.source,)


def _is_of_broker(connection: Connection) -> bool:
    return connection.software[0] == BROKER_SOFTWARE_NAME


def _has_header(request: Any, text: str) -> bool:
    return any(
        has_header(partition.records, text)
        for topic in request.topic_data
        for partition in topic.partition_data
    )


def _read(key: ApiKey, version: int, reply: bytes) -> Any:
    """Return the message of a reply.

    Raises:
        ProtocolError: it is not of this version, as where ApiVersions answers an unknown one.
    """
    header_version = registry.response_header_version(key, version)
    _, position = read_response_header(reply, header_version, framing.SIZE_BYTES)
    return codec.decode(registry.spec(key).response_class, version, memoryview(reply), position)


def _reply(header: RequestHeader, response: Any) -> bytes:
    version = registry.response_header_version(header.api_key, header.api_version)
    head = response_header(header.correlation_id, version)
    return framing.frame([head, codec.encode(response, header.api_version)])
