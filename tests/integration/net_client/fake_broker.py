"""A broker on a real socket that answers as a test says: late, never, with junk, or in old versions."""

import asyncio
import socket
import struct
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.protocol import codec, headers, registry
from kalda.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from kalda.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from kalda.protocol.schema import Message

NEVER = "never"
"""Instead of a response: none comes."""
CLOSE = "close"
"""Instead of a response: the connection is closed."""

Reply = Message | bytes | str
"""A response, the bytes that take its place (the size is not added), `NEVER` or `CLOSE`."""
Handler = Callable[[Message], Reply]

VERSIONS = {ApiKey.METADATA: (0, 12), ApiKey.FIND_COORDINATOR: (0, 4), ApiKey.API_VERSIONS: (0, 3)}


class FakeBroker:
    """Serves from `__aenter__` to `__aexit__`; counts what arrives."""

    def __init__(
        self,
        handler: Handler,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        versions: Mapping[ApiKey, tuple[int, int]] | None = None,
    ) -> None:
        self.handler = handler
        self.host = host
        self.port = port
        self.versions = VERSIONS if versions is None else versions
        self.connections = 0
        self.requests: list[Message] = []
        self.request_versions: list[tuple[ApiKey, int]] = []
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def open_count(self) -> int:
        """Connections that are open now."""
        return len(self._writers)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen, on the same port as before."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        self._server = await asyncio.start_server(self._serve, self.host, self.port, family=family)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the listener and all connections."""
        if self._server is not None:
            self._server.close()
            for writer in list(self._writers):
                writer.transport.abort()
            if self._tasks:
                await asyncio.wait(self._tasks)
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                reply = self._reply(await reader.readexactly(size))
                if reply == CLOSE:
                    return
                if isinstance(reply, bytes):
                    writer.write(reply)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            self._writers.discard(writer)

    def _reply(self, frame: bytes) -> bytes | str:
        header, position = headers.read_request_header(frame)
        api_key, version = ApiKey(header.api_key), header.api_version
        self.request_versions.append((api_key, version))
        if api_key is ApiKey.API_VERSIONS:
            version, reply = self._answer_versions(version)
        else:
            request = codec.decode(registry.spec(api_key).request_class, version, frame, position)
            self.requests.append(request)
            reply = self.handler(request)
        if not isinstance(reply, Message):
            return reply
        header_version = registry.response_header_version(api_key, version)
        payload = headers.response_header(header.correlation_id, header_version) + codec.encode(
            reply, version
        )
        return struct.pack(">i", len(payload)) + payload

    def _answer_versions(self, version: int) -> tuple[int, Reply]:
        highest = self.versions[ApiKey.API_VERSIONS][1]
        keys = [
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in self.versions.items()
        ]
        if version > highest:
            return 0, ApiVersionsResponse(error_code=int(ErrorCode.UNSUPPORTED_VERSION), api_keys=keys)
        return version, ApiVersionsResponse(api_keys=keys)


def cluster_of(*brokers: FakeBroker, controller_id: int = 0) -> MetadataResponse:
    """Return metadata that lists the brokers as 0, 1, …, without topics."""
    return MetadataResponse(
        cluster_id="fake",
        controller_id=controller_id,
        brokers=[
            MetadataResponseBroker(node_id=index, host=each.host, port=each.port)
            for index, each in enumerate(brokers)
        ],
    )


def metadata_of(brokers: list[FakeBroker]) -> Handler:
    """Answer Metadata with the brokers that the list holds at that moment, and nothing else."""
    return lambda request: cluster_of(*brokers) if isinstance(request, MetadataRequest) else NEVER
