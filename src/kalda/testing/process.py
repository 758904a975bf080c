"""A broker in a process of its own, as an operator would run it.

It starts `kalda start`, waits for the ready line of the command contract, and ends the process by its own
pid. It is for tests and benchmarks that must see a real process: memory, signals, ``kill -9``.
"""

import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_READY: Final = re.compile(rb"kalda ready bootstrap=(?P<bootstrap>\S+)(?: zookeeper=(?P<zookeeper>\S+))?\n")
_LOG_NAME: Final = "kalda.stderr"
_LOG_TAIL_BYTES: Final = 4_000
"""How much of the process's log an error shows: enough for the last events, short enough to read."""


class KaldaProcessError(Exception):
    """The process did not do what was asked of it; the message ends with the tail of its log."""


class KaldaProcess:
    """One `kalda start` process over a data directory.

    The directory outlives the process: `kill()` and then `start()` again is how a crash is tested. The port
    is kept over restarts, so that clients find the broker again.

    Example::

        with KaldaProcess(tmp_path, settings={"num.partitions": "4"}) as kalda:
            producer = confluent_kafka.Producer({"bootstrap.servers": kalda.bootstrap})
    """

    def __init__(
        self,
        directory: Path,
        *,
        settings: Mapping[str, str] | None = None,
        port: int = 0,
        start_timeout_seconds: float = 30.0,
        command: Sequence[str] | None = None,
    ) -> None:
        self.directory: Final = directory
        self.settings: Final = dict(settings or {})
        self._port = port
        self._start_timeout_seconds = start_timeout_seconds
        self._command = list(command) if command is not None else [sys.executable, "-m", "kalda.cli"]
        self._process: subprocess.Popen[bytes] | None = None
        self.bootstrap = ""
        self.start_seconds = 0.0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_running:
            self.stop()

    @property
    def is_running(self) -> bool:
        """Whether the process is alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id; the process must have been started."""
        assert self._process is not None, "the process was not started"
        return self._process.pid

    def start(self) -> None:
        """Start the process and return when it serves.

        Raises:
            KaldaProcessError: it ended, or printed no ready line in time.
        """
        assert not self.is_running, "the process is running already"
        self.directory.mkdir(parents=True, exist_ok=True)
        arguments = [*self._command, "start", "--dir", str(self.directory), "--port", str(self._port)]
        for name, value in self.settings.items():
            arguments += ["--set", f"{name}={value}"]
        begin = time.monotonic()
        with (self.directory.parent / f"{self.directory.name}.{_LOG_NAME}").open("ab") as log:
            self._process = subprocess.Popen(
                arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=os.environ.copy()
            )
        try:
            self.bootstrap = self._wait_ready(begin + self._start_timeout_seconds)
        except BaseException:
            # An interrupt here comes before `with` has anything to undo.
            if self._process.poll() is None:
                self.kill()
            raise
        self.start_seconds = time.monotonic() - begin
        self._port = int(self.bootstrap.split(",")[0].rpartition(":")[2])

    def stop(self, timeout_seconds: float = 30.0) -> None:
        """Ask for a controlled shutdown (SIGTERM) and wait for exit code 0.

        Raises:
            KaldaProcessError: the exit code is another, or the process had to be killed.
        """
        code = self._end(signal.SIGTERM, timeout_seconds)
        if code != 0:
            raise KaldaProcessError(
                f"kalda ended with exit code {code}, not 0, after SIGTERM{self._log_tail()}"
            )

    def kill(self) -> None:
        """End the process at once (SIGKILL), as a crash would."""
        self._end(signal.SIGKILL, 10.0)

    def log(self) -> str:
        """Return all that the process wrote to stderr, over all its starts."""
        return (self.directory.parent / f"{self.directory.name}.{_LOG_NAME}").read_text(errors="replace")

    def _end(self, number: signal.Signals, timeout_seconds: float) -> int:
        process = self._process
        assert process is not None, "the process was not started"
        if process.poll() is None:
            process.send_signal(number)
        try:
            process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise KaldaProcessError(
                f"no end within {timeout_seconds} s of {number.name}; killed{self._log_tail()}"
            ) from None
        finally:
            assert process.stdout is not None
            process.stdout.close()
        return process.returncode

    def _wait_ready(self, deadline: float) -> str:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    self.kill()
                    raise KaldaProcessError(
                        f"kalda was not ready after {self._start_timeout_seconds} s{self._log_tail()}"
                    )
                piece = os.read(process.stdout.fileno(), 4096)
                if not piece:
                    code = process.wait()
                    process.stdout.close()
                    raise KaldaProcessError(
                        f"kalda ended with exit code {code} before it was ready{self._log_tail()}"
                    )
                line += piece
        match = _READY.fullmatch(line)
        if match is None:
            self.kill()
            raise KaldaProcessError(f"kalda printed {line!r}, which is not the ready line")
        return match["bootstrap"].decode("ascii")

    def _log_tail(self) -> str:
        tail = self.log()[-_LOG_TAIL_BYTES:]
        return f"; the end of its log:\n{tail}" if tail else "; it logged nothing"
