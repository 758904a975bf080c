"""Runs a `kalda` command as a process, as an operator would.

It starts the command, waits for the ready line on its stdout, and ends the process by its pid. Tests and
benchmarks use it where they need a real process: its memory, signals, ``kill -9``.
"""

import contextlib
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
from typing import ClassVar, Final, Self

from kalda.common import invariants
from kalda.common.overriding import override
from kalda.common.public import public
from kalda.testing.kept_directories import keep
from kalda.testing.ports import free_ports_in_a_row

_READY: Final = re.compile(
    rb"kalda ready(?: bootstrap=(?P<bootstrap>\S+))? (?:zookeeper|coordination)=(?P<zookeeper>\S+)"
    rb"(?: http=(?P<http>\S+))?\n"
)
_VIOLATION: Final = re.compile(rb"^AssertionError.*$", re.MULTILINE)
"""The last line of a traceback in the log: the broker logs most errors of a request and goes on."""
_LOG_NAME: Final = "kalda.stderr"
_LOG_TAIL_BYTES: Final = 4_000
"""How much of the process's log an error shows: enough for the last events, short enough to read."""

_ABORT_SECONDS_MAX: Final = 10.0


@public
class KaldaProcessError(Exception):
    """A process failed to start, to stop or to exist; the message ends with its last log lines, if any.

    Raised where a process does not become ready or does not end in time, ends with another exit code than 0,
    does not run when it should, or does not exist.
    """


class CommandProcess:
    """One process that runs a `kalda` command; the base of `KaldaProcess` and its siblings.

    As a context manager it starts the process, and stops it in order at the end of the block. The data
    directory outlives the process: `kill` and then `start` is how a test crashes a broker.

    Args:
        log_file: The file that the process's stderr is appended to.
        start_timeout_seconds: How long a start may take until the ready line.
        command: What to run instead of ``python -m kalda``, in front of the arguments.
    """

    _popen: ClassVar[type[subprocess.Popen[bytes]]] = subprocess.Popen
    """Starts the process; Kalda's own tests fork one that has imported what a server needs."""

    def __init__(
        self, log_file: Path, *, start_timeout_seconds: float = 60.0, command: Sequence[str] | None = None
    ) -> None:
        invariants.enable_by_default()
        self.log_file: Final = log_file
        """Where the process's stderr goes, over all its starts."""
        self._start_timeout_seconds = start_timeout_seconds
        self._command = list(command) if command is not None else [sys.executable, "-m", "kalda"]
        self._process: subprocess.Popen[bytes] | None = None
        self._begin = 0.0
        self.bootstrap = ""
        """Where clients reach the brokers, ``host:port[,host:port]``; empty without one."""
        self.zookeeper = ""
        """Where the coordination server is."""
        self.http = ""
        """Where `kalda http` is, with `--http`; empty without."""
        self.start_seconds = 0.0
        """How long the last start took."""

    def arguments(self) -> list[str]:
        """Return what follows `kalda` on the command line of the next start."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_running:
            self.stop()
        if error is None:
            self.check_log()

    def check_log(self) -> None:
        """Raise `KaldaProcessError` if the process logged a violated invariant, over all its starts."""
        found = _VIOLATION.search(self.log_file.read_bytes()) if self.log_file.exists() else None
        if found is not None:
            raise KaldaProcessError(f"an invariant was violated: {found[0].decode(errors='replace').strip()}")

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
        self.start_nowait()
        self.wait_ready()

    def start_nowait(self) -> None:
        """Start the process and return at once; `wait_ready` must follow."""
        assert not self.is_running, "the process is running already"
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        self._begin = time.monotonic()
        with self.log_file.open("ab") as log:
            self._process = self._popen(
                [*self._command, *self.arguments()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                # A process that does not end shows where it stands when it is aborted.
                env=os.environ | {"PYTHONFAULTHANDLER": "1"},
            )

    def wait_ready(self) -> None:
        """Return when the process that was started serves.

        Raises:
            KaldaProcessError: it ended, or printed no ready line in time.
        """
        assert self._process is not None, "the process was not started"
        try:
            self._read_ready_line(self._begin + self._start_timeout_seconds)
        except BaseException:
            # An interrupt here comes before `with` has anything to undo.
            if self._process.poll() is None:
                self.kill()
            raise
        self.start_seconds = time.monotonic() - self._begin

    def stop(self, timeout_seconds: float = 30.0) -> None:
        """Ask for a controlled shutdown (SIGTERM) and wait for exit code 0.

        Raises:
            KaldaProcessError: the exit code is another, or the process had to be killed.
        """
        self.stop_nowait()
        self.wait_stopped(timeout_seconds)

    def stop_nowait(self) -> None:
        """Ask for a controlled shutdown (SIGTERM) and return at once; `wait_stopped` must follow."""
        assert self._process is not None, "the process was not started"
        self._process.send_signal(signal.SIGTERM)

    def wait_stopped(self, timeout_seconds: float = 30.0) -> None:
        """Wait until a process that was asked to shut down has ended with exit code 0.

        Raises:
            KaldaProcessError: the exit code is another, or the process had to be killed.
        """
        code = self._wait_end(signal.SIGTERM, timeout_seconds)
        if code != 0:
            raise KaldaProcessError(
                f"kalda ended with exit code {code}, not 0, after SIGTERM{self._log_tail()}"
            )

    def kill(self) -> None:
        """End the process at once (SIGKILL), as a crash would; a paused one too.

        Does nothing where it has ended already.

        Raises:
            KaldaProcessError: it is not gone after 10 seconds.
        """
        assert self._process is not None, "the process was not started"
        self._process.send_signal(signal.SIGKILL)
        self._wait_end(signal.SIGKILL, 10.0)

    def pause(self) -> None:
        """Suspend the process (SIGSTOP), as if its machine swapped or its host stopped.

        Raises:
            KaldaProcessError: it does not run.
        """
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume a paused process (SIGCONT).

        Raises:
            KaldaProcessError: it does not run.
        """
        self._send(signal.SIGCONT)

    def log(self) -> str:
        """Return all that the process wrote to stderr, over all its starts."""
        return self.log_file.read_text(errors="replace")

    def _send(self, number: signal.Signals) -> None:
        if not self.is_running:
            raise KaldaProcessError(f"the process does not run, so {number.name} cannot be sent")
        assert self._process is not None
        self._process.send_signal(number)

    def _wait_end(self, number: signal.Signals, timeout_seconds: float) -> int:
        process = self._process
        assert process is not None, "the process was not started"
        try:
            process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            if number is signal.SIGTERM:
                self._abort(process)
            process.kill()
            process.wait()
            raise KaldaProcessError(
                f"no end within {timeout_seconds} s of {number.name}; killed{self._log_tail()}"
            ) from None
        finally:
            assert process.stdout is not None
            process.stdout.close()
        return process.returncode

    @staticmethod
    def _abort(process: subprocess.Popen[bytes]) -> None:
        """End the process by SIGABRT, at which faulthandler writes the stacks of its threads to stderr."""
        process.send_signal(signal.SIGABRT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_ABORT_SECONDS_MAX)

    def _read_ready_line(self, deadline: float) -> None:
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
        self.bootstrap = (match["bootstrap"] or b"").decode("ascii")
        self.zookeeper = match["zookeeper"].decode("ascii")
        self.http = (match["http"] or b"").decode("ascii")

    def _log_tail(self) -> str:
        tail = self.log()[-_LOG_TAIL_BYTES:]
        return f"; the end of its log:\n{tail}" if tail else "; it logged nothing"


def setting_arguments(settings: Mapping[str, str]) -> list[str]:
    """Return settings as ``--set`` options."""
    return [argument for name, value in settings.items() for argument in ("--set", f"{name}={value}")]


@public
class KaldaProcess(CommandProcess):
    """One `kalda start` process over a data directory; with several `brokers` it has a child for each.

    The ports are kept over restarts, so that clients find the brokers again. The log goes to
    ``<directory>.kalda.stderr`` beside the directory.

    Example:
        ```python
        with KaldaProcess(tmp_path / "data", settings={"num.partitions": "4"}) as kalda:
            producer = confluent_kafka.Producer({"bootstrap.servers": kalda.bootstrap})
            kalda.kill()      # SIGKILL
            kalda.start()     # recovers, at the same port
        ```

    Args:
        directory: The directory of all data; created if it does not exist. It stays after the process.
        settings: Settings of every broker under Kafka's names, with values as in a ``server.properties``.
        port: The first broker's port on 127.0.0.1, the next ones follow; 0 picks free ones.
        brokers: How many brokers to run.
        options: Further options of `kalda start`, such as ``--secure``.
        start_timeout_seconds: How long a start may take until all brokers serve.
        command: What to run instead of ``python -m kalda``, in front of the arguments.

    Raises:
        KaldaProcessError: From entering the block: the process ended or was not ready in time. From leaving
            it: the exit code was not 0.
    """

    def __init__(
        self,
        directory: Path,
        *,
        settings: Mapping[str, str] | None = None,
        port: int = 0,
        brokers: int = 1,
        options: Sequence[str] = (),
        start_timeout_seconds: float = 60.0,
        command: Sequence[str] | None = None,
    ) -> None:
        super().__init__(
            directory.parent / f"{directory.name}.{_LOG_NAME}",
            start_timeout_seconds=start_timeout_seconds,
            command=command,
        )
        self.directory: Final = directory
        self.settings: Final = dict(settings or {})
        self._port = port or free_ports_in_a_row(brokers)
        self._brokers: Final = brokers
        self._options: Final = list(options)

    @override
    def arguments(self) -> list[str]:
        several = ["--brokers", str(self._brokers)] if self._brokers > 1 else []
        # Listeners that the settings name have ports of their own.
        port = [] if "listeners" in self.settings else ["--port", str(self._port)]
        return [
            *("start", "--dir", str(self.directory), *port),
            *several,
            *self._options,
            *setting_arguments(self.settings),
        ]

    @override
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        keep(self.directory)

    @override
    def wait_ready(self) -> None:
        super().wait_ready()
        self._port = int(self.bootstrap.split(",")[0].rpartition(":")[2])
