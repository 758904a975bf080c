"""Runs `kalda http` for tests: as a process, or its application on a loop of its own in this process."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from kalda.http.server import serving
from kalda.http.services import Services, open_services
from kalda.http.settings import HttpSettings
from kalda.testing.security import ClientConfigs
from tests import forked_commands

_READY = "kalda ready http="


@dataclass
class HttpProcess:
    """One process of `kalda http`; `start` and `kill` may be called again and again."""

    cluster: ClientConfigs
    directory: Path
    settings: Mapping[str, str]
    user: str = "admin"
    port: int = 0
    """The port of the first start is kept."""
    process: "subprocess.Popen[str] | None" = None

    @property
    def address(self) -> str:
        """``HOST:PORT``."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The address of the server, without a slash at its end."""
        return f"http://{self.address}"

    def start(self) -> None:
        """Start the process and return when it serves."""
        self.start_nowait()
        self.wait_ready()

    def start_nowait(self) -> None:
        """Start the process; `wait_ready` must follow."""
        self.directory.mkdir(parents=True, exist_ok=True)
        properties = self.directory / "client.properties"
        config = self.cluster.client_config(self.user)
        properties.write_text("".join(f"{name}={text}\n" for name, text in config.items()))
        command = [sys.executable, "-m", "kalda", "http", "--port", str(self.port)]
        command += ["--command-config", str(properties)]
        for name, text in self.settings.items():
            command += ["--set", f"{name}={text}"]
        with (self.directory / "http.log").open("a") as log:
            self.process = forked_commands.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def wait_ready(self) -> None:
        """Return when the process serves."""
        assert self.process is not None
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith(_READY), f"{line!r}; its log:\n{self.log()}"
        self.port = int(line.strip().rpartition(":")[2])

    def kill(self) -> None:
        """End the process as a crash would."""
        self._end(kill=True)

    def stop(self) -> int:
        """End the process by SIGTERM; return its exit code."""
        return self._end(kill=False)

    def log(self) -> str:
        """Return what the process logged, over all its starts."""
        return (self.directory / "http.log").read_text()

    def _end(self, *, kill: bool) -> int:
        assert self.process is not None
        (self.process.kill if kill else self.process.terminate)()
        code = self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process = None
        return code


@dataclass(frozen=True)
class HttpCluster:
    """A cluster with one process of `kalda http`."""

    cluster: ClientConfigs
    address: str
    """``HOST:PORT`` of the server."""

    @property
    def url(self) -> str:
        """The address of the server, without a slash at its end."""
        return f"http://{self.address}"

    @property
    def bootstrap(self) -> str:
        """The address of the brokers."""
        return self.cluster.bootstrap

    def auth(self, user: str) -> tuple[str, str]:
        """Return user and password of a secured cluster, as HTTP clients take them."""
        assert self.cluster.secured is not None
        return user, self.cluster.secured.passwords[user]


@dataclass(frozen=True)
class InProcessHttp(HttpCluster):
    """A cluster whose server runs in the test's process."""

    services: Services
    loop: asyncio.AbstractEventLoop


@contextmanager
def http_process(
    cluster: ClientConfigs, directory: Path, settings: Mapping[str, str] | None = None, *, user: str = "admin"
) -> Iterator[HttpProcess]:
    """Run `kalda http` as a process, which acts as `user`, on a free port."""
    process = HttpProcess(cluster, directory, settings or {}, user)
    process.start()
    try:
        yield process
    finally:
        code = 0 if process.process is None else process.stop()
    assert 0 == code, process.log()


@contextmanager
def served(
    cluster: ClientConfigs, settings: Mapping[str, str] | None = None, *, user: str = "admin"
) -> Iterator[InProcessHttp]:
    """Serve a cluster over HTTP in this process, in a thread, on a free port; it acts as `user`."""
    given = HttpSettings.read(dict(settings or {}), cluster.client_config(user), port=0)
    started: list[InProcessHttp] = []
    errors: list[BaseException] = []
    is_done = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def main() -> None:
        async with AsyncExitStack() as stack:
            services = await stack.enter_async_context(open_services(given))
            server = await stack.enter_async_context(serving(services))
            started.append(InProcessHttp(cluster, server.address, services, loop))
            is_done.set()
            await stop.wait()

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(main())
        except BaseException as error:
            errors.append(error)
        finally:
            is_done.set()

    thread = threading.Thread(target=run, name="http server")
    thread.start()
    is_done.wait()
    try:
        if not started:
            raise errors[0]
        yield started[0]
    finally:
        if started and thread.is_alive():
            loop.call_soon_threadsafe(stop.set)
        thread.join()
    if errors:
        raise errors[0]
