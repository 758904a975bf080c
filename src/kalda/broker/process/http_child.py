"""Runs `kalda http` as a child of `kalda start --http PORT`.

The child is a process of its own, so that what people do with their browsers takes no time from the brokers.
It ends with the parent, as its stdin is a pipe that the parent holds, and starts again when it dies.
"""

import asyncio
import logging
import re
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kalda.broker.process.errors import ProcessError
from kalda.common.backoff import ExponentialBackoff
from kalda.runtime.system.random import SYSTEM_RANDOM

logger: Final = logging.getLogger(__name__)

STOP_SECONDS_MAX: Final = 15.0
"""How long the child may take to end the responses under way before it is killed."""

_BACKOFF_MS: Final = (500, 30_000)
_READY: Final = re.compile(rb"kalda ready http=(\S+)\n")


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """The command line options of the child."""

    port: int
    client_file: Path | None = None
    """The settings of its connections, where the cluster is secured."""
    arguments: Sequence[str] = ()
    """Options of the root command, such as those of logging."""


class HttpChild:
    """The child, over all its starts."""

    def __init__(self, options: HttpOptions) -> None:
        self._options: Final = options
        self._backoff: Final = ExponentialBackoff(*_BACKOFF_MS, SYSTEM_RANDOM.uniform)
        self._port = options.port
        self._bootstrap = ""
        self._process: Process | None = None
        self._watch: asyncio.Task[None] | None = None

    async def start(self, bootstrap: str) -> str:
        """Start it for the brokers at an address; return its own when it serves.

        Raises:
            ProcessError: it ended before; its stderr has the reason.
        """
        self._bootstrap = bootstrap
        address = await self._spawn()
        self._watch = asyncio.create_task(self._restart(), name="watch over kalda http")
        return address

    async def stop(self) -> None:
        """End it; it first ends the responses under way."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        process = self._process
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_SECONDS_MAX)
        except TimeoutError:
            logger.error("kalda http did not stop in time and is killed")
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _spawn(self) -> str:
        options = self._options
        arguments = ["-m", "kalda", *options.arguments, "http", "--supervised", "--port", str(self._port)]
        arguments += ["--bootstrap-server", self._bootstrap]
        if options.client_file is not None:
            arguments += ["--command-config", str(options.client_file)]
        # A process group of its own: Ctrl-C reaches only the parent, which stops the child first.
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, stdin=PIPE, stdout=PIPE, process_group=0
        )
        assert process.stdout is not None, "it is a pipe"
        match = _READY.fullmatch(await process.stdout.readline())
        if match is None:
            code = await process.wait()
            raise ProcessError(f"kalda http did not start; it ended with exit code {code}")
        address = match[1].decode("ascii")
        # A later start takes the same port, which clients know by then.
        self._port = int(address.rpartition(":")[2])
        return address

    async def _restart(self) -> None:
        failures = 0
        while True:
            assert self._process is not None, "it was started"
            code = await self._process.wait()
            failures += 1
            seconds = self._backoff.seconds(failures)
            logger.error("kalda http ended with exit code %d; it starts again in %.1f s", code, seconds)
            await asyncio.sleep(seconds)
            with suppress(ProcessError):
                await self._spawn()
                failures = 0
