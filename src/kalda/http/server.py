"""Serves the application with uvicorn, on the running event loop, until a signal asks it to end."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from types import TracebackType
from typing import Final, Self

import uvicorn
from starlette.types import ASGIApp

from kalda.common.overriding import override
from kalda.http.application import create_application
from kalda.http.connection import HttpConnection
from kalda.http.lifetime import Lifetime
from kalda.http.services import Services, open_services
from kalda.http.settings import HttpSettings
from kalda.runtime.system.garbage import collecting_in_steps

logger: Final = logging.getLogger(__name__)

BACKLOG: Final = 2048

_HEADERS: Final = (
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
)
"""Of every response; the server adds them, which costs less than a layer of the application."""


class ListenError(Exception):
    """The server cannot listen on its address."""


class HttpServer:
    """One listener with its application; a context manager that listens, and drains at the end."""

    def __init__(self, application: ASGIApp, settings: HttpSettings, lifetime: Lifetime) -> None:
        """
        Args:
            application: The application.
            settings: The settings of the listener.
            lifetime: Its end begins with the server's, so that streams do not hold it up.

        Raises:
            ConfigError: the settings of TLS are not valid.
        """
        listener = settings.listener
        self._host: Final = listener.host
        self._port: Final = listener.port
        config = uvicorn.Config(
            application,
            http=HttpConnection,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            headers=list(_HEADERS),
            backlog=BACKLOG,
            limit_concurrency=settings.http_connections_max,
            timeout_keep_alive=max(1, settings.http_keep_alive_ms // 1000),
            timeout_graceful_shutdown=max(1, settings.http_drain_ms // 1000),
            ws_max_size=settings.http_request_bytes_max,
        )
        config.load()
        config.ssl = settings.listener_tls()
        self._server: Final = _Server(config)
        self._lifetime: Final = lifetime
        self._task: asyncio.Task[None] | None = None
        self._socket: socket.socket | None = None
        self.address = ""
        """``HOST:PORT``, once the server listens."""
        self.port = listener.port

    async def __aenter__(self) -> Self:
        """Take the address; `start` begins to serve.

        Raises:
            ListenError: the address cannot be used.
        """
        try:
            bound = await asyncio.to_thread(_bind, self._host, self._port)
        except OSError as error:
            reason = error.strerror or error
            raise ListenError(f"cannot listen on {self._host}:{self._port}: {reason}") from None
        host, self.port = bound.getsockname()[:2]
        self.address = f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"
        self._socket = bound
        return self

    async def start(self) -> None:
        """Begin to serve; returns when the server accepts connections."""
        assert self._socket is not None, "it was entered"
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]), name="http server")
        serving = asyncio.create_task(self._server.is_serving.wait())
        await asyncio.wait((self._task, serving), return_when=asyncio.FIRST_COMPLETED)
        serving.cancel()
        if self._task.done():
            self._task.result()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Accept no more, wait for the responses under way, and close the connections."""
        self._lifetime.stop()
        self._server.should_exit = True
        if self._task is not None:
            await asyncio.shield(self._task)
        elif self._socket is not None:
            self._socket.close()

    def request_stop(self) -> None:
        """Begin to end; a second call closes the connections at once."""
        if self._server.should_exit:
            self._server.force_exit = True
        self._lifetime.stop()
        self._server.should_exit = True


class _Server(uvicorn.Server):
    """uvicorn's server without its signal handlers: the process has its own."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_serving: Final = asyncio.Event()

    @override
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_serving.set()


async def serve(settings: HttpSettings, ready: Callable[[str], None], *, is_supervised: bool = False) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP; a second signal does not wait for responses.

    Args:
        settings: All of them.
        ready: Called with ``HOST:PORT`` when the server accepts requests.
        is_supervised: Whether to end as well when stdin, a pipe that the parent holds, is closed.

    Raises:
        ConfigError: a setting is not allowed.
        ListenError: the address cannot be used.
        ClientError: the cluster cannot be reached, or refuses what the server needs.
    """
    # It writes several lines of its own about its start and end.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    stop = asyncio.Event()
    # A page of a large cluster makes 100,000 objects and more, and collections would hold all requests up.
    with collecting_in_steps():
        async with open_services(settings) as services, serving(services) as server:

            def request_stop() -> None:
                if stop.is_set():
                    server.request_stop()
                stop.set()

            with _signals(request_stop, is_supervised=is_supervised):
                ready(server.address)
                await stop.wait()
                logger.info("shutting down: waiting for responses under way")
                await server.close()


@contextlib.asynccontextmanager
async def serving(services: Services) -> AsyncIterator[HttpServer]:
    """Start the services and serve for as long as the block lasts; raises as `serve`."""
    settings = services.settings
    async with HttpServer(create_application(services), settings, services.lifetime) as server:
        if "registry" in settings.http_parts:
            await services.registry.start(server.port)
        await server.start()
        yield server


@contextlib.contextmanager
def _signals(request_stop: Callable[[], None], *, is_supervised: bool) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)

    def on_stdin() -> None:
        with contextlib.suppress(BlockingIOError):
            if os.read(sys.stdin.fileno(), 1024):
                return
            loop.remove_reader(sys.stdin.fileno())
            request_stop()

    for number in numbers:
        loop.add_signal_handler(number, request_stop)
    if is_supervised:
        os.set_blocking(sys.stdin.fileno(), False)
        loop.add_reader(sys.stdin.fileno(), on_stdin)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
            # A late signal must not turn a finished shutdown into a failure.
            signal.signal(number, signal.SIG_IGN)


def _bind(host: str, port: int) -> socket.socket:
    """Return a socket that is bound; in a thread, since a name may have to be looked up."""
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.setblocking(False)
    except OSError:
        bound.close()
        raise
    return bound
