"""One connection to one broker, by sockets alone: what may this user do here, now?

A client library chooses brokers, retries and keeps connections; whether each single broker knows a new
password, certificate or permission is not visible through it. A visit logs in and asks one thing.
"""

import asyncio
import socket
import ssl
import struct
from types import TracebackType
from typing import Final, Self

from kalda.broker.process.secure import login
from kalda.common.errors import ErrorCode
from kalda.net.client.client_errors import SaslAuthenticationError
from kalda.net.client.frame_receiver import FrameReceiver
from kalda.net.client.new_login import new_login
from kalda.net.client.sasl_login import log_in
from kalda.protocol.client_connection import ClientConnection
from kalda.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kalda.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kalda.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kalda.protocol.schema import Message
from kalda.security.sasl.jaas import JaasConfig
from kalda.security.sasl.mechanism import SCRAM_SHA_512

OWN_ADDRESS: Final = "127.0.0.1"
STRANGERS_ADDRESS: Final = "127.0.0.2"
"""Where visits come from that are to be refused, so that the audit log tells them from all others."""
VISIT_SECONDS: Final = 5.0

_SIZE: Final = struct.Struct(">i")
_HANDSHAKE_VERSION: Final = 1
_METADATA_VERSION: Final = 9
_GROUPS_VERSION: Final = 5


class NoAnswerError(Exception):
    """The broker could not be reached, or did not answer in time; nothing is known."""


class _ClosedWithoutUser(ssl.SSLSocket):
    """Closes when nothing refers to it any more.

    Where the peer has reset the connection already, `wrap_socket` raises and leaves its socket open, which
    nobody else has got.
    """

    def __del__(self) -> None:
        self.close()


class Visit:
    """An open connection over TLS, logged in unless the broker refused that."""

    def __init__(self, address: str, tls: ssl.SSLContext, source: str = OWN_ADDRESS) -> None:
        """Connect.

        Raises:
            NoAnswerError: there is no connection.
        """
        host, _, port = address.rpartition(":")
        self._address: Final = address
        self._protocol: Final = ClientConnection("visit")
        self._receiver: Final = FrameReceiver()
        self._versions: dict[int, int] = {}
        try:
            tls.sslsocket_class = _ClosedWithoutUser
            plain = socket.create_connection((host, int(port)), VISIT_SECONDS, (source, 0))
            try:
                self._socket: Final = tls.wrap_socket(plain, server_hostname=host)
            except BaseException:
                plain.close()
                raise
        except OSError as error:
            raise NoAnswerError(f"{address}: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    @property
    def certificate(self) -> bytes:
        """The certificate that the broker showed, in DER."""
        return self._socket.getpeercert(binary_form=True) or b""

    def is_accepted(self) -> bool:
        """Return whether the broker takes the certificate that this visit shows.

        Raises:
            NoAnswerError: the connection broke.
        """
        try:
            self._ask(ApiVersionsRequest(), 0)
        except NoAnswerError as error:
            if isinstance(error.__cause__, ssl.SSLError) and "ALERT" in (error.__cause__.reason or ""):
                return False
            raise
        return True

    def log_in(self, user: str, password: str, *, is_token: bool = False) -> bool:
        """Return whether the broker takes this user and password.

        Raises:
            NoAnswerError: the connection broke.
        """
        module = login("scram.Scram", user, password)
        if is_token:
            module = module.replace(";", ' tokenauth="true";')
        client = new_login(SCRAM_SHA_512, JaasConfig.parse(module), lambda _: None)

        async def exchange(request: Message, version: int) -> Message:
            return self._ask(request, version)

        response = self._ask(ApiVersionsRequest(), 0)
        assert isinstance(response, ApiVersionsResponse), f"a {type(response).__name__}"
        try:
            asyncio.run(log_in(self._address, client("broker"), exchange, lambda _: _HANDSHAKE_VERSION))
        except SaslAuthenticationError:
            return False
        return True

    def topic_error(self, topic: str) -> ErrorCode:
        """Return what the broker answers about a topic.

        Raises:
            NoAnswerError: the connection broke.
        """
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        response = self._ask(request, _METADATA_VERSION)
        assert isinstance(response, MetadataResponse), f"a {type(response).__name__}"
        return ErrorCode.of(response.topics[0].error_code)

    def group_error(self, group: str) -> ErrorCode:
        """Return what the broker answers about a group.

        Raises:
            NoAnswerError: the connection broke.
        """
        response = self._ask(
            DescribeGroupsRequest(groups=[group], include_authorized_operations=False), _GROUPS_VERSION
        )
        assert isinstance(response, DescribeGroupsResponse), f"a {type(response).__name__}"
        return ErrorCode.of(response.groups[0].error_code)

    def _ask(self, request: Message, version: int) -> Message:
        try:
            self._socket.sendall(b"".join(self._protocol.send_parts(request, version)))
            while True:
                received = self._socket.recv(len(self._receiver.room()))
                if not received:
                    raise NoAnswerError(f"{self._address} closed the connection")
                self._receiver.room()[: len(received)] = received
                for frame in self._receiver.received(len(received)):
                    return self._protocol.receive_frame(frame)[1]
        except OSError as error:
            raise NoAnswerError(f"{self._address}: {error}") from error
