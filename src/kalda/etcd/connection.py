"""Calls one server of etcd over gRPC. A connection has a channel of its own and is not used after an error.

gRPC's own reconnects are not used: which server comes next, and what a lost connection means for calls
without a response, is for the client of the session to decide.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final

import grpc
import grpc.aio

from kalda.etcd import messages
from kalda.etcd.link import (
    CompactedError,
    LeaseGoneError,
    LinkLostError,
    LoginRefusedError,
    OpenLink,
    RefusedError,
)
from kalda.etcd.messages import TxnResponse, WatchResponse
from kalda.etcd.protobuf import ProtobufError
from kalda.etcd.security import EtcdSecurity

_OPTIONS: Final = (
    # A response may have as many keys as a znode has children.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Connections must not wait for each other's pauses after failures.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
)

_NEEDS_LEADER: Final = (("hasleader", "true"),)
"""etcd ends a stream of a server that has lost the leader."""

_COMPACTED: Final = "required revision has been compacted"


class EtcdConnection:
    """A connection to one server; implements `EtcdLink`, which documents the methods."""

    def __init__(self, endpoint: str, security: EtcdSecurity, timeout_seconds: float) -> None:
        self.endpoint: Final = endpoint
        self._security: Final = security
        self._timeout: Final = timeout_seconds
        if security.uses_tls:
            credentials = grpc.ssl_channel_credentials(
                security.authorities, security.private_key, security.certificate
            )
            self._channel = grpc.aio.secure_channel(endpoint, credentials, options=_OPTIONS)
        else:
            self._channel = grpc.aio.insecure_channel(endpoint, options=_OPTIONS)
        self._metadata: tuple[tuple[str, str], ...] = ()
        self._txn: Final = self._unary("KV/Txn")

    async def close(self) -> None:
        """Close the channel; outstanding calls fail."""
        await self._channel.close()

    async def log_in(self) -> None:
        """Get a token, if there is a user."""
        if not self._security.user:
            return
        request = messages.authenticate(self._security.user, self._security.password)
        try:
            token = messages.read_token(await self._call(self._unary("Auth/Authenticate"), request))
        except RefusedError as error:
            raise LoginRefusedError(f"`etcd.user`={self._security.user}: {error.details}") from None
        self._metadata = (("token", token),)

    async def txn(self, request: bytes) -> TxnResponse:
        """Run a transaction."""
        return messages.read_txn(await self._call(self._txn, request))

    async def grant(self, ttl_seconds: int) -> tuple[int, int]:
        """Get a lease."""
        return messages.read_lease_grant(
            await self._call(self._unary("Lease/LeaseGrant"), messages.lease_grant(ttl_seconds))
        )

    async def revoke(self, lease: int) -> None:
        """End a lease."""
        try:
            await self._call(self._unary("Lease/LeaseRevoke"), messages.lease_id(lease))
        except LeaseGoneError:
            return

    async def keep_alive(self, lease: int, interval_seconds: float, silence_seconds: float) -> None:
        """Keep a lease alive until it is over."""
        call = self._stream("Lease/LeaseKeepAlive")
        request = messages.lease_id(lease)
        try:
            while True:
                async with asyncio.timeout(silence_seconds):
                    await call.write(request)
                    response = await call.read()
                if response is grpc.aio.EOF:
                    raise LinkLostError(f"{self.endpoint} ended the stream of keep-alives")
                if messages.read_lease_grant(response)[1] <= 0:
                    raise LeaseGoneError(f"lease {lease:#x} is over")
                await asyncio.sleep(interval_seconds)
        except grpc.aio.AioRpcError as error:
            raise self._error_of(error) from None
        except (TimeoutError, ProtobufError, asyncio.InvalidStateError) as error:
            raise LinkLostError(f"{self.endpoint} does not answer keep-alives: {error!r}") from None
        finally:
            call.cancel()

    async def watch(self, key: bytes, end: bytes, start_revision: int) -> AsyncGenerator[WatchResponse]:
        """Watch the keys in [key, end) from a revision on."""
        call = self._stream("Watch/Watch")
        try:
            async with asyncio.timeout(self._timeout):
                await call.write(messages.watch_create(key, end, start_revision))
                first = await call.read()
            message = first
            while message is not grpc.aio.EOF:
                response = messages.read_watch(message)
                if response.compact_revision:
                    raise CompactedError(f"revision {start_revision} of etcd is compacted")
                if response.canceled:
                    raise LinkLostError(f"{self.endpoint} ended the watch: {response.cancel_reason}")
                yield response
                message = await call.read()
            raise LinkLostError(f"{self.endpoint} ended the stream of watches")
        except grpc.aio.AioRpcError as error:
            raise self._error_of(error) from None
        except (TimeoutError, ProtobufError, asyncio.InvalidStateError) as error:
            raise LinkLostError(f"{self.endpoint} does not answer a watch: {error!r}") from None
        finally:
            call.cancel()

    async def _call(self, method: Any, request: bytes) -> bytes:
        try:
            response: bytes = await method(request, timeout=self._timeout, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            raise self._error_of(error) from None
        except grpc.aio.UsageError as error:
            raise LinkLostError(f"{self.endpoint}: {error}") from None
        return response

    def _error_of(self, error: grpc.aio.AioRpcError) -> Exception:
        code, details = error.code(), error.details() or ""
        if "requested lease not found" in details:
            return LeaseGoneError(details)
        if _COMPACTED in details:
            return CompactedError(details)
        if code in _REFUSALS and "etcdserver" in details and "too many requests" not in details:
            if code is grpc.StatusCode.UNAUTHENTICATED or "invalid auth token" in details:
                return LinkLostError(f"{self.endpoint}: {details}")
            return RefusedError(code.name, details)
        return LinkLostError(f"{self.endpoint}: {code.name.lower().replace('_', ' ')}: {details}")

    def _unary(self, method: str) -> Any:
        return self._channel.unary_unary(f"/etcdserverpb.{method}")

    def _stream(self, method: str) -> Any:
        stream = self._channel.stream_stream(f"/etcdserverpb.{method}")
        return stream(metadata=(*self._metadata, *_NEEDS_LEADER))


def grpc_links(security: EtcdSecurity) -> OpenLink:
    """Return a function that opens connections over gRPC."""
    return lambda endpoint, timeout_seconds: EtcdConnection(endpoint, security, timeout_seconds)


_REFUSALS: Final = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.UNAUTHENTICATED,
    }
)
"""What etcd answers before it proposes a request to the cluster, or instead of applying it."""
