"""The coordination server in a process of its own, to be killed: ``python -m`` this module, or the class.

`kalda zookeeper` does the same for users; here are settings that tests need, and nothing that could stand
between a test and the server.
"""

import argparse
import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from kalda.runtime.system.background import EventLoopExecutor
from kalda.runtime.system.clock import SystemClock
from kalda.runtime.system.filesystem import OsFileSystem
from kalda.zookeeper.server.config import ZooKeeperConfig
from kalda.zookeeper.server.embedded import EmbeddedServer
from kalda.zookeeper.server.listener import ZooKeeperListener
from tests import forked_commands

START_SECONDS_MAX = 20.0


class CoordinationServer:
    """One server; `stop`, `kill` and `start` keep its directory and its port."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.port = 0
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server runs"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        arguments = [sys.executable, "-m", __name__, str(self.directory), str(self.port)]
        arguments += [f"{name}={value}" for name, value in self._settings.items()]
        root = Path(__file__).parents[3]
        self._process = forked_commands.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=root)
        assert self._process.stdout is not None, "stdout is a pipe"
        line = self._process.stdout.readline()
        assert line, "the server ended instead of starting"
        self.port = int(line)

    def stop(self) -> int:
        """End it in good order and return its exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def signal(self, number: int) -> None:
        assert self._process is not None, "the server runs"
        self._process.send_signal(number)

    def _end(self, number: int) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        code = process.wait(timeout=START_SECONDS_MAX)
        assert process.stdout is not None, "stdout is a pipe"
        process.stdout.close()
        return code


@contextlib.contextmanager
def running_server(
    directory: Path, settings: Mapping[str, str] | None = None
) -> Iterator[CoordinationServer]:
    server = CoordinationServer(directory, settings)
    server.start()
    try:
        yield server
    finally:
        server.kill()


async def serve(directory: str, port: int, settings: Mapping[str, str]) -> None:
    loop = asyncio.get_running_loop()
    executor, clock = EventLoopExecutor(loop), SystemClock()
    config = ZooKeeperConfig.from_properties(settings)
    embedded = EmbeddedServer(
        directory, filesystem=OsFileSystem(), executor=executor, clock=clock, config=config
    )
    embedded.start()
    listener = ZooKeeperListener(embedded.server, config, clock)
    bound = await listener.listen("127.0.0.1", port)
    if config.secure_client_port is not None:
        await listener.listen("127.0.0.1", config.secure_client_port, is_secure=True)
    stopping = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    print(bound, flush=True)
    await stopping.wait()
    await listener.close()
    await embedded.close()
    await loop.run_in_executor(None, executor.close)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("port", type=int)
    parser.add_argument("settings", nargs="*")
    given = parser.parse_args()
    asyncio.run(serve(given.directory, given.port, dict(text.split("=", 1) for text in given.settings)))
