"""Translates the requests and responses of one connection: `Translator`."""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from kalda.common.api_keys import ApiKey
from kalda.common.types import UUID
from kalda.protocol import codec, registry
from kalda.protocol.framing import SIZE_BYTES, frame_parts
from kalda.protocol.headers import RequestHeader, read_request_header, read_response_header
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
    """What a translator needs to know of a request when its response comes."""

    api_key: int
    version: int
    special: object = None


class Translator:
    """Adds the prefix of a namespace to what a client sends, and takes it from what the client gets."""

    __slots__ = ("_broker", "_has_masked", "_space")

    def __init__(self, space: Namespace, broker: Broker) -> None:
        self._space: Final = space
        self._broker: Final = broker
        self._has_masked = False
        """Whether the client sent the id of a topic of another namespace: responses may have it too."""

    def request(self, frame: memoryview) -> tuple[memoryview, RequestNote]:
        """Return a request, without its size, as the broker is to get it.

        The frame of a client is changed only where the ids of foreign topics are masked. A request that the
        broker refuses, because it does not know its API or version, is returned as it is.

        Raises:
            NamespaceError: the request is malformed, or not one of a client.
        """
        try:
            header, position = read_request_header(frame)
            note = RequestNote(header.api_key, header.api_version)
            try:
                api = registry.spec(header.api_key)
            except KeyError:
                return frame, note
            if api.api_key in REFUSED:
                raise NamespaceError(f"{api.api_key.title} is a request of brokers")
            if not api.versions.includes(header.api_version) or not translates(api.api_key)[0]:
                return frame, note
            if api.api_key is ApiKey.PRODUCE or api.api_key is ApiKey.FETCH:
                rewrite = frames.produce_request if api.api_key is ApiKey.PRODUCE else frames.fetch_request
                return rewrite(self._space, self._is_foreign, frame, position, header.api_version), note
            return self._message(api, header, frame, position)
        except (ProtocolError, MessageError, struct.error, IndexError) as error:
            raise NamespaceError(f"a request of namespace {self._space.name} is malformed: {error}") from None

    def response(self, note: RequestNote, chunks: Sequence[Chunk]) -> Sequence[Chunk]:
        """Return a response, size included, as the client is to get it.

        Raises:
            ProtocolError: the broker's response is not one to the request.
        """
        key, version = note.api_key, note.version
        if key == ApiKey.FETCH:
            if version >= frames.NAMES_BELOW and not self._has_masked:
                return chunks
            return frames.fetch_response(self._space, chunks, version)
        try:
            api = registry.spec(key)
        except KeyError:
            return chunks
        if not chunks or not translates(api.api_key)[1] or not api.versions.includes(version):
            return chunks
        frame = b"".join(chunk for chunk in chunks if isinstance(chunk, (bytes, bytearray, memoryview)))
        if key == ApiKey.PRODUCE:
            has_names = version < frames.NAMES_BELOW or self._space.prefix_bytes in frame
            if not has_names and not self._has_masked:
                return chunks
            return [frames.produce_response(self._space, memoryview(bytearray(frame)), version)]
        header_version = registry.response_header_version(api.api_key, version)
        _, position = read_response_header(frame, header_version, SIZE_BYTES)
        response = codec.decode(api.response_class, version, frame, position)
        to_plain(self._space, self._broker, response, version)
        special_requests.after(self._space, self._broker, response, note.special)
        return [b"".join(frame_parts([frame[SIZE_BYTES:position], *codec.encode_parts(response, version)]))]

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
        return memoryview(translated), RequestNote(api.api_key, version, special)

    def _is_foreign(self, raw: bytes) -> bool:
        name = self._broker.topic_name(UUID(bytes=raw))
        if name is None or self._space.has(name):
            return False
        self._has_masked = True
        return True
