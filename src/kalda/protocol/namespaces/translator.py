"""Translates the requests and responses of one connection: `Translator`."""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from kalda.common.api_keys import ApiKey
from kalda.common.types import UUID
from kalda.protocol import codec, registry
from kalda.protocol.framing import SIZE_BYTES, frame_parts
from kalda.protocol.headers import RequestHeader, read_response_header
from kalda.protocol.namespaces import frames, special_requests
from kalda.protocol.namespaces.frames import Chunk
from kalda.protocol.namespaces.message_plan import to_plain, to_stored, translates
from kalda.protocol.namespaces.names import REFUSED
from kalda.protocol.namespaces.namespace import Namespace
from kalda.protocol.namespaces.special_requests import Broker
from kalda.protocol.protocol_errors import MessageError, ProtocolError


class NamespaceError(Exception):
    """A request that cannot be translated; the connection closes. The message says why."""


class RequestNote(NamedTuple):
    """The facts about a request that are needed to translate its response."""

    api_key: ApiKey
    version: int
    has_masked: bool = False
    """Whether the client sent the id of a topic of another namespace: the response has it too."""
    special: object = None


class Translator:
    """Adds the prefix of a namespace to what its clients send, and takes it from what they get."""

    __slots__ = ("_broker", "_space")

    def __init__(self, space: Namespace, broker: Broker) -> None:
        self._space: Final = space
        self._broker: Final = broker

    def request(
        self, header: RequestHeader, body: int, frame: memoryview
    ) -> tuple[memoryview, RequestNote] | None:
        """Return a request as the broker is to get it; None if nothing in it or its response is a name.

        The frame of the client is changed only where the ids of foreign topics are masked. A request that the
        broker refuses, because it does not know its API or version, is none of the translator's.

        Raises:
            NamespaceError: the request is malformed, or not one of a client.
        """
        try:
            api = registry.spec(header.api_key)
        except KeyError:
            return None
        key, version = api.api_key, header.api_version
        if key in REFUSED:
            raise NamespaceError(f"{key.title} is a request of brokers, not of the clients of a namespace")
        has_names, response_has_names = translates(key)
        if not api.versions.includes(version) or not (has_names or response_has_names):
            return None
        try:
            if key is ApiKey.PRODUCE or key is ApiKey.FETCH:
                return self._records(key, header, body, frame)
            if not has_names:
                return frame, RequestNote(key, version)
            return self._message(api, header, frame, body)
        except (ProtocolError, MessageError, struct.error, IndexError, UnicodeDecodeError) as error:
            raise NamespaceError(f"{key.title} v{version} cannot be translated: {error}") from None

    def response(self, note: RequestNote, chunks: Sequence[Chunk], *, has_masked: bool) -> Sequence[Chunk]:
        """Return a response, size included, as the client is to get it.

        `has_masked` is whether the connection has sent the id of a foreign topic before: a fetch session
        remembers it.

        Raises:
            ProtocolError: the broker's response is not one to the request.
        """
        key, version = note.api_key, note.version
        if not chunks or not translates(key)[1]:
            return chunks
        if key is ApiKey.FETCH:
            if version >= frames.NAMES_BELOW and not has_masked:
                return chunks
            return frames.fetch_response(self._space, chunks, version)
        if key is ApiKey.SHARE_FETCH:
            return frames.share_fetch_response(self._space, chunks)
        frame = b"".join(map(_in_memory, chunks))
        if key is ApiKey.PRODUCE:
            has_names = version < frames.NAMES_BELOW or self._space.prefix_bytes in frame
            if not has_names and not note.has_masked:
                return chunks
            return [frames.produce_response(self._space, memoryview(bytearray(frame)), version)]
        header_version = registry.response_header_version(key, version)
        _, position = read_response_header(frame, header_version, SIZE_BYTES)
        response = codec.decode(registry.spec(key).response_class, version, frame, position)
        to_plain(self._space, self._broker, response, version)
        special_requests.after(self._space, self._broker, response, note.special)
        return [b"".join(frame_parts([frame[SIZE_BYTES:position], *codec.encode_parts(response, version)]))]

    def _records(
        self, key: ApiKey, header: RequestHeader, body: int, frame: memoryview
    ) -> tuple[memoryview, RequestNote]:
        has_masked = False

        def is_foreign(raw: bytes) -> bool:
            nonlocal has_masked
            name = self._broker.topic_name(UUID(bytes=raw))
            if name is None or self._space.has(name):
                return False
            has_masked = True
            return True

        rewrite = frames.produce_request if key is ApiKey.PRODUCE else frames.fetch_request
        version = header.api_version
        translated = rewrite(self._space, is_foreign, frame, body, version)
        return translated, RequestNote(key, version, has_masked)

    def _message(
        self, api: registry.ApiSpec, header: RequestHeader, frame: memoryview, position: int
    ) -> tuple[memoryview, RequestNote]:
        version = header.api_version
        request = codec.decode(api.request_class, version, frame, position, allow_excess=True)
        to_stored(self._space, self._broker, request, version)
        special = special_requests.before(self._space, self._broker, request, version)
        body = codec.encode_parts(request, version)
        # Writable, as a frame that was received is.
        translated = bytearray(b"".join((frame[:position], *body)))
        return memoryview(translated), RequestNote(api.api_key, version, special=special)


def _in_memory(chunk: Chunk) -> bytes | bytearray | memoryview:
    assert isinstance(chunk, (bytes, bytearray, memoryview)), f"only fetches have records, not {chunk!r}"
    return chunk
